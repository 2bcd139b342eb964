"""One operator call as a value: arguments by schema name, so that positions never matter again."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies._containers import map_tensors, tensors
from npugraph_strategies._names import OpLike, resolve
from npugraph_strategies._schema import REQUIRED, Signature, signature_of
from npugraph_strategies._values import brief
from npugraph_strategies.errors import BadArguments, UnknownArgument

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor
    from torch._ops import OpOverload

__all__ = ["OpCall"]


@final
@attrs.frozen(eq=False, repr=False, init=False)
class OpCall:
    """One operator with all its arguments, bound by schema name; immutable.

    Build it with `bind`. An argument that was not given has its schema default.

    >>> import torch
    >>> call = OpCall.bind("aten::add.Tensor", (torch.tensor([1, 2]), 3), {})
    >>> call.arguments["other"], call.arguments["alpha"]
    (3, 1)
    >>> call.replace(other=10)()
    tensor([11, 12])
    """

    op: OpOverload
    _arguments: dict[str, Any]
    _signature: Signature

    @classmethod
    def bind(cls, op: OpLike, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None) -> OpCall:
        """Bind arguments to the names of the operator's schema, as the dispatcher would.

        Raises `UnknownOperator` when the operator is not installed, `BadArguments` when the arguments do not fit.
        """
        overload = resolve(op)
        signature = signature_of(overload)
        if len(args) > len(signature.positional):
            raise BadArguments(
                signature.op, f"takes {len(signature.positional)} positional arguments, given {len(args)}"
            )
        given = {argument.name: value for argument, value in zip(signature.positional, args, strict=False)}
        for name, value in (kwargs or {}).items():
            if name in given:
                raise BadArguments(signature.op, f"argument {name!r} is given twice")
            if name not in signature.arguments:
                raise UnknownArgument(signature.op, name, tuple(signature.arguments))
            given[name] = value
        return cls._make(overload, signature, {**signature.defaults, **given})

    @classmethod
    def _make(cls, op: OpOverload, signature: Signature, arguments: dict[str, Any]) -> OpCall:
        """Build a call from one value per schema argument."""
        missing = [name for name, value in arguments.items() if value is REQUIRED]
        if missing:
            raise BadArguments(signature.op, f"missing argument(s) {', '.join(map(repr, missing))}")
        call = cls.__new__(cls)
        object.__setattr__(call, "op", op)
        object.__setattr__(call, "_arguments", arguments)
        object.__setattr__(call, "_signature", signature)
        return call

    @property
    def name(self) -> str:
        """Return the qualified name, ``namespace::name.overload``."""
        return self._signature.op

    @property
    def signature(self) -> Signature:
        """Return what the schema says."""
        return self._signature

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return all arguments by name, in schema order, read-only."""
        return MappingProxyType(self._arguments)

    def replace(self, op: OpLike | None = None, /, **changes: Any) -> OpCall:
        """Return a call with some arguments changed, or to another overload that takes this call's arguments.

        Raises `UnknownArgument` for a name that the schema lacks, `BadArguments` when the other overload cannot
        take an argument that was given here, or wants one that is not.
        """
        if op is None:
            overload, signature, base = self.op, self._signature, self._arguments
        else:
            overload = resolve(op)
            signature = signature_of(overload)
            lost = [n for n, v in self._given() if n not in signature.arguments]
            if lost:
                raise BadArguments(signature.op, f"cannot take over argument(s) {', '.join(lost)} of {self.name}")
            base = {**signature.defaults, **dict(self._given())}
        for name in changes:
            if name not in signature.arguments:
                raise UnknownArgument(signature.op, name, tuple(signature.arguments))
        return self._make(overload, signature, {**base, **changes})

    def map(self, fn: Callable[[str, Any], Any]) -> OpCall:
        """Return a call whose arguments are ``fn(name, value)``; defaults that were not given stay."""
        return self.replace(**{name: fn(name, value) for name, value in self._given()})

    def map_tensors(self, fn: Callable[[Tensor], Any]) -> OpCall:
        """Return a call with `fn` applied to every tensor, at any depth."""
        return self.map(lambda _, value: map_tensors(value, fn))

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Iterate over all tensors at any depth, each with the name of its argument."""
        for name, value in self._given():
            for tensor in tensors(value):
                yield name, tensor

    def emit(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments to call the operator with, without those left at a default."""
        arguments, defaults = self._arguments, self._signature.defaults
        positional = [arguments[a.name] for a in self._signature.positional]
        for argument in reversed(self._signature.positional):
            if arguments[argument.name] is not defaults[argument.name]:
                break
            positional.pop()
        keyword = {
            a.name: arguments[a.name] for a in self._signature.keyword if arguments[a.name] is not defaults[a.name]
        }
        return positional, keyword

    def __call__(self) -> Any:
        """Run the operator."""
        args, kwargs = self.emit()
        return self.op(*args, **kwargs)

    def _given(self) -> list[tuple[str, Any]]:
        """Return the arguments that are not simply the schema's default object."""
        defaults = self._signature.defaults
        return [(n, v) for n, v in self._arguments.items() if v is not defaults[n]]

    def __repr__(self) -> str:
        shown = ", ".join(f"{n}={brief(v)}" for n, v in self._given())
        return f"OpCall({self.name!r}, {shown})"
