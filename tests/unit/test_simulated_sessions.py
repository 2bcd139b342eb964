"""Sessions and graphs where only a simulated device shows it: small limits, tasks that can be counted, any shape."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies import GraphCaptureSession, ReplayThenUpdate, UpdateThenReplay, errors, reference
from npugraph_strategies.handlers import ATTENTION
from npugraph_strategies.runtimes import Limits, RecordingRuntime, SimulatedDevice, SimulatedRuntime
from support.families import paged as paged_call
from support.story import attn, story_session

ORDERS = pytest.mark.parametrize(
    "order", [UpdateThenReplay(), ReplayThenUpdate()], ids=["update-first", "replay-first"]
)


def test_a_capture_of_views_is_empty(q) -> None:
    """A capture whose operators launch no task is refused as one without operators is."""
    with pytest.raises(errors.EmptyCapture), story_session(SimulatedRuntime()).capture():
        q.view(3, 1)


@ORDERS
def test_many_updates_without_a_replay_hold_few_events(q, order) -> None:
    """Updating again and again before a replay stays right, and the number of events bounded."""
    runtime = SimulatedRuntime(SimulatedDevice(lazy=True, limits=Limits(events=80)))
    with story_session(runtime, order=order).capture() as graph:
        out = attn(q, lens=[1])
    for value in range(200):
        graph.update({"lens": [value]})
        if value % 50 == 0:
            graph.replay()
            graph.update({"lens": [value]})
    graph.replay()
    runtime.synchronize()
    assert torch.equal(out, q + 1990)


def test_records_share_a_workspace_that_grows() -> None:
    """Records of one handler on one stream share the workspace that an update made, and the next one reuses it."""
    reference.install()
    call = paged_call([1, 1], columns=8, block_size=1)
    session = GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime())
    with session.capture() as graph:
        for _ in range(4):
            call()
    graph.step({"context_lens": [8, 8]})
    held = graph.memory_report().held
    assert held > 0
    assert len({id(r.arguments["workspace"]) for r in graph.records}) == 1
    graph.step({"context_lens": [7, 8]})
    assert graph.memory_report().held == held


def test_a_session_uses_one_update_stream_for_all_its_graphs(q) -> None:
    """Fifty graphs of one runtime make two streams: one to capture, one to update."""
    runtime = RecordingRuntime(SimulatedRuntime(SimulatedDevice(limits=Limits(streams=60))))
    session = story_session(runtime)
    graphs = []
    for n in range(50):
        with session.capture() as graph:
            out = attn(q, lens=[1])
        graph.step({"lens": [n]})
        assert torch.equal(out, q + 10 * n)
        graphs.append(graph)
    assert runtime.counts()["new_stream"] == 0


def test_running_out_of_events_fails_the_capture_and_nothing_else(q) -> None:
    """When events run out, the capture raises a resource error; a smaller one then works."""
    runtime = SimulatedRuntime(SimulatedDevice(limits=Limits(events=4)))
    session = story_session(runtime)
    with pytest.raises(errors.ResourceExhausted, match="event"), session.capture():
        [attn(q, lens=[1]) for _ in range(5)]
    with session.capture() as graph:
        out = attn(q, lens=[1])
    graph.step({"lens": [7]})
    assert torch.equal(out, q + 70)
