"""Probes of ordinary events: how streams join a capture, and how they have to leave it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from npugraph_strategies._selftest._graphs import add, capturing, replayed, values
from npugraph_strategies._selftest._lab import quietly
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes

__all__ = ["PROBES"]


@probe(
    "join.by-event",
    "A stream that waits for an event of the capture is captured too, and is ordered by events",
    {"joined stream captures": "True", "end": "ok", "after the end": "False", "after a replay": "[-1.0] [3.0] [13.0]"},
)
def _by_event(lab: Lab, notes: Notes) -> None:
    x, y, z, outs = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(10.0), [lab.tensor(-1.0) for _ in range(2)]
    joined, fork, join = lab.runtime.new_stream(), lab.mark(), lab.mark()
    with capturing(lab) as capture:
        add(x, y, outs[0])
        fork.record(capture.stream)
        fork.wait(joined)
        with lab.runtime.stream(joined):
            notes.saw("joined stream captures", lab.runtime.is_capturing())
            add(outs[0], z, outs[1])
        join.record(joined)
        join.wait(capture.stream)
        notes.call("end", capture.end)
    with lab.runtime.stream(joined):
        notes.saw("after the end", lab.runtime.is_capturing())
    before = values(outs[1])
    replayed(lab, capture.graph)
    notes.saw("after a replay", f"{before} {values(outs[0])} {values(outs[1])}")


@probe(
    "join.unjoined",
    "A stream that joined has to be joined back before the end, or the capture is lost",
    {"end": "107025", "stream captures after the end": "False", "joined stream captures after the end": "False"},
)
def _unjoined(lab: Lab, notes: Notes) -> None:
    x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
    joined, fork = lab.runtime.new_stream(), lab.mark()
    with capturing(lab) as capture:
        fork.record(capture.stream)
        fork.wait(joined)
        with lab.runtime.stream(joined):
            add(x, y, out)
        notes.call("end", capture.end)
        notes.saw("stream captures after the end", lab.runtime.is_capturing())
    with lab.runtime.stream(joined):
        notes.saw("joined stream captures after the end", lab.runtime.is_capturing())


@probe(
    "join.uncaptured-event",
    "A capturing stream cannot wait for an event that was recorded outside the capture",
    {"wait": "107024", "end": "507903"},
)
def _uncaptured_event(lab: Lab, notes: Notes) -> None:
    outside, mark = lab.direct_stream(), lab.mark()
    mark.record(outside)
    with capturing(lab, direct=True) as capture:
        notes.call("wait", mark.wait, capture.stream)
        notes.call("end", capture.end)


@probe(
    "join.two-captures",
    "A capturing stream cannot wait for an event of another capture",
    {"wait": "107032", "end of the waiting capture": "507903", "end of the other capture": "ok"},
)
def _two_captures(lab: Lab, notes: Notes) -> None:
    x, y, out, mark = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0), lab.mark()
    with capturing(lab, "relaxed", direct=True) as first:
        add(x, y, out)
        mark.record(first.stream)
        second, graph = lab.direct_stream(), lab.runtime.new_graph()
        with lab.runtime.stream(second):
            lab.begin(graph, "relaxed")
            notes.call("wait", mark.wait, second)
            notes.call("end of the waiting capture", graph.capture_end)
            if lab.runtime.is_capturing():
                with quietly():
                    graph.capture_end()
        notes.call("end of the other capture", first.end)


PROBES: Final = (_by_event, _unjoined, _uncaptured_event, _two_captures)
