"""Law 6: any sequence of updates, replays and steps gives, in order, what eager gives with the same values."""

from __future__ import annotations

import attrs
import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from npugraph_strategies import KEEP, ReplayThenUpdate, UpdateThenReplay, by_label, each, errors
from support.story import attn, paged, picky, story_session

OPS = ("attn", "out", "paged", "picky", "mul", "add_", "view", "state", "table")
LENS = {
    "lens": st.lists(st.integers(0, 9), min_size=1, max_size=3),
    "context_lens": st.lists(st.integers(0, 9), min_size=1, max_size=1),  # a host tensor keeps its shape
}
HANDLED = {"attn": "lens", "out": "lens", "paged": "context_lens", "picky": "lens", "table": "lens"}


@attrs.define
class World:
    """The tensors that a program uses; eager and graph have one each."""

    x: torch.Tensor
    state: torch.Tensor
    table: torch.Tensor
    out: torch.Tensor

    @classmethod
    def new(cls, bench) -> World:
        return cls(
            x=bench.tensor([0.0, 1.0, 2.0, 3.0]),
            state=bench.tensor([0.0] * 4),
            table=bench.tensor([1.0, 1.0]),
            out=bench.tensor([0.0] * 4),
        )


def run(program, world, values):
    """Run a program; `values` has one value for each handled operator in it."""
    handed = iter(values)
    y = world.x
    for op in program:
        if op == "attn":
            y = attn(y, lens=next(handed))
        elif op == "out":
            y = attn.out(y, lens=next(handed), out=torch.empty_like(y))
        elif op == "table":
            y = attn(y, lens=next(handed), table=world.table)
        elif op == "paged":
            paged(y, torch.tensor(next(handed), dtype=torch.int32), world.out)
            y = world.out + 0
        elif op == "picky":
            y = picky(y, lens=next(handed))
        elif op == "mul":
            y = y * 0.5
        elif op == "add_":
            y = (y + 1).add_(2)
        elif op == "view":
            y = y.view(2, 2).t().reshape(4)
        else:
            world.state.mul_(0.25).add_(y)
    world.state.mul_(0.25).add_(y)
    return y


class GraphEqualsEager(RuleBasedStateMachine):
    """A graph and its eager double, driven by the same values."""

    def __init__(self, bench):
        super().__init__()
        self.bench = bench

    @initialize(
        program=st.lists(st.sampled_from(OPS), min_size=1, max_size=7),
        order=st.sampled_from([UpdateThenReplay(), ReplayThenUpdate()]),
        lazy=st.booleans(),
        seed=st.integers(0, 2**16),
    )
    def capture(self, program, order, lazy, seed):
        self.program = program
        self.names = [HANDLED[op] for op in program if op in HANDLED]
        self.runtime = self.bench.runtime(seed=seed, lazy=lazy)
        self.device_world, self.eager_world = World.new(self.bench), World.new(self.bench)
        self.values = [[1] for _ in self.names]
        with story_session(self.runtime, order=order).capture() as self.graph:
            self.result = run(program, self.device_world, [list(v) for v in self.values])
        self.armed = not self.names
        self.replayed = False

    def _eager(self):
        self.expected = run(self.program, self.eager_world, self.values)
        self.replayed = True
        self.armed = not self.names

    def _routed(self, data):
        """Draw new values and one of the four ways to route them; return what to pass."""
        new = [data.draw(LENS[name]) for name in self.names]
        way = data.draw(st.sampled_from(["broadcast", "each", "label", "callable"]))
        if way == "broadcast":
            by_name = {name: data.draw(LENS[name]) for name in dict.fromkeys(self.names)}
            self.values = [by_name[name] for name in self.names]
            return by_name
        self.values = new
        if way == "each":
            return each([{n: v} for n, v in zip(self.names, new, strict=True)])
        if way == "label":
            return by_label({f"#{i}": {n: v} for i, (n, v) in enumerate(zip(self.names, new, strict=True))})
        return lambda record: {self.names[record.index]: new[record.index]}

    @rule(data=st.data())
    def step(self, data):
        self.graph.step(self._routed(data))
        self._eager()

    @rule(data=st.data())
    def update(self, data):
        self.graph.update(self._routed(data))
        self.armed = True

    @rule()
    def rearm(self):
        self.graph.update({}, rest=KEEP)
        self.armed = True

    @precondition(lambda self: self.names)
    @rule(data=st.data())
    def partial_step(self, data):
        i = data.draw(st.integers(0, len(self.names) - 1))
        self.values = [*self.values[:i], data.draw(LENS[self.names[i]]), *self.values[i + 1 :]]
        self.graph.step(by_label({f"#{i}": {self.names[i]: self.values[i]}}), rest=KEEP)
        self._eager()

    @rule()
    def replay(self):
        if self.armed:
            self.graph.replay()
            self._eager()
        else:
            with pytest.raises(errors.GraphNotArmed):
                self.graph.replay()

    @rule(name=st.sampled_from(["len", "q", "out", "query"]))
    def refused(self, name):
        with pytest.raises(errors.UnknownParameter):
            self.graph.step({name: [1]}, rest=KEEP)

    @rule(value=st.integers(-3, 3))
    def change_an_operand_in_place(self, value):
        self.runtime.synchronize()
        for world in (self.device_world, self.eager_world):
            world.x.add_(value)
            world.table.mul_(2)

    @rule()
    def compare(self):
        self.runtime.synchronize()
        if self.replayed:
            assert torch.equal(self.result, self.expected)

    @invariant()
    def armed_is_what_the_model_says(self):
        assert all(r.armed for r in self.graph.records) == self.armed

    def teardown(self):
        if hasattr(self, "graph"):
            self.graph.close()
            assert torch.equal(self.device_world.state, self.eager_world.state)
            assert torch.equal(self.device_world.out, self.eager_world.out)


def test_graph_equals_eager(bench) -> None:
    """A random program under random updates, replays and steps does what eager does, in order."""
    run_state_machine_as_test(
        lambda: GraphEqualsEager(bench),
        settings=settings(
            max_examples=60, stateful_step_count=15, deadline=None, suppress_health_check=[HealthCheck.too_slow]
        ),
    )
