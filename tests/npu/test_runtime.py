"""`NpuRuntime` on torch_npu as it is: what its primitives rely on."""

from __future__ import annotations

import threading

import pytest
import torch

from npugraph_strategies import errors
from support.story import attn, story_session


@pytest.fixture
def runtime(bench):
    return bench.runtime()


def captured(runtime, run):
    """Capture what `run` does; return the graph and what it returned."""
    graph = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        result = run(graph)
        graph.capture_end()
    return graph, result


def test_what_a_capture_allocates_lies_in_the_graphs_pool(runtime, q) -> None:
    """Memory is told apart during the capture, and after it; so is another graph's."""
    graph, (inside, during) = captured(
        runtime, lambda g: ((y := q + 1), [runtime.in_pool(g, y), runtime.in_pool(g, q)])
    )
    other, _ = captured(runtime, lambda _: q * 2)
    assert during == [True, False]
    assert [runtime.in_pool(graph, t) for t in (inside, q, q + 1)] == [True, False, False]
    assert not runtime.in_pool(other, inside)


def test_graphs_that_share_a_pool_share_the_answer(runtime, q) -> None:
    """The pool decides, not the graph."""
    first, y = captured(runtime, lambda _: q + 1)
    second = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        second.capture_begin(pool=first.pool())
        z = q + 2
        assert runtime.in_pool(second, z)
        second.capture_end()
    assert runtime.in_pool(first, z)
    assert runtime.in_pool(second, y)


def test_a_weak_view_keeps_the_conjugate_and_negative_bits(bench, runtime) -> None:
    """A view whose values are those of its memory conjugated, or negated, stays one."""
    number = bench.tensor([1.0 + 2.0j, 3.0 - 1.0j])
    for tensor in (number, number.conj(), number.conj().imag):
        view = runtime.weak_view(tensor)
        assert view.data_ptr() == tensor.data_ptr()
        assert torch.equal(view.cpu(), tensor.cpu())


def test_a_thread_that_never_saw_the_device_can_use_it(runtime, q) -> None:
    """A runtime enters its device from any thread, a fresh one included."""
    found = []

    def work() -> None:
        session = story_session(runtime)
        with session.capture(stream=runtime.new_stream()) as graph:
            out = attn(q, lens=[1])
        graph.step({"lens": [2]})
        graph.close()
        found.append(out.tolist())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [(q + 20).tolist()]


def test_a_graph_of_torch_npus_is_attached_to(runtime, q) -> None:
    """Inside ``torch.npu.graph`` records are kept, updated and replayed through ours."""
    native = torch.npu.NPUGraph()
    with torch.npu.graph(native), story_session(runtime).attach(native) as graph:
        out = attn(q * 2, lens=[1])
    for value in (2, 3):
        graph.step({"lens": [value]})
        assert torch.equal(out, q * 2 + 10 * value)
    assert graph.bindings() == ()  # the product was allocated in the capture


def test_a_graph_that_dispatches_by_itself_is_refused(runtime, q) -> None:
    """With ``auto_dispatch_capture`` torch_npu would record the same calls."""
    native = torch.npu.NPUGraph()
    with torch.npu.graph(native, auto_dispatch_capture=True):
        q * 2
        with pytest.raises(errors.AttachRefused, match="dispatches"), story_session(runtime).attach(native):
            pass


def test_a_refused_second_capture_leaves_the_first_one_whole(runtime, q) -> None:
    """Beginning on a stream that captures is answered before anything is synchronised."""

    def run(_):
        with pytest.raises(errors.DeviceError, match="107027"):
            runtime.new_graph().capture_begin()
        return q + 1

    graph, y = captured(runtime, run)
    graph.replay()
    assert torch.equal(y, q + 1)


def test_a_graph_captured_in_inference_mode_is_updated_anywhere(runtime, q) -> None:
    """What was allocated in inference mode may be written to in it only: the update sees to that."""
    with torch.inference_mode(), story_session(runtime).capture() as graph:
        out = attn(q, lens=[1])
    assert out.is_inference()
    graph.step({"lens": [4]})
    assert torch.equal(out, q + 40)
