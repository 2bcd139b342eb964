"""Laws 7 and 8 together: random programs over several graphs, streams and runtimes of one device, with failures.

Whatever fails and whenever, no other graph hangs or computes with a stale value, and the failed one heals.
"""

from __future__ import annotations

import attrs
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npugraph_strategies import KEEP, ReplayThenUpdate, UpdateThenReplay, by_label, errors
from npugraph_strategies.runtimes import FaultyRuntime, InjectedFault
from support.story import attn, story_session

ORDERS = st.sampled_from([UpdateThenReplay(), ReplayThenUpdate()])
ACTIONS = ("step", "update", "part of an update", "part of a step", "replay", "keep")


@attrs.frozen
class Move:
    """One call: on which graph and stream, what, with which value, failing at which primitive from here, if any."""

    graph: int
    stream: int
    action: str
    value: int
    fault: int | None


MOVES = st.builds(
    Move,
    graph=st.integers(0, 2),
    stream=st.integers(0, 1),
    action=st.sampled_from(ACTIONS),
    value=st.integers(1, 9),
    fault=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 6)),
)


class Model:
    """A graph whose state is the history of its values, and what that state should be."""

    def __init__(self, bench, runtime, order, records):
        self.runtime = runtime
        self.values = [0] * records
        self.state = bench.tensor([0.0])
        self.expected = torch.zeros(1)
        self.armed = not records
        self.failed = False
        with story_session(runtime, order=order).capture() as self.graph:
            y = torch.zeros_like(self.state)
            for _ in range(records):
                y = attn(y, lens=[0])
            self.state.mul_(0.5).add_(y)

    def play(self, move):
        """Make the move, on the graph and on the model."""
        value, count = move.value, len(self.values)
        if move.action == "keep":
            self.graph.update({}, rest=KEEP)
            self.armed = True
        elif move.action == "replay":
            self._replay()
        elif move.action.startswith("part of") and count:
            at = value % count
            call = self.graph.step if move.action.endswith("step") else self.graph.update
            call(by_label({f"#{at}": {"lens": [value]}}), rest=KEEP)
            self.values[at] = value
            self._played(replayed=move.action.endswith("step"))
        elif move.action in {"step", "update"}:
            call = self.graph.step if move.action == "step" else self.graph.update
            call({"lens": [value]} if count else {})
            self.values = [value] * count
            self._played(replayed=move.action == "step")

    def _replay(self):
        try:
            self.graph.replay()
        except errors.GraphNotArmed:
            assert not self.armed
        else:
            assert self.armed
            self._played(replayed=True)

    def _played(self, *, replayed):
        self.armed = not replayed or not self.values
        if replayed:
            self.expected.mul_(0.5).add_(10 * sum(self.values))

    def heal(self, value):
        """Take a complete update, and start the model anew from what the failure left."""
        self.graph.update({"lens": [value]} if self.values else {})
        self.runtime.synchronize()
        self.values = [value] * len(self.values)
        self.expected, self.armed, self.failed = self.state.cpu().clone(), self.graph_armed, False

    @property
    def graph_armed(self):
        """Whether the graph says that it can be replayed."""
        return all(record.armed for record in self.graph.records)


def step(graph, stream, value, fault=None, action="step"):
    """Write a move shortly."""
    return Move(graph, stream, action, value, fault)


@settings(max_examples=150, deadline=None)
@given(
    orders=st.lists(ORDERS, min_size=3, max_size=3),
    moves=st.lists(MOVES, max_size=14),
    seed=st.integers(0, 2**20),
    most_lazy_steps=st.sampled_from([0, 0, 1, 3]),
    consumes=st.booleans(),
    after=st.booleans(),
    closing=st.booleans(),
)
@example(  # a replay left waiting by a failed step held up the other graph, and then its own cure
    orders=[ReplayThenUpdate()] * 3,
    moves=[step(1, 0, 1), step(2, 0, 1), step(1, 0, 2, fault=5), step(2, 0, 2), step(2, 0, 3)],
    seed=0,
    most_lazy_steps=3,
    consumes=True,
    after=False,
    closing=False,
)
@example(  # after a fence that could not be waited for, signals for two replays collapsed
    orders=[ReplayThenUpdate()] * 3,
    moves=[step(2, 0, 1), step(2, 0, 2, fault=0)],
    seed=1,
    most_lazy_steps=0,
    consumes=True,
    after=False,
    closing=True,
)
@example(  # a gate that was used again let a replay pass, or nobody
    orders=[UpdateThenReplay()] * 3,
    moves=[step(1, n % 2, n + 1, action="update" if n % 4 else "step") for n in range(14)],
    seed=20041,
    most_lazy_steps=0,
    consumes=True,
    after=False,
    closing=False,
)
def test_failures_are_contained(bench, orders, moves, seed, most_lazy_steps, consumes, after, closing) -> None:
    """Every graph that did not fail has the history of its own values; those that failed can be used again."""
    bare = bench.runtimes(2, seed=seed, lazy=True, most_lazy_steps=most_lazy_steps, wait_consumes=consumes)
    runtimes = [FaultyRuntime(runtime, fail_at=None, after=after) for runtime in bare]
    models = [Model(bench, runtimes[n % 2], order, n) for n, order in enumerate(orders)]
    streams = [bare[0].new_stream() for _ in range(2)]
    for move in moves:
        model = models[move.graph]
        model.runtime.fail_at = None if move.fault is None else model.runtime.count + move.fault
        try:
            with model.runtime.stream(streams[move.stream]):
                if model.failed:
                    model.heal(move.value)
                else:
                    model.play(move)
        except InjectedFault:
            model.failed = True
        model.runtime.fail_at = None
    if closing:
        for model in models:
            model.graph.close()
    bare[0].synchronize()
    assert [m.state.item() for m in models if not m.failed] == [m.expected.item() for m in models if not m.failed]
