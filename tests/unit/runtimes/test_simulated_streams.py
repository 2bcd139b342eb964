"""Streams, events and hangs of the simulated device."""

from __future__ import annotations

import threading

import pytest
import torch

from npugraph_strategies.errors import DeviceError, DeviceHang
from npugraph_strategies.runtimes._simulated import Choices, SimulatedDevice, SimulatedRuntime, StreamEvent


@pytest.fixture
def runtime():
    return SimulatedRuntime()


def waiting_graph(runtime, event, label="decoder"):
    """Capture ``count += 1`` behind the event."""
    count, graph, stream = torch.zeros(1), runtime.new_graph(label), runtime.capture_stream()
    with runtime.stream(stream):
        graph.capture_begin()
        event.wait(stream)
        count.add_(1)
        graph.capture_end()
    return graph, count


def code_of(action):
    with pytest.raises(DeviceError) as caught:
        action()
    return caught.value.code


def test_record_before_wait_is_legal(runtime):
    """The flag stays up until a wait consumes it."""
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    event.record(runtime.update_stream())
    graph.replay()
    assert count.item() == 1
    assert event.label == "attn"
    assert repr(event) == "<SimulatedEvent 'attn'>"


def test_a_wait_consumes_its_record(runtime):
    """Two replays after one record: the second waits for a second one."""
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    event.record(runtime.update_stream())
    graph.replay()
    graph.replay()
    assert count.item() == 1
    event.record(runtime.update_stream())
    assert count.item() == 2


def test_two_records_collapse_into_one(runtime):
    """A level is not a counter."""
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    event.record(runtime.update_stream())
    event.record(runtime.update_stream())
    graph.replay()
    graph.replay()
    assert count.item() == 1
    with pytest.raises(DeviceHang):
        runtime.synchronize()


def test_reset_does_nothing_where_waits_consume(runtime):
    """In torch_npu 2.13 a reset leaves the flag as it is."""
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    event.record(runtime.update_stream())
    event.reset(runtime.update_stream())
    graph.replay()
    assert count.item() == 1


def test_wait_and_reset_can_be_separate():
    """On older drivers a wait keeps the flag and a reset clears it, in stream order."""
    runtime = SimulatedRuntime(SimulatedDevice(choices=Choices(wait_consumes=False)))
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    event.record(runtime.update_stream())
    graph.replay()
    graph.replay()
    assert count.item() == 2
    event.reset(runtime.update_stream())
    graph.replay()
    assert count.item() == 2


def test_an_ordinary_stream_waits_too(runtime):
    """Outside a capture a wait holds up its own stream only."""
    event, after = runtime.new_event("barrier"), runtime.new_event("after")
    one, two = runtime.new_stream(), runtime.new_stream()
    event.wait(one)
    after.record(one)
    runtime.synchronize(two)
    with pytest.raises(DeviceHang) as caught:
        runtime.synchronize(one)
    assert caught.value.code == 507046
    event.record(two)
    runtime.synchronize(one)
    after.wait(two)
    runtime.synchronize()


def test_a_hang_names_stream_graph_and_event_and_can_be_healed(runtime):
    """The report says who waits for what; recording the event lets the work go on."""
    event = runtime.new_event("layers.0.attn#0")
    graph, count = waiting_graph(runtime, event)
    stream = runtime.new_stream()
    with runtime.stream(stream):
        graph.replay()
    message = (
        rf"507046: stream {stream.stream_id} waits in a replay of graph 'decoder' "
        r"for event 'layers\.0\.attn#0', which nobody has recorded"
    )
    for _ in range(2):
        with pytest.raises(DeviceHang, match=message):
            runtime.synchronize(stream)
    event.record(runtime.update_stream())
    runtime.synchronize()
    assert count.item() == 1


def test_a_patient_device_lets_other_threads_signal():
    """With patience a wait that another thread ends is no hang."""
    runtime = SimulatedRuntime(SimulatedDevice(choices=Choices(hang_patience=30.0)))
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    graph.replay()
    timer = threading.Timer(0.05, event.record, args=(runtime.update_stream(),))
    timer.start()
    runtime.synchronize()
    timer.join()
    assert count.item() == 1


