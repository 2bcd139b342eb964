"""Probes of captures: what begins and ends one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from npugraph_strategies._selftest._graphs import add, capturing, replay, replayed, values
from npugraph_strategies._selftest._lab import elsewhere, quietly
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from npugraph_strategies._selftest._graphs import Capture
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes

__all__ = ["PROBES"]

_OR_TORCH_NPU: Final = (
    "| RuntimeError"  # torch_npu refuses some misuse by itself, before the driver does, and without a code
)


@probe(
    "capture.stores",
    "Work on a capturing stream is stored, not run; a replay runs it",
    {"before the first replay": "[-1.0]", "after a replay": "[3.0]", "after another, of a new input": "[12.0]"},
)
def _stores(lab: Lab, notes: Notes) -> None:
    x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
    with capturing(lab) as capture:
        add(x, y, out)
        capture.end()
    notes.saw("before the first replay", values(out))
    replayed(lab, capture.graph)
    notes.saw("after a replay", values(out))
    x.copy_(lab.tensor(10.0))
    lab.runtime.synchronize()
    replayed(lab, capture.graph)
    notes.saw("after another, of a new input", values(out))


@probe(
    "capture.is-told",
    "A stream is capturing from the begin to the end of its capture, and no longer",
    {"before": "False", "inside": "True", "after": "False"},
)
def _is_told(lab: Lab, notes: Notes) -> None:
    notes.saw("before", lab.runtime.is_capturing())
    with capturing(lab) as capture:
        notes.saw("inside", lab.runtime.is_capturing())
        capture.end()
        notes.saw("after", lab.runtime.is_capturing())


@probe("capture.default-stream", "The default stream cannot capture", {"begin": f"107031 {_OR_TORCH_NPU}"})
def _default_stream(lab: Lab, notes: Notes) -> None:
    graph = lab.runtime.new_graph()
    notes.call("begin", lab.begin, graph)
    if lab.runtime.is_capturing():
        with quietly():
            graph.capture_end()


@probe("capture.nested-begin", "A capturing stream cannot begin another capture", {"second begin": "107027"})
def _nested_begin(lab: Lab, notes: Notes) -> None:
    with capturing(lab) as capture:
        notes.call("second begin", lab.begin, lab.runtime.new_graph())
        notes.call("end", capture.end)


@probe(
    "capture.end-without-begin",
    "A stream that does not capture cannot end a capture",
    {"end": f"107029 {_OR_TORCH_NPU}"},
)
def _end_without_begin(lab: Lab, notes: Notes) -> None:
    with lab.runtime.stream(lab.runtime.new_stream()):
        notes.call("end", lab.runtime.new_graph().capture_end)


def _end_here(lab: Lab, capture: Capture) -> None:
    with lab.runtime.stream(capture.stream):
        capture.graph.capture_end()


@probe(
    "capture.end-in-another-thread",
    "Another thread cannot end a capture",
    {"end in another thread": "107038"},
)
def _end_in_another_thread(lab: Lab, notes: Notes) -> None:
    with capturing(lab) as capture:
        notes.call("end in another thread", elsewhere, lambda: _end_here(lab, capture))
        notes.call("end in the first thread", capture.end)


@probe(
    "capture.end-relaxed-in-another-thread",
    "Another thread can end a capture of mode relaxed",
    {"end in another thread": "ok"},
)
def _end_relaxed_in_another_thread(lab: Lab, notes: Notes) -> None:
    with capturing(lab, "relaxed") as capture:
        notes.call("end in another thread", elsewhere, lambda: _end_here(lab, capture))
        capture.over = not lab.runtime.is_capturing()


@probe(
    "capture.end-on-a-joined-stream", "A capture ends on the stream where it began", {"end": f"107036 {_OR_TORCH_NPU}"}
)
def _end_on_a_joined_stream(lab: Lab, notes: Notes) -> None:
    with capturing(lab) as capture:
        joined, fork, join = lab.runtime.new_stream(), lab.mark(), lab.mark()
        fork.record(capture.stream)
        fork.wait(joined)
        with lab.runtime.stream(joined):
            notes.call("end", capture.graph.capture_end)
        join.record(joined)
        join.wait(capture.stream)
        notes.call("end where it began", capture.end)


@probe("capture.replay-inside", "A graph cannot be replayed on a capturing stream", {"replay": "107026"})
def _replay_inside(lab: Lab, notes: Notes) -> None:
    x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
    with capturing(lab) as first:
        add(x, y, out)
        first.end()
    with capturing(lab) as second:
        notes.call("replay", replay, lab, first.graph, second.stream)
        notes.call("end", second.end)


@probe(
    "capture.reset-while-running",
    "A graph cannot be destroyed while it runs (torch_npu warns of 107037, and returns)",
    {"reset while it runs": "107037 | ok", "finished after the record": "True"},
    hazardous=True,
)
def _reset_while_running(lab: Lab, notes: Notes) -> None:
    x, y, out, event = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0), lab.runtime.new_event()
    with capturing(lab) as capture:
        event.wait(capture.stream)
        add(x, y, out)
        capture.end()
    stream, other = lab.runtime.new_stream(), lab.runtime.new_stream()
    replay(lab, capture.graph, stream)
    notes.call("reset while it runs", capture.graph.reset)
    event.record(other)
    notes.saw("finished after the record", lab.finished(stream))


PROBES: Final = (
    _stores,
    _is_told,
    _default_stream,
    _nested_begin,
    _end_without_begin,
    _end_in_another_thread,
    _end_relaxed_in_another_thread,
    _end_on_a_joined_stream,
    _replay_inside,
    _reset_while_running,
)
