"""Registries: immutable sets of handlers with disjoint operators, built and passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies._check import CheckReport, check_handler_schema
from npugraph_strategies._names import OpLike, dispatch_name, qualified_name
from npugraph_strategies.errors import NotRegistered, RegistryConflict

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npugraph_strategies._handlers import OpHandler

__all__ = ["HandlerRegistry"]


def _sorted_unique(handlers: tuple[OpHandler, ...]) -> tuple[OpHandler, ...]:
    """Order handlers by their operators, so that equality does not depend on the order they came in."""
    return tuple(sorted(dict.fromkeys(handlers), key=lambda handler: sorted(handler.ops)))


@final
@attrs.frozen(repr=False)
class HandlerRegistry:
    """An immutable set of handlers, each operator served by at most one of them.

    >>> from npugraph_strategies.handlers import ATTENTION, UpdateParams
    >>> rope = UpdateParams("my::rope", "positions")
    >>> decode = ATTENTION | HandlerRegistry.of(rope)
    >>> "my::rope" in decode, "my::rope" in ATTENTION, len(decode.without(rope)) == len(ATTENTION)
    (True, False, True)
    """

    handlers: tuple[OpHandler, ...] = attrs.field(default=(), converter=_sorted_unique)
    _table: dict[str, OpHandler] = attrs.field(init=False, eq=False)

    @_table.default
    def _build_table(self) -> dict[str, OpHandler]:
        table: dict[str, OpHandler] = {}
        for handler in self.handlers:
            for op in handler.ops:
                name = dispatch_name(op)
                other = table.setdefault(name, handler)
                if other != handler:
                    raise RegistryConflict(qualified_name(op), other, handler)
        return table

    @classmethod
    def of(cls, *handlers: OpHandler) -> HandlerRegistry:
        """Build a registry. Raises `RegistryConflict` when two different handlers serve one operator."""
        return cls(handlers)

    def __or__(self, other: HandlerRegistry) -> HandlerRegistry:
        """Return the union. Raises `RegistryConflict` when both serve an operator with different handlers."""
        if not isinstance(other, HandlerRegistry):
            return NotImplemented
        return HandlerRegistry(self.handlers + other.handlers)

    def override(self, *handlers: OpHandler) -> HandlerRegistry:
        """Return a registry in which these handlers replace those that serve the same operators.

        Raises `NotRegistered` when a handler replaces nothing (use ``|`` to add), and `RegistryConflict` when
        a replaced handler serves an operator that would be left without one (remove it with `without` first).
        """
        registry = self
        for handler in handlers:
            replaced = [h for h in registry.handlers if not set(h.ops).isdisjoint(handler.ops)]
            if not replaced:
                raise NotRegistered(f"an operator of {handler!r}", registry.ops)
            for old in replaced:
                for op in old.ops:
                    if op not in handler.ops:
                        raise RegistryConflict(op, old, handler)
            kept = tuple(h for h in registry.handlers if h not in replaced)
            registry = HandlerRegistry((*kept, handler))
        return registry

    def without(self, *entries: OpHandler | OpLike) -> HandlerRegistry:
        """Return a registry without these handlers, or without the handlers that serve these operators.

        Raises `NotRegistered` for what is not there.
        """
        removed = [self._entry(entry) for entry in entries]
        return HandlerRegistry(tuple(h for h in self.handlers if h not in removed))

    def _entry(self, entry: Any) -> OpHandler:
        """Return the handler that an entry of `without` means."""
        if entry in self.handlers:
            return entry  # type: ignore[no-any-return]  # found among the handlers, so it is one
        if hasattr(entry, "ops"):  # a handler, of a class that this module does not know
            raise NotRegistered(repr(entry), self.ops)
        found = self.find(entry)
        if found is None:
            raise NotRegistered(qualified_name(entry), self.ops)
        return found

    def find(self, op: OpLike) -> OpHandler | None:
        """Return the handler that serves an operator, or None."""
        return self._table.get(dispatch_name(op))

    def __getitem__(self, op: OpLike) -> OpHandler:
        """Return the handler that serves an operator; raise `NotRegistered` when there is none."""
        found = self.find(op)
        if found is None:
            raise NotRegistered(qualified_name(op), self.ops)
        return found

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the qualified names of all operators served, sorted."""
        return tuple(sorted(op for handler in self.handlers for op in handler.ops))

    @property
    def table(self) -> dict[str, OpHandler]:
        """Return a plain dict from ``OpOverload.name()`` to handler: a copy, for a hot path of one's own."""
        return dict(self._table)

    def check(self) -> CheckReport:
        """Compare every handler with the schemas that are installed here.

        The report tells "not installed here" from "wrong"; ``report.raise_for_errors()`` raises
        `RegistryMismatch` when something is wrong.
        """
        return CheckReport(tuple(f for handler in self.handlers for f in check_handler_schema(handler)))

    def __contains__(self, entry: object) -> bool:
        """Tell whether a handler, or an operator in any spelling, is served."""
        if entry in self.handlers:
            return True
        return not hasattr(entry, "ops") and self.find(entry) is not None  # type: ignore[arg-type]  # OpLike, or an error

    def __iter__(self) -> Iterator[OpHandler]:
        """Iterate over the handlers, sorted by operator."""
        return iter(self.handlers)

    def __len__(self) -> int:
        """Return the number of handlers."""
        return len(self.handlers)

    def __repr__(self) -> str:
        return f"HandlerRegistry.of({', '.join(map(repr, self.handlers))})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the handlers only."""
        return (HandlerRegistry, (self.handlers,))
