"""Attaching: recording inside a capture that the caller owns."""

from __future__ import annotations

import contextlib

import pytest
import torch

from npugraph_strategies import errors
from npugraph_strategies.runtimes import RecordingRuntime
from support.story import attn, story_session


@contextlib.contextmanager
def callers_capture(runtime, native):
    """Capture as a caller would who owns graph and stream."""
    with runtime.stream(runtime.capture_stream()):
        native.capture_begin()
        try:
            yield
        finally:
            native.capture_end()


@pytest.mark.parametrize("wrap", [lambda runtime: runtime, RecordingRuntime], ids=["bare", "recorded"])
def test_updates_and_replays_go_through_the_attached_graph(bench, q, wrap) -> None:
    """After the caller's capture has ended, the attached graph is updated and replayed like any other."""
    runtime = wrap(bench.runtime())
    native = runtime.new_graph("mine")
    with callers_capture(runtime, native), story_session(runtime).attach(native, name="attached") as graph:
        out = attn(q, lens=[1])
    assert [r.label for r in graph.records] == ["#0"]
    for value in (2, 3):
        graph.step({"lens": [value]})
        assert torch.equal(out, q + 10 * value)


def test_an_attached_graph_cannot_be_used_before_the_callers_capture_ends(bench, q) -> None:
    """Between the end of attaching and the end of the capture the graph refuses updates."""
    runtime = bench.runtime()
    native = runtime.new_graph()
    with callers_capture(runtime, native):
        with story_session(runtime).attach(native) as graph:
            out = attn(q, lens=[1])
        with pytest.raises(errors.GraphInCapture):
            graph.step({"lens": [1]})
    graph.step({"lens": [2]})
    assert torch.equal(out, q + 20)


def test_closing_an_attached_graph_leaves_the_callers_alone(bench, q) -> None:
    """The caller's graph is not reset by `close`: it is the caller's to destroy."""
    runtime = RecordingRuntime(bench.runtime())
    native = runtime.new_graph()
    with callers_capture(runtime, native), story_session(runtime).attach(native) as graph:
        attn(q, lens=[1])
    graph.step({"lens": [2]})
    graph.close()
    assert runtime.counts()["graph.reset"] == 0
    native.reset()


def test_attaching_outside_a_capture_is_refused(bench) -> None:
    """Without a capture in this thread there is nothing to attach to."""
    runtime = bench.runtime()
    with (
        pytest.raises(errors.AttachRefused, match="not being captured"),
        story_session(runtime).attach(runtime.new_graph()),
    ):
        pass


def test_attaching_inside_a_sessions_capture_is_refused(bench, q) -> None:
    """Two sessions would record the same calls."""
    runtime = bench.runtime()
    session = story_session(runtime)
    with session.capture() as graph:
        out = attn(q, lens=[1])
        with pytest.raises(errors.AttachRefused, match="recording already"), session.attach(runtime.new_graph()):
            pass
    graph.step({"lens": [1]})
    assert torch.equal(out, q + 10)


def test_attaching_to_something_else_is_refused(bench, q) -> None:
    """Only a graph of the device can be attached to."""
    runtime = bench.runtime()
    native = runtime.new_graph()
    with callers_capture(runtime, native):
        attn(q, lens=[1])
        with pytest.raises(errors.AttachRefused, match="given a dict"), story_session(runtime).attach({}):
            pass


def test_a_failure_inside_attach_leaves_the_callers_capture_going(bench, q) -> None:
    """When the attached block raises, only the mode is taken away."""
    runtime = bench.runtime()
    native = runtime.new_graph()
    with callers_capture(runtime, native):
        with pytest.raises(ZeroDivisionError), story_session(runtime).attach(native) as graph:
            attn(q, lens=[1 // 0])
        q * 2
    with pytest.raises(errors.GraphNotReady, match="its capture failed"):
        graph.replay()