def test_an_update_behind_the_replay_on_one_stream_hangs(runtime):
    """Updating on the stream that replays waits for itself."""
    event = runtime.new_event("attn")
    graph, _ = waiting_graph(runtime, event)
    stream = runtime.update_stream()
    with runtime.stream(stream):
        graph.replay()
        event.record(stream)
    with pytest.raises(DeviceHang, match="attn"):
        runtime.synchronize(stream)


def test_runs_of_one_graph_do_not_overlap(runtime):
    """A second launch on another stream begins when the first has finished, and the hang report says so."""
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    other = runtime.new_stream()
    graph.replay()
    with runtime.stream(other):
        graph.replay()
    with pytest.raises(DeviceHang, match="earlier replay of the same graph"):
        runtime.synchronize(other)
    event.record(runtime.update_stream())
    event.record(runtime.update_stream())
    runtime.synchronize()
    assert count.item() == 2


def test_an_update_overtakes_a_replay_that_still_waits(runtime):
    """Nothing orders update i+1 after replay i: its record collapses, and the next replay hangs."""
    first, second = runtime.new_event("first"), runtime.new_event("second")
    stream, graph = runtime.capture_stream(), runtime.new_graph()
    with runtime.stream(stream):
        graph.capture_begin()
        first.wait(stream)
        second.wait(stream)
        graph.capture_end()
    graph.replay()
    second.record(runtime.update_stream())
    second.record(runtime.update_stream())
    first.record(runtime.update_stream())
    first.record(runtime.update_stream())
    graph.replay()
    with pytest.raises(DeviceHang, match="second"):
        runtime.synchronize()


def test_ordinary_events_order_streams(runtime):
    """A wait is for the last record before it; an event never recorded holds nobody up."""
    device = runtime.simulated_device
    gate, event = runtime.new_event("gate"), StreamEvent(device, "done")
    one, two, after = runtime.new_stream(), runtime.new_stream(), runtime.new_event("after")
    event.wait(two)
    runtime.synchronize(two)
    gate.wait(one)
    event.record(one)
    event.wait(two)
    after.record(two)
    with pytest.raises(DeviceHang, match="stream event 'done'"):
        runtime.synchronize(two)
    gate.record(runtime.new_stream())
    runtime.synchronize()


class Fork:
    """A capture in which a side stream computes ``y = x + 1`` and the origin ``z = y * x`` after joining it."""

    def __init__(self, runtime):
        self.device = runtime.simulated_device
        self.runtime, self.origin, self.side = runtime, runtime.capture_stream(), runtime.new_stream()
        self.fork, self.join = StreamEvent(self.device, "fork"), StreamEvent(self.device, "join")
        self.x, self.graph = torch.ones(2), runtime.new_graph("forked")

    def capture(self, *, joined=True):
        with self.runtime.stream(self.origin):
            self.graph.capture_begin()
            self.fork.record(self.origin)
            self.fork.wait(self.side)
            with self.runtime.stream(self.side):
                self.y = self.x + 1
            w = self.x * 3
            if joined:
                self.join.record(self.side)
                self.join.wait(self.origin)
            self.z = self.y * w
            self.graph.capture_end()


@pytest.mark.parametrize("seed", range(5))
def test_a_forked_capture_replays_in_order(seed):
    """Work of a joined stream is captured, and waits and is waited for in every replay."""
    fork = Fork(SimulatedRuntime(seed=seed))
    fork.capture()
    assert fork.graph.task_count == 3
    for value in (1.0, 2.0):
        fork.x.fill_(value)
        fork.graph.replay()
        assert fork.z.tolist() == [(value + 1) * 3 * value] * 2


def test_a_stream_that_is_not_joined_back(runtime):
    """Work that the origin does not wait for answers 107025 at the end, and the capture is lost."""
    fork = Fork(runtime)
    assert code_of(lambda: fork.capture(joined=False)) == 107025
    assert code_of(fork.graph.replay) == 107017
    with runtime.stream(fork.side):
        assert not runtime.is_capturing()


