"""Probes of external events. Each lets go at its end what it made wait, so that nothing is left hanging."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from npugraph_strategies._selftest._graphs import add, capturing, replay, values
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from torch import Tensor

    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes
    from npugraph_strategies.runtimes import RuntimeEvent, RuntimeGraph, RuntimeStream

__all__ = ["PROBES"]


@probe("event.record-first", "A record before its wait is legal", {"finished": "True"})
def _record_first(lab: Lab, notes: Notes) -> None:
    first, second, event = lab.runtime.new_stream(), lab.runtime.new_stream(), lab.runtime.new_event()
    event.record(first)
    lab.runtime.synchronize(first)
    event.wait(second)
    notes.saw("finished", lab.finished(second))
    _let_go(lab, event)


@probe(
    "event.wait-first",
    "A wait before its record holds its stream up until the record",
    {"finished before the record": "False", "finished after it": "True"},
)
def _wait_first(lab: Lab, notes: Notes) -> None:
    first, second, event = lab.runtime.new_stream(), lab.runtime.new_stream(), lab.runtime.new_event()
    event.wait(second)
    notes.saw("finished before the record", lab.finished(second))
    event.record(first)
    lab.settle(first)
    notes.saw("finished after it", lab.finished(second))


@probe(
    "event.wait-consumes",
    "A wait consumes its record: a second wait needs a second record, or is refused",
    {"first wait finished": "True", "second wait": "refused | waits"},
)
def _wait_consumes(lab: Lab, notes: Notes) -> None:
    first, second, event = lab.runtime.new_stream(), lab.runtime.new_stream(), lab.runtime.new_event()
    event.record(first)
    lab.settle(first)
    event.wait(second)
    notes.saw("first wait finished", lab.finished(second))
    try:
        event.wait(second)
    except RuntimeError:  # torch_npu counts records and waits itself
        notes.saw("second wait", "refused")
        notes.saw("finished after the refusal", lab.finished(second))  # it may have been launched all the same
    else:
        notes.saw("second wait", "passes" if lab.finished(second) else "waits")
    _let_go(lab, event)


@probe("event.reset", "Reset does nothing, since a wait consumes its record", {"finished after a reset": "True"})
def _reset(lab: Lab, notes: Notes) -> None:
    first, second, event = lab.runtime.new_stream(), lab.runtime.new_stream(), lab.runtime.new_event()
    event.record(first)
    event.reset(first)
    lab.runtime.synchronize(first)
    event.wait(second)
    notes.saw("finished after a reset", lab.finished(second))
    _let_go(lab, event)


@final
@attrs.frozen(eq=False)
class _Counting:
    """A graph that waits for `event` and then adds 1 to `count`."""

    graph: RuntimeGraph
    event: RuntimeEvent
    count: Tensor
    one: Tensor
    """Held here, because a graph uses its inputs for as long as it lives."""


def _counting(lab: Lab) -> _Counting:
    one, count, event = lab.tensor(1.0), lab.tensor(0.0), lab.runtime.new_event()
    with capturing(lab) as capture:
        event.wait(capture.stream)
        add(count, one, count)
        capture.end()
    return _Counting(capture.graph, event, count, one)


def _let_go(lab: Lab, event: RuntimeEvent) -> None:
    """Record for the wait that may be left."""
    stream = lab.runtime.new_stream()
    event.record(stream)
    lab.runtime.synchronize(stream)


def _replay_twice(lab: Lab, notes: Notes, made: _Counting, other: RuntimeStream) -> None:
    """Replay twice, see which replay ends, and record once more on `other` for the one that does not."""
    stream = lab.runtime.new_stream()
    replay(lab, made.graph, stream)
    notes.saw("first finished", lab.finished(stream))
    replay(lab, made.graph, stream)
    notes.saw("second finished", lab.finished(stream))
    made.event.record(other)
    lab.settle(other)
    notes.saw("finished after a record", lab.finished(stream))
    notes.saw("ran", values(made.count))


@probe(
    "event.captured-wait",
    "A captured wait holds a replay up until the record",
    {"finished before the record": "False", "ran before it": "[0.0]", "finished after it": "True", "ran": "[1.0]"},
)
def _captured_wait(lab: Lab, notes: Notes) -> None:
    made, stream, other = _counting(lab), lab.runtime.new_stream(), lab.runtime.new_stream()
    replay(lab, made.graph, stream)
    notes.saw("finished before the record", lab.finished(stream))
    notes.saw("ran before it", values(made.count))
    made.event.record(other)
    lab.settle(other)
    notes.saw("finished after it", lab.finished(stream))
    notes.saw("ran", values(made.count))


@probe(
    "event.record-before-replay",
    "A record before the replay that waits for it is legal",
    {"finished": "True", "ran": "[1.0]"},
)
def _record_before_replay(lab: Lab, notes: Notes) -> None:
    made, stream, other = _counting(lab), lab.runtime.new_stream(), lab.runtime.new_stream()
    made.event.record(other)
    lab.settle(other)
    replay(lab, made.graph, stream)
    notes.saw("finished", lab.finished(stream))
    notes.saw("ran", values(made.count))


@probe(
    "event.one-record-two-replays",
    "One record pairs with one wait: the second of two replays hangs",
    {"first finished": "True", "second finished": "False", "finished after a record": "True", "ran": "[2.0]"},
)
def _one_record_two_replays(lab: Lab, notes: Notes) -> None:
    made, other = _counting(lab), lab.runtime.new_stream()
    made.event.record(other)
    lab.settle(other)
    _replay_twice(lab, notes, made, other)


@probe(
    "event.two-records-collapse",
    "Two records before one wait are one: the second of two replays hangs",
    {"first finished": "True", "second finished": "False", "finished after a record": "True", "ran": "[2.0]"},
)
def _two_records_collapse(lab: Lab, notes: Notes) -> None:
    made, other = _counting(lab), lab.runtime.new_stream()
    for _ in range(2):
        made.event.record(other)
    lab.settle(other)
    lab.runtime.synchronize(other)
    _replay_twice(lab, notes, made, other)


@probe(
    "event.never-recorded",
    "Synchronising with a replay whose event nobody records does not return, or is a timeout",
    {"synchronise": "507046 | no answer"},
    hazardous=True,
)
def _never_recorded(lab: Lab, notes: Notes) -> None:
    made, stream = _counting(lab), lab.runtime.new_stream()
    replay(lab, made.graph, stream)
    notes.call("synchronise", lab.runtime.synchronize, stream)
    _let_go(lab, made.event)


PROBES: Final = (
    _record_first,
    _wait_first,
    _wait_consumes,
    _reset,
    _captured_wait,
    _record_before_replay,
    _one_record_two_replays,
    _two_records_collapse,
    _never_recorded,
)
