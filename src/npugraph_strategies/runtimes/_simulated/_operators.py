"""What an operator does under capture: at once, allocate only, become a task, or be refused."""

from __future__ import annotations

import enum
import functools
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

from npugraph_strategies._containers import map_tensors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Kind", "arguments", "bind", "is_view", "kind_of", "qualified", "refusal"]

_METADATA = frozenset(
    {
        "_has_compatible_shallow_copy_type",
        "_has_same_storage_numel",
        "can_cast",
        "is_pinned",
        "is_same_size",
        "result_type",
        "set_",
        "set_data",
    },
)
_WAITS = frozenset({"_linalg_check_errors"})  # they return tensors or nothing, and read values on the host

_WOULD_WAIT = "it would synchronize with the host inside a capture"


class Kind(enum.Enum):
    """What becomes of an operator under capture."""

    NOW = "runs now; it only changes metadata"
    HELPER = "runs now, and what it returns belongs to the graph"
    ALLOCATION = "allocates; it is no task"
    CONSTANT = "takes a value from the host; it is no task"
    VIEW = "may be a view, which is no task"
    TASK = "is captured"
    REFUSED = "cannot be captured"


_MADE_NOW = MappingProxyType(
    {
        "empty": Kind.ALLOCATION,
        "empty_like": Kind.ALLOCATION,
        "empty_permuted": Kind.ALLOCATION,
        "empty_strided": Kind.ALLOCATION,
        "lift": Kind.CONSTANT,
        "lift_fresh": Kind.CONSTANT,
        "new_empty": Kind.ALLOCATION,
        "new_empty_strided": Kind.ALLOCATION,
    }
)


def kind_of(op: Any, helpers: tuple[str, ...]) -> Kind:
    """Return what becomes of `op`; `helpers` are the parts of names of operators that must return real values."""
    if not isinstance(op, OpOverload):
        return Kind.REFUSED
    if any(part in qualified(op) for part in helpers):
        return Kind.HELPER
    if _metadata_only(op):
        return Kind.NOW
    if refusal(op):
        return Kind.REFUSED
    if _trusted(op) and _base(op) in _MADE_NOW and not op._schema.is_mutable:  # noqa: SLF001 - no public accessor
        return _MADE_NOW[_base(op)]
    return Kind.VIEW if _may_be_view(op) else Kind.TASK


def refusal(op: Any) -> str:
    """Say why `op` can never be captured, or nothing."""
    if not isinstance(op, OpOverload):
        return "it is a higher-order operator, whose control flow runs on the host; capture its parts"
    if _trusted(op) and _base(op) in _WAITS:
        return _WOULD_WAIT
    if _base(op).startswith("quantize_per_"):
        return "quantized tensors cannot be captured"
    returned = [str(r.type) for r in op._schema.returns]  # noqa: SLF001 - no public accessor
    if not all("Tensor" in name for name in returned):
        return f"{_WOULD_WAIT} (it returns {', '.join(returned)})"
    return ""


def _trusted(op: OpOverload[..., Any]) -> bool:
    """Tell whether it is one of torch's own operators, whose schemas tell the truth."""
    return op.namespace in {"aten", "prims"}


def _metadata_only(op: OpOverload[..., Any]) -> bool:
    """Tell whether it changes or asks about sizes, strides and storages only, or marks a span for the profiler."""
    if op.namespace == "profiler" or torch.Tag.inplace_view in op.tags:
        return True
    return _trusted(op) and _base(op) in _METADATA


def qualified(op: Any) -> str:
    """Return the operator's name with namespace and overload, or a higher-order operator's name."""
    return str(op.name())


def _base(op: OpOverload[..., Any]) -> str:
    """Return the name without namespace and overload."""
    return str(op._schema.name).rpartition("::")[2]  # noqa: SLF001 - no public accessor


def _may_be_view(op: OpOverload[..., Any]) -> bool:
    """Tell whether the operator may return nothing but views.

    aten can be trusted not to write unannounced; elsewhere outputs without an annotation are written to (the fused
    attention operators' ``.out``), so there a view must be annotated as one.
    """
    schema = op._schema  # noqa: SLF001 - no public accessor
    if schema.is_mutable or not schema.returns:
        return False
    return _trusted(op) or any(r.alias_info is not None for r in schema.returns)


def is_view(op: OpOverload[..., Any]) -> bool:
    """Tell whether the operator's schema says that it returns views."""
    schema = op._schema  # noqa: SLF001 - no public accessor
    return not schema.is_mutable and any(r.alias_info is not None for r in schema.returns)


def arguments(op: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of the schema's arguments with the values that were given."""
    names = [a.name for a in op._schema.arguments]  # noqa: SLF001 - no public accessor
    yield from zip(names, args, strict=False)
    yield from kwargs.items()


def bind(
    op: OpOverload[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    keep: Callable[[str, torch.Tensor], torch.Tensor],
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the call's arguments with every tensor replaced by what `keep` makes of it and its argument's name."""
    named = [(name, map_tensors(value, functools.partial(keep, name))) for name, value in arguments(op, args, kwargs)]
    return tuple(value for _, value in named[: len(args)]), dict(named[len(args) :])
