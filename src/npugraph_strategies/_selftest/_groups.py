"""Probes of task groups while they are captured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from npugraph_strategies._selftest._graphs import add, capturing
from npugraph_strategies._selftest._lab import quietly
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes

__all__ = ["PROBES"]


@probe("group.begin-outside", "A group begins on a capturing stream only", {"begin": "107029 | 107033"})
def _begin_outside(lab: Lab, notes: Notes) -> None:
    stream = lab.runtime.new_stream()
    notes.call("begin", lab.runtime.task_group_begin, stream)
    with quietly():
        lab.runtime.task_group_end(stream)


@probe("group.nested-begin", "A stream has one open group", {"second begin": "107029 | 107033"})
def _nested_begin(lab: Lab, notes: Notes) -> None:
    x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
    with capturing(lab) as capture:
        lab.runtime.task_group_begin(capture.stream)
        add(x, y, out)
        notes.call("second begin", lab.runtime.task_group_begin, capture.stream)
        notes.call("group end", lab.runtime.task_group_end, capture.stream)
        notes.call("capture end", capture.end)


@probe("group.end-without-begin", "A group ends on the stream where it is open", {"group end": "107033"})
def _end_without_begin(lab: Lab, notes: Notes) -> None:
    with capturing(lab) as capture:
        notes.call("group end", lab.runtime.task_group_end, capture.stream)
        notes.call("capture end", capture.end)


@probe(
    "group.operators-only",
    "A group holds kernels of operators only",
    {"wait for an event": "507009"},
)
def _operators_only(lab: Lab, notes: Notes) -> None:
    event = lab.runtime.new_event()
    with capturing(lab, direct=True) as capture:
        lab.runtime.task_group_begin(capture.stream)
        notes.call("wait for an event", event.wait, capture.stream)
        notes.call("group end", lab.runtime.task_group_end, capture.stream)
        notes.call("capture end", capture.end)


@probe(
    "group.another-stream",
    "While a group is open, nothing is launched on other streams of the capture",
    {"launch": "107034"},
)
def _another_stream(lab: Lab, notes: Notes) -> None:
    x, y, outs = lab.tensor(1.0), lab.tensor(2.0), [lab.tensor(-1.0) for _ in range(2)]
    joined, fork, join = lab.direct_stream(), lab.mark(), lab.mark()

    def launch() -> None:
        with lab.runtime.stream(joined):
            add(x, y, outs[1])

    with capturing(lab, direct=True) as capture:
        fork.record(capture.stream)
        fork.wait(joined)
        lab.runtime.task_group_begin(capture.stream)
        add(x, y, outs[0])
        notes.call("launch", launch)
        notes.call("group end", lab.runtime.task_group_end, capture.stream)
        with quietly():
            join.record(joined)
            join.wait(capture.stream)
        notes.call("capture end", capture.end)


PROBES: Final = (_begin_outside, _nested_begin, _end_without_begin, _operators_only, _another_stream)
