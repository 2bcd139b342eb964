"""Sessions: what a capture does, refuses and leaves behind."""

from __future__ import annotations

import contextlib
import threading
import warnings

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor

from npugraph_strategies import (
    GraphCaptureSession,
    HandlerRegistry,
    OutVariant,
    ReplayThenUpdate,
    UpdateParams,
    each,
    errors,
)
from npugraph_strategies.handlers import EmptyLike
from npugraph_strategies.runtimes import RecordingRuntime
from support.story import ATTN, PAGED, STORY, attn, paged, partly, picky, story_session


class Broken(UpdateParams):
    """A handler whose preparation raises."""

    def prepare_capture(self, call, runtime):  # noqa: ARG002 - a hook
        """Raise."""
        raise RuntimeError("no workspace")


def test_capture_records_handled_operators_in_order(bench, q) -> None:
    """Each handled operator becomes one record, in capture order."""
    out = torch.empty_like(q)
    with story_session(bench.runtime()).capture() as graph:
        attn(q, lens=[1])
        q * 2
        paged(q, torch.tensor([2], dtype=torch.int32), out)
    assert [(r.index, r.op, r.label) for r in graph.records] == [
        (0, "story::attn.out", "#0"),
        (1, "story::paged.default", "#1"),
    ]
    assert graph.params == ("lens", "other", "table", "context_lens")


def test_captured_work_does_not_run_before_the_replay(bench, q) -> None:
    """What a capture computes is there after the first replay."""
    out = torch.zeros_like(q)
    with story_session(bench.runtime()).capture() as graph:
        attn.out(q, lens=[1], out=out)
    assert not out.any()
    graph.step({"lens": [2]})
    assert torch.equal(out, q + 20)


def test_a_declined_call_passes_through_untouched(bench, q) -> None:
    """A handler that declines a call leaves no event, no group and no record."""

    class Declines(UpdateParams):
        def should_handle(self, call):
            return call.arguments["lens"] is not None

    runtime = RecordingRuntime(bench.runtime())
    session = GraphCaptureSession(HandlerRegistry.of(Declines(("story::attn.default",), "lens")), runtime=runtime)
    with session.capture() as graph:
        out = attn(q)
    assert graph.records == ()
    assert runtime.counts()["new_event"] == 0
    assert runtime.counts()["task_group_begin"] == 0
    graph.replay()
    assert torch.equal(out, q)


def test_the_skeleton_is_wait_reset_group(bench, q) -> None:
    """Every record is captured as event wait, event reset, group begin, group end."""
    runtime = RecordingRuntime(bench.runtime())
    with story_session(runtime).capture():
        attn(q, lens=[1])
    names = [name for name in runtime.names() if name != "new_stream"]
    assert names == [
        "new_graph",
        "graph.capture_begin",
        "new_event",
        "event.wait",
        "event.reset",
        "task_group_begin",
        "task_group_end",
        "graph.capture_end",
        "new_event",
    ]


def test_labels_are_module_paths(bench, q) -> None:
    """A record is labelled by the module it stands in, relative to the outermost, with a number."""

    class Attention(torch.nn.Module):
        def forward(self, x):
            return attn(attn(x, lens=[1]), lens=[1])

    net = torch.nn.Sequential(Attention(), torch.nn.Sequential(Attention()))
    with story_session(bench.runtime()).capture() as graph:
        net(q)
    assert [r.label for r in graph.records] == ["0#0", "0#1", "1.0#0", "1.0#1"]


def test_labels_may_be_given_by_the_caller(bench, q) -> None:
    """`label=` names records by their call."""
    with story_session(bench.runtime()).capture(label=lambda call: call.name.partition("::")[2]) as graph:
        attn(q, lens=[1])
        attn(q, lens=[1])
    assert [r.label for r in graph.records] == ["attn.default#0", "attn.default#1"]


def test_a_nested_capture_is_refused_and_the_outer_one_goes_on(bench, q) -> None:
    """A capture inside a capture is an error of its own; the outer capture is not harmed."""
    session = story_session(bench.runtime())
    with session.capture() as graph:
        out = attn(q, lens=[1])
        with pytest.raises(errors.NestedCapture), session.capture():
            pass
    graph.step({"lens": [3]})
    assert torch.equal(out, q + 30)


