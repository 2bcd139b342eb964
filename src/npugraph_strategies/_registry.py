"""Registries: immutable sets of handlers with disjoint operators, built and passed in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies._check import CheckReport, check_handler_schema, handler_problem, is_data
from npugraph_strategies._names import OP_TYPES, OpLike, dispatch_name, qualified_name
from npugraph_strategies.errors import InvalidHandler, NotRegistered, RegistryConflict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from npugraph_strategies._handlers import OpHandler

__all__ = ["HandlerRegistry"]


def _served(handler: OpHandler) -> tuple[str, ...]:
    """Return the qualified names of a handler's operators, sorted, however the handler spells them."""
    return tuple(sorted({qualified_name(op) for op in handler.ops}))


def _sorted_unique(handlers: Iterable[OpHandler]) -> tuple[OpHandler, ...]:
    """Order handlers by their operators, so that equality does not depend on the order they came in."""
    given = tuple(handlers)
    for handler in given:
        joined = isinstance(handler, HandlerRegistry)
        problem = "which is a registry: registries are joined with |" if joined else handler_problem(handler)
        if problem:
            raise InvalidHandler(handler, problem)
    return tuple(sorted(dict.fromkeys(given), key=_served))


def _refuse_handler(other: object) -> None:
    """Say what to do with a handler that was given for a registry; anything else may have an operator of its own."""
    if handler_problem(other) is None:
        raise TypeError(f"| joins registries; given the handler {other!r}: wrap it in HandlerRegistry.of(...)")


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
            for op in _served(handler):
                other = table.setdefault(dispatch_name(op), handler)
                if other != handler:
                    raise RegistryConflict(op, other, handler)
        return table

    @classmethod
    def of(cls, *handlers: OpHandler) -> HandlerRegistry:
        """Build a registry.

        Raises `RegistryConflict` when two different handlers serve one operator, `InvalidHandler` for what is none.
        """
        return cls(handlers)

    def __or__(self, other: HandlerRegistry) -> HandlerRegistry:
        """Return the union. Raises `RegistryConflict` when both serve an operator with different handlers."""
        _refuse_handler(other)
        if not isinstance(other, HandlerRegistry):
            return NotImplemented
        return HandlerRegistry(self.handlers + other.handlers)

    def __ror__(self, other: object) -> Any:
        """Refuse a handler on the left, as `|` does on the right."""
        _refuse_handler(other)
        return NotImplemented

    def override(self, *handlers: OpHandler) -> HandlerRegistry:
        """Return a registry in which these handlers replace those that serve the same operators.

        Raises `NotRegistered` when a handler replaces nothing (use ``|`` to add), and `RegistryConflict` when
        a replaced handler serves an operator that would be left without one (remove it with `without` first), or
        when two of these handlers serve one operator.
        """
        new = HandlerRegistry(handlers)
        replaced: dict[OpHandler, OpHandler] = {}
        for handler in new.handlers:
            old = [found for found in map(self.find, _served(handler)) if found is not None]
            if not old:
                raise NotRegistered(f"an operator of {handler!r}", self.ops)
            replaced |= dict.fromkeys(old, handler)
        for before, handler in replaced.items():
            for op in _served(before):
                if op not in new:
                    raise RegistryConflict(op, before, handler)
        return HandlerRegistry(tuple(h for h in self.handlers if h not in replaced)) | new

    def without(self, *entries: OpHandler | OpLike) -> HandlerRegistry:
        """Return a registry without these handlers, or without the handlers that serve these operators.

        Raises `NotRegistered` for what is not there.
        """
        removed = {self._entry(entry) for entry in entries}
        return HandlerRegistry(tuple(h for h in self.handlers if h not in removed))

    def _entry(self, entry: Any) -> OpHandler:
        """Return the handler that an entry of `without` means."""
        if isinstance(entry, OP_TYPES):
            return self[entry]
        if entry not in self.handlers:
            raise NotRegistered(repr(entry), self.ops)
        return entry  # type: ignore[no-any-return]  # found among the handlers, so it is one

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
        return tuple(sorted(map(qualified_name, self._table)))

    @property
    def table(self) -> dict[str, OpHandler]:
        """Return a plain dict from ``OpOverload.name()`` to handler: a copy, for a hot path of one's own."""
        return dict(self._table)

    def check(self) -> CheckReport:
        """Compare every handler with the schemas that are installed here.

        The report tells "not installed here" from "wrong", and which handlers are not plain data. Its
        ``raise_for_errors()`` raises `RegistryMismatch` when something is wrong.
        """
        findings = tuple(f for handler in self.handlers for f in check_handler_schema(handler))
        return CheckReport(findings, tuple(handler for handler in self.handlers if not is_data(handler)))

    def __contains__(self, entry: object) -> bool:
        """Tell whether a handler, or an operator in any spelling, is served."""
        return self.find(entry) is not None if isinstance(entry, OP_TYPES) else entry in self.handlers

    def __iter__(self) -> Iterator[OpHandler]:
        """Iterate over the handlers, sorted by operator."""
        return iter(self.handlers)

    def __len__(self) -> int:
        """Return the number of handlers."""
        return len(self.handlers)

    def __repr__(self) -> str:
        return f"HandlerRegistry.of({', '.join(map(repr, self.handlers))})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the handlers only; the table follows from them."""
        return (HandlerRegistry, (self.handlers,))
