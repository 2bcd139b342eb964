"""What an operator does under capture: at once, allocate only, become a task, or be refused."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["Kind", "arguments", "kind_of", "map_tensors", "refusal", "tensors"]

_ALLOCATIONS = frozenset(
    {"empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"},
)
_HOST_TO_DEVICE = frozenset({"lift", "lift_fresh"})
_METADATA = frozenset({"is_same_size", "result_type", "can_cast", "_has_compatible_shallow_copy_type"})
_WAITS = frozenset({"_linalg_check_errors", "is_nonzero", "_local_scalar_dense", "item", "equal", "is_pinned"})

_WOULD_WAIT = "it would synchronize with the host inside a capture"


class Kind(enum.Enum):
    """What becomes of an operator under capture."""

    NOW = "runs now; it only changes metadata"
    HELPER = "runs now, and what it returns belongs to the graph"
    ALLOCATION = "allocates; it is no task"
    VIEW = "may be a view, which is no task"
    TASK = "is captured"
    REFUSED = "cannot be captured"


def kind_of(op: Any, helpers: tuple[str, ...]) -> Kind:
    """Return what becomes of `op`; `helpers` are the parts of names of operators that must return real values."""
    if not isinstance(op, OpOverload):
        return Kind.REFUSED
    name = op.name()
    if any(part in name for part in helpers) or _base(op) in _HOST_TO_DEVICE:
        return Kind.HELPER
    if op.namespace == "profiler" or torch.Tag.inplace_view in op.tags or _base(op) in {"set_", "set_data"}:
        return Kind.NOW
    if refusal(op):
        return Kind.REFUSED
    if op.namespace in {"aten", "prims"}:
        if _base(op) in _METADATA:
            return Kind.NOW
        if _base(op) in _ALLOCATIONS and op._overloadname != "out":  # noqa: SLF001 - no public accessor
            return Kind.ALLOCATION
    return Kind.VIEW if _may_be_view(op) else Kind.TASK


def refusal(op: Any) -> str:
    """Say why `op` can never be captured, or nothing."""
    if not isinstance(op, OpOverload):
        return "it is a higher-order operator, whose control flow runs on the host; capture its parts"
    base = _base(op)
    if op.namespace in {"aten", "prims"} and (base in _WAITS):
        return _WOULD_WAIT
    returned = [str(r.type) for r in op._schema.returns]  # noqa: SLF001 - no public accessor
    if not (op.namespace == "aten" and base in _METADATA) and not all("Tensor" in name for name in returned):
        return f"{_WOULD_WAIT} (it returns {', '.join(returned)})"
    return ""


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
    return op.namespace in {"aten", "prims"} or any(r.alias_info is not None for r in schema.returns)


def is_view(op: OpOverload[..., Any]) -> bool:
    """Tell whether the operator's schema says that it returns views."""
    schema = op._schema  # noqa: SLF001 - no public accessor
    return not schema.is_mutable and any(r.alias_info is not None for r in schema.returns)


def arguments(op: OpOverload[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the names of the schema's arguments with the values that were given."""
    names = [a.name for a in op._schema.arguments]  # noqa: SLF001 - no public accessor
    yield from zip(names, args, strict=False)
    yield from kwargs.items()


def map_tensors(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Return `value` with every tensor changed; operators take tensors in lists at most."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        return type(value)([map_tensors(item, change) for item in value])
    return value


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
