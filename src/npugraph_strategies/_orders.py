"""Orders: whether a step updates first or replays first, as injected strategy objects.

Both give the same result. `ReplayThenUpdate` launches the graph at once, so that what stands before the first
updated operator runs while the host still issues updates; some devices want it for other reasons.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, final

import attrs

from npugraph_strategies.errors import BrokenOrder

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Halves", "ReplayThenUpdate", "UpdateOrder", "UpdateThenReplay"]


class UpdateOrder(Protocol):
    """The order of the two halves of a step. Each of the two is to be called exactly once."""

    def run(self, *, update: Callable[[], None], replay: Callable[[], None]) -> None:
        """Call both."""
        ...


@final
@attrs.frozen
class UpdateThenReplay:
    """Update all records, then launch the graph.

    >>> UpdateThenReplay().run(update=lambda: print("update"), replay=lambda: print("replay"))
    update
    replay
    """

    def run(self, *, update: Callable[[], None], replay: Callable[[], None]) -> None:
        """Update, then replay."""
        update()
        replay()


@final
@attrs.frozen
class ReplayThenUpdate:
    """Launch the graph, then update its records while it waits for them.

    >>> ReplayThenUpdate().run(update=lambda: print("update"), replay=lambda: print("replay"))
    replay
    update
    """

    def run(self, *, update: Callable[[], None], replay: Callable[[], None]) -> None:
        """Replay, then update."""
        replay()
        update()


class Halves:
    """The two halves of one step, run by an order that has to call each of them exactly once."""

    def __init__(self, order: UpdateOrder, *, update: Callable[[], None], replay: Callable[[], None]) -> None:
        self._order = order
        self._halves = {"update": update, "replay": replay}
        self._called: list[str] = []

    def run(self) -> None:
        """Run the order. Raises `BrokenOrder` when it calls a half twice, or leaves one out."""
        self._order.run(update=lambda: self._call("update"), replay=lambda: self._call("replay"))
        if len(self._called) != len(self._halves):
            raise BrokenOrder(repr(self._order), tuple(self._called))

    def _call(self, half: str) -> None:
        if half in self._called:
            raise BrokenOrder(repr(self._order), (*self._called, half))
        self._called.append(half)
        self._halves[half]()
