"""Any misuse leaves a simulated device usable."""

from __future__ import annotations

import contextlib

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from npugraph_strategies.errors import DeviceError
from npugraph_strategies.runtimes._simulated import Limits, SimulatedRuntime


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
