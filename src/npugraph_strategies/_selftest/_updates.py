"""Probes of updates of task groups: what they change, when, and what they refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from npugraph_strategies._selftest._graphs import add, capturing, grouped, replay, replayed, update, values
from npugraph_strategies._selftest._lab import quietly
from npugraph_strategies._selftest._probe import ANY_ERROR, probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from npugraph_strategies._selftest._graphs import Group
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes
    from npugraph_strategies.runtimes import RuntimeStream

__all__ = ["PROBES"]


def _end_quietly(lab: Lab, stream: RuntimeStream) -> None:
    with quietly():
        lab.runtime.task_update_end(stream)


def _update_and_wait(lab: Lab, handle: Any, launch: Callable[[], object], stream: RuntimeStream) -> None:
    """Update, and wait: what does not fit may be found by the driver only when the stream gets there."""
    update(lab, handle, launch, stream)
    lab.runtime.synchronize(stream)


def _misfit(lab: Lab, notes: Notes, made: Group, launch: Callable[[], object]) -> None:
    """Update by what does not fit the group, and then by what does."""
    stream = lab.runtime.new_stream()
    notes.call("update", _update_and_wait, lab, made.handle, launch, stream)
    notes.call("next update", update, lab, made.handle, lambda: add(made.x, made.y, made.out), stream)


@probe(
    "update.replaces",
    "What is launched in an update replaces the group's operators",
    {"update": "ok", "before the update": "[11.0]", "after it": "[101.0]", "old input untouched": "[10.0]"},
)
def _replaces(lab: Lab, notes: Notes) -> None:
    made, z = grouped(lab), lab.tensor(100.0)
    replayed(lab, made.graph)
    notes.saw("before the update", values(made.out))
    notes.call("update", update, lab, made.handle, lambda: add(made.x, z, made.out))
    lab.runtime.synchronize(lab.runtime.update_stream())
    replayed(lab, made.graph)
    notes.saw("after it", values(made.out))
    notes.saw("old input untouched", values(made.y))


@probe(
    "update.does-not-run",
    "What is launched in an update is not run by the update",
    {"after the update": "[-1.0]", "after a replay": "[101.0]"},
)
def _does_not_run(lab: Lab, notes: Notes) -> None:
    made, z = grouped(lab), lab.tensor(100.0)
    update(lab, made.handle, lambda: add(made.x, z, made.out))
    lab.runtime.synchronize(lab.runtime.update_stream())
    notes.saw("after the update", values(made.out))
    replayed(lab, made.graph)
    notes.saw("after a replay", values(made.out))


@probe(
    "update.ordered",
    "A patch takes effect in the order of the update stream",
    {"replay before the patch": "[11.0]", "replay after it": "[101.0]"},
)
def _ordered(lab: Lab, notes: Notes) -> None:
    made, z, gate = grouped(lab), lab.tensor(100.0), lab.runtime.new_event()
    updates, other = lab.runtime.new_stream(), lab.runtime.new_stream()
    gate.wait(updates)
    update(lab, made.handle, lambda: add(made.x, z, made.out), updates)
    lab.settle(updates)
    replayed(lab, made.graph)
    notes.saw("replay before the patch", values(made.out))
    gate.record(other)
    lab.settle(other)
    lab.runtime.synchronize(updates)
    replayed(lab, made.graph)
    notes.saw("replay after it", values(made.out))


@probe(
    "update.running-replay",
    "A patch affects a running replay that has not reached the task",
    {"finished before the record": "False", "finished after it": "True", "result": "[101.0]"},
)
def _running_replay(lab: Lab, notes: Notes) -> None:
    made, z, stream = grouped(lab, waits=True), lab.tensor(100.0), lab.runtime.new_stream()
    replay(lab, made.graph, stream)
    notes.saw("finished before the record", lab.finished(stream))
    update(lab, made.handle, lambda: add(made.x, z, made.out))
    assert made.event is not None  # noqa: S101 - it was asked for
    made.event.record(lab.runtime.update_stream())
    lab.settle(lab.runtime.update_stream())
    notes.saw("finished after it", lab.finished(stream))
    notes.saw("result", values(made.out))


@probe(
    "update.empty",
    "An update that launches nothing is accepted, and changes nothing",
    {"update": "ok", "result": "[11.0]"},
)
def _empty(lab: Lab, notes: Notes) -> None:
    made = grouped(lab)
    notes.call("update", update, lab, made.handle, lambda: None)
    lab.runtime.synchronize(lab.runtime.update_stream())
    replayed(lab, made.graph)
    notes.saw("result", values(made.out))


@probe("update.number", "An update launches as many operators as the group has", {"update": ANY_ERROR})
def _number(lab: Lab, notes: Notes) -> None:
    made, z, other = grouped(lab), lab.tensor(100.0), lab.tensor(-1.0)

    def twice() -> None:
        add(made.x, z, made.out)
        add(made.x, z, other)

    _misfit(lab, notes, made, twice)


@probe("update.type", "An update launches operators of the same type", {"update": ANY_ERROR})
def _type(lab: Lab, notes: Notes) -> None:
    made, z = grouped(lab), lab.tensor(100.0)
    _misfit(lab, notes, made, lambda: torch.mul(made.x, z, out=made.out))


@probe("update.on-a-capturing-stream", "A capturing stream cannot update", {"begin": "107033"})
def _on_a_capturing_stream(lab: Lab, notes: Notes) -> None:
    made = grouped(lab)
    with capturing(lab) as capture:
        notes.call("begin", lab.runtime.task_update_begin, capture.stream, made.handle)
        _end_quietly(lab, capture.stream)
        notes.call("capture end", capture.end)


@probe(
    "update.left-open",
    "A stream left in the updating state refuses every later update, until the end",
    {"second begin": "107033", "third begin": "107033", "end": "ok", "begin after the end": "ok"},
)
def _left_open(lab: Lab, notes: Notes) -> None:
    first, second, stream = grouped(lab), grouped(lab), lab.runtime.new_stream()
    lab.runtime.task_update_begin(stream, first.handle)
    notes.call("second begin", lab.runtime.task_update_begin, stream, second.handle)
    notes.call("third begin", lab.runtime.task_update_begin, stream, first.handle)
    notes.call("end", lab.runtime.task_update_end, stream)
    notes.call("begin after the end", lab.runtime.task_update_begin, stream, second.handle)
    _end_quietly(lab, stream)


@probe("update.busy-handle", "A group is updated on one stream at a time", {"begin on a second stream": "107033"})
def _busy_handle(lab: Lab, notes: Notes) -> None:
    made, first, second = grouped(lab), lab.runtime.new_stream(), lab.runtime.new_stream()
    lab.runtime.task_update_begin(first, made.handle)
    notes.call("begin on a second stream", lab.runtime.task_update_begin, second, made.handle)
    for stream in (second, first):
        _end_quietly(lab, stream)


@probe("update.end-without-begin", "A stream that does not update cannot end an update", {"end": "107033"})
def _end_without_begin(lab: Lab, notes: Notes) -> None:
    notes.call("end", lab.runtime.task_update_end, lab.runtime.new_stream())


PROBES: Final = (
    _replaces,
    _does_not_run,
    _ordered,
    _running_replay,
    _empty,
    _number,
    _type,
    _on_a_capturing_stream,
    _left_open,
    _busy_handle,
    _end_without_begin,
)
