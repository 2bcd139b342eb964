from __future__ import annotations

import itertools
import json
import threading
from collections import Counter

import pytest
import torch

from npugraph_strategies.runtimes._faulty import FaultyRuntime, InjectedFault
from npugraph_strategies.runtimes._recording import Primitive, RecordingRuntime
from npugraph_strategies.runtimes._wrapped import PRIMITIVES, WrappedRuntime

IN_ORDER = (
    "new_stream",
    "new_graph",
    "graph.capture_begin",
    "new_event",
    "event.wait",
    "event.reset",
    "task_group_begin",
    "task_group_end",
    "graph.capture_end",
    "task_update_begin",
    "task_update_end",
    "event.record",
    "graph.replay",
    "synchronize",
    "graph.reset",
)


def ticking(step=1000):
    """Return a clock that goes on by one step each time it is read."""
    return itertools.count(0, step).__next__


def test_every_primitive_reaches_the_inner_runtime_unchanged(plain, program):
    """A program leaves the same trace on a runtime and on a wrapped one, arguments included."""
    program(plain)
    direct = list(plain.asked)
    plain.asked.clear()
    program(WrappedRuntime(plain))
    assert plain.asked == direct


def test_every_primitive_is_recorded_once_in_order(plain, program):
    """The names recorded are those of the program, and they are all there are."""
    runtime = RecordingRuntime(plain)
    program(runtime)
    assert runtime.names() == IN_ORDER
    assert sorted(IN_ORDER) == list(PRIMITIVES)


def test_queries_are_not_recorded(plain):
    """What does not reach the device goes straight to the inner runtime."""
    runtime = RecordingRuntime(plain)
    graph = runtime.new_graph("g")
    runtime.clear()
    with runtime.device(), runtime.stream(runtime.capture_stream()) as stream:
        assert runtime.current_stream() is stream
    assert runtime.name == "plain:0"
    assert runtime.update_stream().stream_id == 2
    assert runtime.is_capturing() is False
    assert runtime.capture_lock is plain.capture_lock
    assert runtime.update_lock is plain.update_lock
    assert graph.pool() == "pool"
    assert graph.task_count == 3
    assert runtime.primitives == ()


def test_tensor_questions_are_answered_by_the_inner_runtime(plain):
    """The inner runtime is asked about tensors with its own graph, however deep it lies."""
    runtime = RecordingRuntime(RecordingRuntime(plain))
    tensor = torch.zeros(2)
    assert runtime.is_device_tensor(tensor)
    assert runtime.weak_view(tensor).data_ptr() == tensor.data_ptr()
    assert runtime.in_pool(runtime.new_graph(), tensor)
    assert runtime.in_pool(plain.new_graph(), tensor)


def test_an_adopted_graph_is_wrapped(plain):
    """A caller's own graph is adopted by the inner runtime, and its calls are primitives."""
    runtime = RecordingRuntime(plain)
    theirs = plain.new_graph("theirs")
    runtime.adopt_graph(theirs, "ours").replay()
    assert [(p.name, p.label) for p in runtime.primitives] == [("graph.replay", "ours")]
    assert plain.asked[-1] == ("graph.replay", "ours")


def test_a_primitive_says_of_what_and_on_which_stream(plain, program):
    """Labels are those of events and graphs; graphs are on the then current stream."""
    runtime = RecordingRuntime(plain)
    program(runtime)
    facts = {primitive.name: (primitive.label, primitive.stream_id) for primitive in runtime.primitives}
    assert facts["event.wait"] == ("e", 5)
    assert facts["event.record"] == ("e", 2)
    assert facts["graph.capture_begin"] == ("g", 5)
    assert facts["graph.replay"] == ("g", 0)
    assert facts["task_update_begin"] == ("", 2)
    assert facts["new_event"] == ("e", None)


def test_times_come_from_the_clock(plain):
    """A primitive starts and lasts as the injected clock says."""
    runtime = RecordingRuntime(plain, clock=ticking(step=10))
    runtime.new_event("a")
    runtime.new_event("b")
    assert [(p.start_ns, p.duration_ns) for p in runtime.primitives] == [(0, 10), (20, 10)]


def test_a_failing_primitive_is_recorded_with_its_error(plain):
    """An error goes on to the caller and stays in the record."""
    runtime = RecordingRuntime(FaultyRuntime(plain, fail_at=0))
    with pytest.raises(InjectedFault):
        runtime.new_graph("g")
    assert runtime.primitives[0].error == "InjectedFault: injected fault at new_graph (number 0)"


def test_counts_and_clear(plain, program):
    """Counts add up over calls until they are cleared."""
    runtime = RecordingRuntime(plain)
    program(runtime)
    program(runtime)
    assert runtime.counts() == Counter(dict.fromkeys(PRIMITIVES, 2))
    runtime.clear()
    assert runtime.counts() == Counter()


def test_a_snapshot_does_not_grow(plain):
    """What was read stays as it was read."""
    runtime = RecordingRuntime(plain)
    runtime.new_event()
    before = runtime.primitives
    runtime.new_event()
    assert len(before) == 1


def test_no_primitive_is_lost_between_threads(plain):
    """Threads record into one runtime without losing anything."""
    runtime = RecordingRuntime(plain)

    def work():
        for _ in range(200):
            runtime.new_event()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert runtime.counts()["new_event"] == 800


def test_wrappers_stack(plain, program):
    """An outer and an inner recorder see the same primitives."""
    inner = RecordingRuntime(plain)
    outer = RecordingRuntime(inner)
    program(outer)
    assert outer.names() == inner.names() == IN_ORDER
    assert outer.inner is inner


def test_the_chrome_trace_has_a_row_per_stream(plain):
    """The trace is plain JSON, with rows for host and streams and times in microseconds."""
    runtime = RecordingRuntime(plain, clock=ticking(step=1500))
    event = runtime.new_event("e")
    event.record(runtime.update_stream())
    trace = json.loads(json.dumps(runtime.chrome_trace()))
    rows = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    calls = [(e["name"], rows[e["tid"]], e["ts"], e["dur"], e["args"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    assert calls == [
        ("new_event", "host", 0.0, 1.5, {"label": "e"}),
        ("event.record", "stream 2", 3.0, 1.5, {"label": "e"}),
    ]


def test_the_chrome_trace_shows_errors(plain):
    """A failed primitive carries its error in the trace."""
    runtime = RecordingRuntime(FaultyRuntime(plain, fail_at=0))
    with pytest.raises(InjectedFault):
        runtime.synchronize()
    args = runtime.chrome_trace()["traceEvents"][-1]["args"]
    assert args == {"error": "InjectedFault: injected fault at synchronize (number 0)"}


def test_a_primitive_is_a_value():
    """Two records of the same call are equal and hash alike."""
    first = Primitive("event.wait", "e", 3, 0, 1, None)
    assert {first} == {Primitive("event.wait", "e", 3, 0, 1, None)}
