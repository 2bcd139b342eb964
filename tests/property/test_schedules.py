"""Any interleaving of streams gives the same result."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st


class Decoder:
    """Two groups in one graph: ``y = x + a*one`` and ``z = y * b``, and a mark of the end of each replay."""

    def __init__(self, bench, runtime):
        self.runtime = runtime
        self.stream, self.update_stream = runtime.capture_stream(), runtime.update_stream()
        self.events, self.end = [runtime.new_event("add"), runtime.new_event("mul")], runtime.new_event("end")
        self.x, self.one, self.y, self.z = (bench.tensor([value] * 2) for value in (1.0, 1.0, 0.0, 0.0))
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
def test_ordered_steps_never_hang_and_are_never_stale(bench, seed, lazy, steps):
    """With the barrier, either order of update and replay gives the last values, under every schedule."""
    runtime = bench.runtime(seed=seed, lazy=lazy)
    decoder, stream = Decoder(bench, runtime), runtime.new_stream()
    for number, (values, replay_first) in enumerate(steps):
        decoder.step(values, stream, first=number == 0, replay_first=replay_first)
    runtime.synchronize()
    (a, b), _ = steps[-1]
    assert decoder.z.tolist() == [(1 + a) * b] * 2


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 1000), st.lists(STEP, min_size=1, max_size=4))
def test_every_step_sees_its_own_values(bench, seed, steps):
    """Read after each step, no result is another step's."""
    runtime = bench.runtime(seed=seed, lazy=True)
    decoder = Decoder(bench, runtime)
    for number, ((a, b), replay_first) in enumerate(steps):
        decoder.step((a, b), runtime.current_stream(), first=number == 0, replay_first=replay_first)
        runtime.synchronize(runtime.current_stream())
        assert decoder.z.tolist() == [(1 + a) * b] * 2