def test_an_empty_capture_is_refused(bench, q) -> None:
    """A capture that launched nothing is an error, and the next one works."""
    session = story_session(bench.runtime())
    with pytest.raises(errors.EmptyCapture), session.capture():
        pass
    with session.capture() as graph:
        attn(q, lens=[1])
    assert len(graph.records) == 1


def test_an_unknown_error_mode_is_refused_at_once(bench) -> None:
    """The capture mode is checked before anything is captured."""
    with (
        pytest.raises(ValueError, match="capture_error_mode"),
        story_session(bench.runtime()).capture(capture_error_mode="loose"),
    ):
        pass


def test_a_graph_of_a_failed_capture_says_so(bench, q) -> None:
    """When the block raises, its error goes on, and the graph says that it was not captured."""
    session = story_session(bench.runtime())
    with pytest.raises(KeyError, match="mine"), session.capture() as graph:
        attn(q, lens=[{}["mine"]])
    with pytest.raises(errors.GraphNotReady, match="its capture failed"):
        graph.replay()
    with session.capture() as again:
        out = attn(q, lens=[1])
    again.step({"lens": [4]})
    assert torch.equal(out, q + 40)


def test_a_graph_cannot_be_used_while_it_is_captured(bench, q) -> None:
    """Inside its own capture a graph refuses updates and replays."""
    with story_session(bench.runtime()).capture() as graph:
        attn(q, lens=[1])
        with pytest.raises(errors.GraphNotReady, match="being captured"):
            graph.update({"lens": [1]})
        with pytest.raises(errors.GraphNotReady, match="being captured"):
            graph.close()


def test_another_graph_cannot_be_used_inside_a_capture(bench, q) -> None:
    """A session never replays or updates inside a capture."""
    session = story_session(bench.runtime())
    with session.capture() as first:
        attn(q, lens=[1])
    with session.capture() as second:
        attn(q, lens=[1])
        with pytest.raises(errors.GraphInCapture):
            first.step({"lens": [1]})
    second.step({"lens": [1]})
    first.step({"lens": [1]})


def test_a_swallowed_failure_does_not_give_a_graph_with_a_hole(bench, q) -> None:
    """When a handled operator fails and the block goes on, the capture fails with the cause."""
    session = GraphCaptureSession(HandlerRegistry.of(Broken("story::attn", "lens")), runtime=bench.runtime())

    def program() -> None:
        with session.capture():
            q * 2
            with contextlib.suppress(RuntimeError):
                attn(q, lens=[1])

    with pytest.raises(errors.CaptureError, match="a handled operator failed") as caught:
        program()
    assert str(caught.value.__cause__) == "no workspace"


def test_preparation_fails_before_an_event_is_waited_for(bench, q) -> None:
    """A preparation that raises leaves no captured wait behind."""
    runtime = RecordingRuntime(bench.runtime())
    session = GraphCaptureSession(HandlerRegistry.of(Broken("story::attn", "lens")), runtime=runtime)
    with pytest.raises(RuntimeError, match="no workspace"), session.capture():
        attn(q, lens=[1])
    assert runtime.counts()["event.wait"] == 0


def test_two_sessions_never_see_each_other(bench, q) -> None:
    """Two sessions with different registries in one process record different operators."""
    runtime = bench.runtime()
    one = GraphCaptureSession(HandlerRegistry.of(ATTN), runtime=runtime)
    other = GraphCaptureSession(HandlerRegistry.of(PAGED), runtime=runtime)

    kept = torch.empty_like(q)
    with one.capture() as first:
        attn(q, lens=[1])
        paged(q, torch.tensor([0], dtype=torch.int32), kept)
    with other.capture() as second:
        attn(q, lens=[1])
        paged(q, torch.tensor([0], dtype=torch.int32), kept)
    assert [r.op for r in first.records] == ["story::attn.out"]
    assert [r.op for r in second.records] == ["story::paged.default"]


def test_what_allocates_its_result_is_refused_at_capture(bench, q) -> None:
    """An operator whose results are new memory cannot be updated: the capture says so, and what to do."""
    session = GraphCaptureSession(HandlerRegistry.of(UpdateParams("story::picky", "lens")), runtime=bench.runtime())
    with pytest.raises(errors.OutputsNotFixed, match="OutVariant"), session.capture():
        picky(q, lens=[1])


