"""Law 7: any interleaving, any seed, any order: no hang, no lost event, no stale value."""

from __future__ import annotations

import threading

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npugraph_strategies import KEEP, ReplayThenUpdate, UpdateThenReplay, each
from npugraph_strategies.runtimes import RecordingRuntime
from support.story import attn, story_session

ORDERS = st.sampled_from([UpdateThenReplay(), ReplayThenUpdate()])
ACTIONS = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(["step", "update", "update+replay", "again"]), st.integers(0, 9)),
    max_size=25,
)


class Counter:
    """A graph whose state is the history of the values it was stepped with, each weighing half of the next."""

    def __init__(self, bench, session, records):
        self.state = bench.tensor([0.0])
        self.expected = torch.zeros(1)
        self.last = 0
        self.records = records
        with session.capture() as self.graph:
            y = torch.zeros_like(self.state)
            for _ in range(records):
                y = attn(y, lens=[0])
            self.state.mul_(0.5).add_(y)

    def act(self, action, value):
        if action == "update":
            self.graph.update({"lens": [value]})
            self.last = value
            return
        if action == "again":
            self.graph.update({}, rest=KEEP)
            self.graph.replay()
        elif action == "step":
            self.graph.step({"lens": [value]})
            self.last = value
        else:
            self.graph.update(each([{"lens": [value]}] * self.records))
            self.graph.replay()
            self.last = value
        self.expected.mul_(0.5).add_(10 * self.last * self.records)


@settings(max_examples=80, deadline=None)
@given(
    orders=st.lists(ORDERS, min_size=3, max_size=3),
    actions=ACTIONS,
    seed=st.integers(0, 2**20),
    lazy=st.sampled_from([None, 0, 1, 3]),
    shared=st.booleans(),
)
@example(
    orders=[ReplayThenUpdate()] * 3,
    actions=[(0, "step", 3), (1, "step", 4), (0, "step", 5)],
    seed=0,
    lazy=True,
    shared=True,
)
@example(
    orders=[UpdateThenReplay()] * 3,
    actions=[(0, "update+replay", 3), (0, "update+replay", 5)],
    seed=7,
    lazy=True,
    shared=True,
)
def test_graphs_on_one_device_never_see_stale_values(bench, orders, actions, seed, lazy, shared) -> None:
    """Several graphs, on one replay stream or several, each end with the history of their own values."""
    runtime = bench.runtime(seed=seed, lazy=lazy is not None, most_lazy_steps=lazy or 0)
    graphs = [Counter(bench, story_session(runtime, order=order), n + 1) for n, order in enumerate(orders)]
    streams = [runtime.new_stream() for _ in graphs]
    for which, action, value in actions:
        with runtime.stream(streams[0 if shared else which]):
            graphs[which].act(action, value)
    runtime.synchronize()
    assert [g.state.item() for g in graphs] == [g.expected.item() for g in graphs]


@settings(max_examples=15, deadline=None)
@given(order=ORDERS, seed=st.integers(0, 2**20))
def test_threads_with_a_graph_each_share_one_device(bench, order, seed) -> None:
    """Two threads step two graphs of one runtime; both histories are right."""
    runtime = bench.runtime(seed=seed, lazy=True)
    session = story_session(runtime, order=order)
    graphs = [Counter(bench, session, 2), Counter(bench, session, 1)]
    failures = []

    def work(counter, stream):
        try:
            with runtime.stream(stream):
                for value in range(10):
                    counter.act(("step", "update+replay", "again")[value % 3], value)
        except Exception as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    threads = [threading.Thread(target=work, args=(g, runtime.new_stream())) for g in graphs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    runtime.synchronize()
    assert [g.state.item() for g in graphs] == [g.expected.item() for g in graphs]


@settings(max_examples=40, deadline=None)
@given(order=ORDERS, actions=ACTIONS, seed=st.integers(0, 2**20))
def test_begin_and_end_are_balanced_in_every_trace(bench, order, actions, seed) -> None:
    """Law 9: groups and updates are never nested and always closed."""
    runtime = RecordingRuntime(bench.runtime(seed=seed))
    counter = Counter(bench, story_session(runtime, order=order), 2)
    for _, action, value in actions:
        counter.act(action, value)
    for kind in ("task_group", "task_update"):
        names = [name for name in runtime.names() if name.startswith(kind)]
        assert names[0::2] == [f"{kind}_begin"] * (len(names) // 2)
        assert names[1::2] == [f"{kind}_end"] * (len(names) // 2)
