"""What an operator's schema says about its arguments, read once per operator."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from torch._ops import OpOverload

__all__ = ["REQUIRED", "Argument", "Signature", "signature_of"]


class _Required:
    """The default of an argument that has none."""

    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@attrs.frozen
class Argument:
    """One argument of a schema: its name, type as the schema writes it, default, and place."""

    name: str
    type: str
    default: Any
    kwarg_only: bool
    written: bool

    @property
    def optional(self) -> bool:
        """Tell whether None is a value."""
        return self.type.startswith("Optional[")

    @property
    def kind(self) -> str:
        """Return the type without ``Optional``, such as ``List[int]``, ``Tensor`` or ``int``."""
        return self.type.removeprefix("Optional[").removesuffix("]") if self.optional else self.type

    @property
    def spelled(self) -> str:
        """Return the type as schemas spell it, such as ``int[]?`` or ``Tensor``."""
        return _spelled(self.type)


def _frozen(default: Any) -> Any:
    """Return a default that calls can share: a tuple for a list."""
    return tuple(default) if isinstance(default, list) else default


def _spelled(type_: str) -> str:
    if type_.startswith("Optional["):
        return f"{_spelled(type_[9:-1])}?"
    if type_.startswith("List["):
        return f"{_spelled(type_[5:-1])}[]"
    return type_


@attrs.frozen(eq=False)
class Signature:
    """The arguments of one overload, in schema order, and how to write a call."""

    op: str
    arguments: dict[str, Argument]
    allocates: bool
    positional: tuple[Argument, ...] = attrs.field(init=False)
    keyword: tuple[Argument, ...] = attrs.field(init=False)
    defaults: dict[str, Any] = attrs.field(init=False)

    @positional.default
    def _positional(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments.values() if not a.kwarg_only)

    @keyword.default
    def _keyword(self) -> tuple[Argument, ...]:
        return tuple(a for a in self.arguments.values() if a.kwarg_only)

    @defaults.default
    def _defaults(self) -> dict[str, Any]:
        return {a.name: a.default for a in self.arguments.values()}

    def position(self, name: str) -> str:
        """Return where an argument stands, as ``"7P"`` (positional) or ``"9K"`` (keyword-only), from 0."""
        return f"{list(self.arguments).index(name)}{'K' if self.arguments[name].kwarg_only else 'P'}"


@functools.cache  # a memo of a pure function: an overload's schema never changes
def signature_of(op: OpOverload) -> Signature:
    """Read the schema of an overload.

    >>> import torch
    >>> [a.name for a in signature_of(torch.ops.aten.add.Tensor).keyword]
    ['alpha']
    """
    schema = op._schema  # noqa: SLF001 - an overload has no public schema
    arguments = {
        a.name: Argument(
            name=a.name,
            type=str(a.real_type),
            default=_frozen(a.default_value) if a.has_default_value() else REQUIRED,
            kwarg_only=a.kwarg_only,
            written=a.alias_info is not None and a.alias_info.is_write,
        )
        for a in schema.arguments
    }
    allocates = any("Tensor" in str(value.type) and value.alias_info is None for value in schema.returns)
    return Signature(op=f"{schema.name}.{schema.overload_name or 'default'}", arguments=arguments, allocates=allocates)