@pytest.mark.parametrize(
    ("handler", "accepted"),
    [
        (
            OutVariant(("story::partly.default", "story::partly.out"), "lens", outputs=(EmptyLike("out", like="q"),)),
            True,
        ),
        (UpdateParams("story::partly.out", "lens"), False),
        (OutVariant(("story::partly.default", "story::partly.default"), "lens"), False),
    ],
    ids=["declared out overload", "as it is called", "no out overload"],
)
def test_a_placeholder_is_allowed_for_a_result_of_a_declared_out_overload(bench, q, handler, accepted) -> None:
    """An out overload may return new memory beside what it was given, if its handler declares it as such."""
    session = GraphCaptureSession(HandlerRegistry.of(handler), runtime=bench.runtime())
    call = partly.out if "story::partly.out" in handler.ops else partly
    options = {"out": torch.empty_like(q)} if call is partly.out else {}
    if accepted:
        with session.capture() as graph:
            out, _ = call(q, lens=[1], **options)
        graph.step({"lens": [2]})
        assert torch.equal(out, q + 20)
    else:
        with pytest.raises(errors.OutputsNotFixed), session.capture():
            call(q, lens=[1], **options)


def test_a_misspelt_parameter_is_found_at_the_first_capture(bench, q) -> None:
    """A handler whose names are not the operator's is refused when its first call is captured, with a suggestion."""
    misspelt = OutVariant(ATTN.variants, "lenz", outputs=ATTN.outputs)
    session = GraphCaptureSession(HandlerRegistry.of(misspelt), runtime=bench.runtime())
    with pytest.raises(errors.RegistryMismatch, match="did you mean 'lens'"), session.capture():
        attn(q, lens=[1])


def test_a_host_value_that_the_capture_computes_is_refused(bench, q) -> None:
    """What is computed inside the capture has no content yet, so it cannot be a host value; a constant can."""
    on_device, constant = bench.tensor([1], dtype=torch.int32), torch.tensor([1], dtype=torch.int32)
    session = story_session(bench.runtime())
    out = torch.empty_like(q)
    with pytest.raises(errors.HostValueExpected, match="context_lens"), session.capture():
        paged(q, on_device * 2, out)
    with session.capture() as graph:
        paged(q, torch.tensor([1], dtype=torch.int32), out)
        paged(q, constant, out)
    assert [r.values["context_lens"].item() for r in graph.records] == [1, 1]


def test_a_tensor_subclass_is_taken_apart_before_it_is_captured(bench, q) -> None:
    """Handled operators on a wrapper subclass are recorded once for each tensor inside."""
    both = TwoTensor(q, q + 1)
    with story_session(bench.runtime()).capture() as graph:
        out = attn(both, lens=[1])
    graph.step({"lens": [2]})
    assert len(graph.records) == 2
    assert torch.equal(out.a, q + 20)
    assert torch.equal(out.b, q + 21)


def test_a_handler_that_raises_when_asked_does_not_leave_a_hole(bench, q) -> None:
    """A failing `should_handle` that the block swallows fails the capture."""

    class Unsure(UpdateParams):
        def should_handle(self, call):  # noqa: ARG002 - a hook
            raise LookupError("unsure")

    session = GraphCaptureSession(HandlerRegistry.of(Unsure("story::attn", "lens")), runtime=bench.runtime())

    def program() -> None:
        with session.capture():
            q * 2
            with contextlib.suppress(LookupError):
                attn(q, lens=[1])

    with pytest.raises(errors.CaptureError, match="a handled operator failed"):
        program()


def test_the_update_stream_cannot_capture(bench, q) -> None:
    """Capturing on the update stream is refused before anything is captured."""
    runtime = bench.runtime()
    session = story_session(runtime)
    with pytest.raises(errors.SharedStream), session.capture(stream=runtime.update_stream()):
        pass
    with session.capture():
        attn(q, lens=[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": ReplayThenUpdate}, "order must be an object with a method run"),
        ({"runtime": None}, "runtime must be an object with a method new_graph"),
    ],
)
def test_a_session_takes_instances(bench, options, message) -> None:
    """A class in place of an instance, or nothing, is refused when the session is made."""
    with pytest.raises(TypeError, match=message):
        GraphCaptureSession(STORY, **{"runtime": bench.runtime(), **options})