def test_work_after_the_join_is_not_joined(runtime):
    """A join covers what came before it only."""
    fork = Fork(runtime)
    with runtime.stream(fork.origin):
        fork.graph.capture_begin()
        fork.fork.record(fork.origin)
        fork.fork.wait(fork.side)
        fork.join.record(fork.side)
        fork.join.wait(fork.origin)
        with runtime.stream(fork.side):
            torch.ones(1)
        assert code_of(fork.graph.capture_end) == 107025


def test_waiting_for_an_event_from_outside_the_capture(runtime):
    """A captured stream may not depend on work that is not captured: 107024, and the capture is lost."""
    fork = Fork(runtime)
    fork.fork.record(runtime.new_stream())
    with runtime.stream(fork.origin):
        fork.graph.capture_begin()
        assert code_of(lambda: fork.fork.wait(fork.origin)) == 107024
        assert code_of(fork.graph.capture_end) == 507903


def test_waiting_for_an_event_of_another_capture(runtime):
    """Two captures may not depend on each other: 107032."""
    one, two = Fork(runtime), Fork(runtime)
    two.origin = runtime.new_stream()
    with runtime.stream(one.origin):
        one.graph.capture_begin()
        one.fork.record(one.origin)
        with runtime.stream(two.origin):
            two.graph.capture_begin()
            assert code_of(lambda: one.fork.wait(two.origin)) == 107032
            assert code_of(two.graph.capture_end) == 507903
        one.graph.capture_end()
    late = Fork(runtime)
    with runtime.stream(late.origin):
        late.graph.capture_begin()
        assert code_of(lambda: one.fork.wait(late.origin)) == 107032  # its capture is over
        late.graph.capture_end()


def test_waiting_outside_for_an_event_of_a_capture(runtime):
    """A captured record never happens outside its graph."""
    fork = Fork(runtime)
    fork.capture()
    assert code_of(lambda: fork.join.wait(runtime.new_stream())) == 107024


@pytest.mark.parametrize("seed", range(4))
def test_a_lazy_device_finishes_when_synchronized(seed):
    """Lazily nothing is promised before `synchronize`, everything after it."""
    runtime = SimulatedRuntime(seed=seed, lazy=True)
    event = runtime.new_event("attn")
    graph, count = waiting_graph(runtime, event)
    for _ in range(3):
        event.record(runtime.update_stream())
        graph.replay()
        runtime.synchronize()
    assert count.item() == 3


def trace_of(seed):
    """Run unordered work on four streams."""
    runtime = SimulatedRuntime(seed=seed, lazy=True)
    for i in range(4):
        stream = runtime.new_stream()
        for j in range(4):
            runtime.new_event(f"{i}.{j}").record(stream)
    runtime.synchronize()
    return runtime.simulated_device.trace


def test_the_same_seed_gives_the_same_trace():
    """The order of streams is a function of the seed."""
    assert trace_of(1) == trace_of(1)
    assert len({trace_of(seed) for seed in range(8)}) > 1
    assert len(trace_of(0)) == 16


def test_the_trace_says_what_was_done(runtime):
    """A wait that passed is a wait, not the report of a hang."""
    event, joined = runtime.new_event("x"), StreamEvent(runtime.simulated_device, "halfway")
    one, two = runtime.new_stream(), runtime.new_stream()
    event.record(one)
    event.wait(two)
    joined.record(one)
    joined.wait(two)
    said = [what for _, what in runtime.simulated_device.trace]
    assert said == ["record 'x'", "wait 'x'", "mark 'halfway'", "wait for mark 'halfway'"]


def test_what_died_leaves_nothing_in_the_count(runtime):
    """Counting costs no memory for what is gone."""
    counter = runtime.simulated_device.events
    for _ in range(100):
        runtime.new_event()
    assert counter.in_use == 0
    assert len(counter._returned) <= 1


def test_a_hang_on_a_stream_of_the_runtime_says_which(runtime):
    """The report calls the update stream by its role."""
    event = runtime.new_event("x")
    event.wait(runtime.update_stream())
    with pytest.raises(DeviceHang, match=r"stream \d+ \(a runtime's update stream\) waits for event 'x'"):
        runtime.synchronize()
    event.record(runtime.capture_stream())
    runtime.synchronize()
