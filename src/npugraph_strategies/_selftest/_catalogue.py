"""All probes, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from npugraph_strategies._selftest import _captures, _during, _events, _groups, _joins, _resources, _updates

if TYPE_CHECKING:
    from npugraph_strategies._selftest._probe import Probe

__all__ = ["PROBES"]

PROBES: Final[tuple[Probe, ...]] = (
    *_captures.PROBES,
    *_during.PROBES,
    *_joins.PROBES,
    *_events.PROBES,
    *_groups.PROBES,
    *_updates.PROBES,
    *_resources.PROBES,
)