def test_a_label_must_be_a_string(bench, q) -> None:
    """A label function that returns something else is refused at the first record."""
    with (
        pytest.raises(TypeError, match="label must return a string"),
        story_session(bench.runtime()).capture(label=lambda _: None),
    ):
        attn(q, lens=[1])


def test_a_capture_leaves_the_callers_warning_filters_alone(bench, q) -> None:
    """A filter that is set inside the block stays; the session's own one goes."""
    with warnings.catch_warnings():
        before = list(warnings.filters)
        with story_session(bench.runtime()).capture():
            attn(q, lens=[1])
            warnings.filterwarnings("ignore", "mine")
        assert warnings.filters[1:] == before
        assert "mine" in warnings.filters[0][1].pattern


def test_a_session_needs_a_registry(bench) -> None:
    """A list of handlers is not a registry."""
    with pytest.raises(TypeError, match="HandlerRegistry"):
        GraphCaptureSession([ATTN], runtime=bench.runtime())


def test_validation_is_one_of_three(bench) -> None:
    """An unknown validation setting is refused."""
    with pytest.raises(ValueError, match="validation"):
        story_session(bench.runtime(), validation="maybe")


def test_captures_from_two_threads_exclude_each_other(bench, q) -> None:
    """Two threads that capture on one device both get complete graphs."""
    session = story_session(bench.runtime())
    graphs = {}
    inputs = [q + n for n in range(4)]

    def work(n: int) -> None:
        y = inputs[n]
        with session.capture(stream=session.runtime.new_stream()) as graph:
            for _ in range(5):
                y = attn(y, lens=[1])
        graphs[n] = (graph, y)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for n, (graph, out) in graphs.items():
        assert len(graph.records) == 5
        graph.step(each([{"lens": [i]} for i in range(5)]))
        session.runtime.synchronize()
        assert torch.equal(out, q + n + 100)


def test_compiled_code_is_captured_with_its_operators(bench, q) -> None:
    """A compiled module under the capture gives the eager result, with its handled operators recorded."""
    compiled = torch.compile(lambda x: attn(x * 2, lens=[1]) + 1, backend="eager")
    with story_session(bench.runtime()).capture() as graph:
        out = compiled(q)
    graph.step({"lens": [2]})
    assert len(graph.records) == 1
    assert torch.equal(out, q * 2 + 21)


def test_grad_mode_and_inference_mode_are_captured_alike(bench, q) -> None:
    """What grad mode the block runs in makes no difference to the result."""
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode(), story_session(bench.runtime()).capture() as graph:
            out = attn(q, lens=[1]) + 1
        graph.step({"lens": [2]})
        assert torch.equal(out, q + 21)


def test_out_and_default_overloads_are_both_served(bench, q) -> None:
    """A caller's own out tensor is written by the replay and returned by the capture."""
    mine = torch.zeros_like(q)
    with story_session(bench.runtime()).capture() as graph:
        returned = attn.out(q, lens=[1], out=mine)
    assert returned is mine
    graph.step({"lens": [5]})
    assert torch.equal(mine, q + 50)


def test_the_callers_host_values_are_not_used_after_the_capture(bench, q) -> None:
    """A list or host tensor that the caller changes after the call does not reach the graph."""
    lens, context = [1], torch.tensor([1], dtype=torch.int32)
    out = torch.empty_like(q)
    with story_session(bench.runtime()).capture() as graph:
        first = attn(q, lens=lens)
        paged(q, context, out)
    lens[0], context[0] = 9, 9
    del context
    graph.update(each([{"lens": [1]}, {"context_lens": [1]}]))
    graph.replay()
    assert torch.equal(first, q + 10)
    assert torch.equal(out, q + 10)


def test_picky_operator_failure_inside_the_group_is_the_error_one_sees(bench, q) -> None:
    """An operator that raises inside the group ends the group and the capture; the next capture works."""
    session = GraphCaptureSession(STORY, runtime=bench.runtime())
    with pytest.raises(RuntimeError, match="picky does not like 13"), session.capture():
        picky(q, lens=[13])
    with session.capture() as graph:
        out = picky(q, lens=[1])
    graph.step({"lens": [2]})
    assert torch.equal(out, q + 20)
