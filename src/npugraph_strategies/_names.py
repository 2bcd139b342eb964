"""Operator names: one canonical spelling, ``namespace::name.overload``, for everything that names an operator."""

from __future__ import annotations

from typing import Final, TypeAlias

import torch
from torch._ops import OpOverload, OpOverloadPacket

from npugraph_strategies.errors import UnknownOperator

__all__ = ["OP_TYPES", "OpLike", "dispatch_name", "installed_overloads", "is_installed", "qualified_name", "resolve"]

OpLike: TypeAlias = str | OpOverload | OpOverloadPacket
OP_TYPES: Final = (str, OpOverload, OpOverloadPacket)  # the same, for `isinstance`

_SPELLING = "write it as 'namespace::name' or 'namespace::name.overload'"


def qualified_name(op: OpLike) -> str:
    """Return ``namespace::name.overload``; a name without overload, and a packet, mean ``.default``.

    Raises `UnknownOperator` for a string that is not spelled like an operator. Nothing has to be installed.

    >>> qualified_name("npu::npu_rms_norm")
    'npu::npu_rms_norm.default'
    >>> qualified_name(torch.ops.aten.add.Tensor)
    'aten::add.Tensor'
    """
    if isinstance(op, OpOverload):
        name = str(op.name())  # type: ignore[no-untyped-call]  # untyped in torch
    elif isinstance(op, OpOverloadPacket):
        name = op._qualified_op_name  # noqa: SLF001 - a packet has no public name with its namespace
    elif isinstance(op, str):
        name = op
    else:
        raise UnknownOperator(repr(op), f"{_SPELLING}, or pass torch.ops.namespace.name")
    namespace, colons, bare = name.partition("::")
    base, dot, overload = bare.partition(".")
    if not (namespace and colons and base) or (dot and not overload) or "." in overload or "." in namespace:
        raise UnknownOperator(name, _SPELLING)
    return f"{namespace}::{base}.{overload or 'default'}"


def dispatch_name(op: OpLike) -> str:
    """Return the name that ``OpOverload.name()`` gives: as `qualified_name`, without ``.default``.

    >>> dispatch_name("npu::npu_rms_norm.default")
    'npu::npu_rms_norm'
    """
    return qualified_name(op).removesuffix(".default")


def is_installed(op: OpLike) -> bool:
    """Tell whether this overload is registered with the dispatcher of this process.

    >>> is_installed("aten::add.Tensor"), is_installed("aten::add.Tensors")
    (True, False)
    """
    return qualified_name(op).partition(".")[2] in installed_overloads(op)


def installed_overloads(op: OpLike) -> tuple[str, ...]:
    """Return the overloads that are registered for an operator, whichever of them `op` names.

    >>> installed_overloads("aten::gelu")
    ('default', 'out')
    """
    base = qualified_name(op).partition(".")[0]
    schemas = torch._C._jit_get_schemas_for_operator(base)  # noqa: SLF001 - the one look-up that defines nothing
    return tuple(sorted(schema.overload_name or "default" for schema in schemas))


def _overloads_hint(op: OpLike) -> str:
    """Return the overloads to choose from, or nothing when the operator has none here."""
    known = installed_overloads(op)
    return f"its overloads are {', '.join(known)}" if known else ""


def resolve(op: OpLike) -> OpOverload:
    """Return the `OpOverload` of a name, a packet's ``.default``, or the overload itself.

    Raises `UnknownOperator` when it is not installed here.
    """
    if isinstance(op, OpOverload):
        return op
    name = qualified_name(op)
    if not is_installed(name):
        raise UnknownOperator(name, _overloads_hint(name))
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), base), overload)
    assert isinstance(found, OpOverload)  # noqa: S101 - narrows the type of a dynamic attribute
    return found
