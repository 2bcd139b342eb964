"""Law 8: a failure at any primitive leaves stream, mode stack, task groups and other graphs as they were."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from npugraph_strategies import KEEP, ReplayThenUpdate, UpdateThenReplay, errors
from npugraph_strategies.runtimes import FaultyRuntime, InjectedFault
from support.bench import SimulatedBench
from support.story import attn, story_session


class Program:
    """A capture, three rounds of update and replay, and a close, which can be taken up again after a failure."""

    def __init__(self, bench, fail_at, *, order, after=False, lazy=False, seed=0):
        self.q = bench.tensor([0.0, 1.0, 2.0])
        self.runtime = FaultyRuntime(bench.runtime(lazy=lazy, seed=seed), fail_at=None, after=after)
        self.session = story_session(self.runtime, order=order)
        self.bystander, self.seen = self.capture()
        self.bystander.step({"lens": [1]})
        self.runtime.synchronize()
        self.base = self.runtime.count
        self.runtime.fail_at = None if fail_at is None else self.base + fail_at
        self.graph = None
        self.closing = False

    def capture(self):
        with self.session.capture() as graph:
            out = attn(attn(self.q, lens=[0]), lens=[0])
        return graph, out

    def run(self):
        self.graph, self.out = self.capture()
        self.graph.step({"lens": [2]})
        self.graph.update({"lens": [3]})
        self.graph.update({"lens": [5]})
        self.graph.replay()
        self.graph.step({"lens": [4]})
        self.closing = True
        self.graph.close()


def _primitives(order):
    program = Program(SimulatedBench(), None, order=order)
    program.run()
    return program.runtime.count - program.base


CASES = [
    pytest.param(order, fail_at, after, id=f"{type(order).__name__}-{'after' if after else 'before'}-{fail_at}")
    for order in (UpdateThenReplay(), ReplayThenUpdate())
    for fail_at in range(_primitives(order))
    for after in (False, True)
]


@pytest.mark.parametrize("lazy", [False, True], ids=["drained", "lazy"])
@pytest.mark.parametrize(("order", "fail_at", "after"), CASES)
def test_a_failure_at_any_primitive_leaves_nothing_behind(bench, order, fail_at, after, lazy) -> None:
    """Wherever the device fails, that error is raised, and what comes next works."""
    _fails_and_recovers(bench, fail_at, order=order, after=after, lazy=lazy)


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(CASES), seed=st.integers(1, 2**20))
@example(case=pytest.param(ReplayThenUpdate(), 50, True), seed=0)  # a signal came late, and a further replay passed
def test_recovery_does_not_depend_on_the_schedule(bench, case, seed) -> None:
    """Whatever the device does first, a failed graph heals."""
    order, fail_at, after = case.values
    _fails_and_recovers(bench, fail_at, order=order, after=after, lazy=True, seed=seed)


def _fails_and_recovers(bench, fail_at, **options) -> None:
    program = Program(bench, fail_at, **options)
    runtime = program.runtime
    stream = runtime.current_stream().stream_id
    with pytest.raises(InjectedFault) as caught:
        program.run()
    assert caught.value.index == program.base + fail_at
    assert runtime.current_stream().stream_id == stream
    assert _get_current_dispatch_mode_stack() == []
    assert not runtime.is_capturing()

    if program.closing:
        with pytest.raises(errors.GraphInvalidated, match="closing it failed"):
            program.graph.replay()
        program.graph.close()
    elif program.graph is not None:
        _heals(program)
    program.bystander.step({"lens": [6]})
    runtime.synchronize()
    assert torch.equal(program.seen, program.q + 120)

    graph, out = program.capture()
    for value in (5, 7):
        graph.step({"lens": [value]})
        runtime.synchronize()
        assert torch.equal(out, program.q + 20 * value)
    graph.close()


def _heals(program) -> None:
    """Show that the failed graph takes a complete update, and then computes right, step after step."""
    graph = program.graph
    graph.update({"lens": [8]})
    try:
        graph.replay()
    except errors.GraphNotArmed:  # the update fed a replay that was waiting
        graph.step({"lens": [8]})
    program.runtime.synchronize()
    assert torch.equal(program.out, program.q + 160)
    for value in (1, 9):
        graph.step({"lens": [value]})
        program.runtime.synchronize()
        assert torch.equal(program.out, program.q + 20 * value)
    graph.update({}, rest=KEEP)
    graph.close()
    program.runtime.synchronize()
