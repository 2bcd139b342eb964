"""Any interleaving of streams gives the same result, and any misuse leaves the device usable."""

from __future__ import annotations

import contextlib

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from npugraph_strategies.errors import DeviceError
from npugraph_strategies.runtimes._simulated import Limits, SimulatedRuntime


class Decoder:
    """Two groups in one graph: ``y = x + a*one`` and ``z = y * b``, and a mark of the end of each replay."""

    def __init__(self, runtime):
        self.runtime = runtime
        self.stream, self.update_stream = runtime.capture_stream(), runtime.update_stream()
        self.events, self.end = [runtime.new_event("add"), runtime.new_event("mul")], runtime.new_event("end")
        self.x, self.one, self.y, self.z = torch.ones(2), torch.ones(2), torch.zeros(2), torch.zeros(2)
        self.graph, self.handles = runtime.new_graph("decoder"), []
        with runtime.stream(self.stream):
            self.graph.capture_begin()
            for index, event in enumerate(self.events):
                event.wait(self.stream)
                runtime.task_group_begin(self.stream)
                self.launch(index, 1)
                self.handles.append(runtime.task_group_end(self.stream))
            self.graph.capture_end()

    def launch(self, index, value):
        if index == 0:
            torch.add(self.x, self.one, alpha=value, out=self.y)
        else:
            torch.mul(self.y, value, out=self.z)

    def update(self, values):
        with self.runtime.stream(self.update_stream):
            for index, value in enumerate(values):
                self.runtime.task_update_begin(self.update_stream, self.handles[index])
                self.launch(index, value)
                self.runtime.task_update_end(self.update_stream)
                self.events[index].record(self.update_stream)

    def step(self, values, stream, *, first, replay_first):
        """Do one step with the barrier on the device: the update waits for the replay before."""
        if not first:
            self.end.wait(self.update_stream)
        if replay_first:
            self.replay(stream)
        self.update(values)
        if not replay_first:
            self.replay(stream)

    def replay(self, stream):
        with self.runtime.stream(stream):
            self.graph.replay()
            self.end.record(stream)


STEP = st.tuples(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), st.booleans())


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.booleans(), st.lists(STEP, min_size=1, max_size=5))
def test_ordered_steps_never_hang_and_are_never_stale(seed, lazy, steps):
    """With the barrier, either order of update and replay gives the last values, under every schedule."""
    runtime = SimulatedRuntime(seed=seed, lazy=lazy)
    decoder, stream = Decoder(runtime), runtime.new_stream()
    for number, (values, replay_first) in enumerate(steps):
        decoder.step(values, stream, first=number == 0, replay_first=replay_first)
    runtime.synchronize()
    (a, b), _ = steps[-1]
    assert decoder.z.tolist() == [(1 + a) * b] * 2


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.lists(STEP, min_size=1, max_size=4))
def test_every_step_sees_its_own_values(seed, steps):
    """Read after each step, no result is another step's."""
    runtime = SimulatedRuntime(seed=seed, lazy=True)
    decoder = Decoder(runtime)
    for number, ((a, b), replay_first) in enumerate(steps):
        decoder.step((a, b), runtime.current_stream(), first=number == 0, replay_first=replay_first)
        runtime.synchronize(runtime.current_stream())
        assert decoder.z.tolist() == [(1 + a) * b] * 2


class Chaos:
    """Primitives in any order, on few streams, events, graphs and handles."""

    def __init__(self, seed, *, lazy):
        self.runtime = SimulatedRuntime(seed=seed, lazy=lazy, limits=Limits(streams=8, events=4))
        self.streams = [self.runtime.new_stream() for _ in range(2)]
        self.events = [self.runtime.new_event(str(i)) for i in range(2)]
        self.graphs = [self.runtime.new_graph(str(i)) for i in range(3)]
        self.handles, self.x = [None], torch.ones(1)

    def do(self, action, i, j):
        runtime, stream, event = self.runtime, self.streams[i % 2], self.events[j % 2]
        graph = self.graphs[j % 3]
        with runtime.stream(stream):
            if action == "launch":
                self.x + 1
            elif action == "group_end":
                self.handles.append(runtime.task_group_end(stream))
            else:
                {
                    "begin": graph.capture_begin,
                    "end": graph.capture_end,
                    "replay": graph.replay,
                    "reset": graph.reset,
                    "wait": lambda: event.wait(stream),
                    "record": lambda: event.record(stream),
                    "group_begin": lambda: runtime.task_group_begin(stream),
                    "update_begin": lambda: runtime.task_update_begin(stream, self.handles[j % len(self.handles)]),
                    "update_end": lambda: runtime.task_update_end(stream),
                    "synchronize": lambda: runtime.synchronize(stream),
                }[action]()

    def tidy(self):
        """End whatever is open, as a careful caller would."""
        for stream in self.streams:
            with contextlib.suppress(DeviceError):
                self.runtime.task_update_end(stream)
            for graph in self.graphs:
                with self.runtime.stream(stream), contextlib.suppress(DeviceError):
                    graph.capture_end()


ACTIONS = (
    *("launch", "launch", "launch", "begin", "begin", "end", "end", "replay", "reset", "wait", "record", "record"),
    *("group_begin", "group_end", "update_begin", "update_end", "synchronize"),
)


@settings(deadline=None, max_examples=150)
@given(
    st.integers(0, 100),
    st.booleans(),
    st.lists(st.tuples(st.sampled_from(ACTIONS), st.integers(0, 1), st.integers(0, 5)), max_size=40),
)
def test_no_sequence_of_calls_breaks_the_device(seed, lazy, calls):
    """Whatever was called, errors are device errors with codes, and a fresh capture works afterwards."""
    chaos = Chaos(seed, lazy=lazy)
    for call in calls:
        with contextlib.suppress(DeviceError):
            chaos.do(*call)
    chaos.tidy()
    assert not _get_current_dispatch_mode_stack()
    runtime = chaos.runtime
    assert not any(stream.capture or stream.update for stream in chaos.streams)
    graph, x = runtime.new_graph(), torch.ones(1)
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        y = x + 1
        graph.capture_end()
        graph.replay()
    runtime.synchronize(runtime.capture_stream())
    assert y.item() == 2
    assert runtime.simulated_device.streams.in_use <= 8
