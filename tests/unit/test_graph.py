"""Graphs: updates, replays, steps, and what each refuses before the device is touched."""

from __future__ import annotations

import gc
import threading
import warnings

import numpy as np
import pytest
import torch

from npugraph_strategies import (
    KEEP,
    GraphCaptureSession,
    HandlerRegistry,
    ReplayThenUpdate,
    UpdateThenReplay,
    by_label,
    each,
    errors,
)
from npugraph_strategies.runtimes import (
    FaultyRuntime,
    InjectedFault,
    RecordingRuntime,
)
from support.story import ATTN, STORY, attn, paged, picky, story_session

ORDERS = pytest.mark.parametrize(
    "order", [UpdateThenReplay(), ReplayThenUpdate()], ids=["update-first", "replay-first"]
)


def captured(q, session, **lens):
    """Capture one attention call on `q` per name, labelled by it; return the graph and the outputs by name."""
    outputs = {}
    names = iter(lens)
    with session.capture(label=lambda _: next(names)) as graph:
        for name, value in lens.items():
            outputs[name] = attn(q, lens=value)
    return graph, outputs


@ORDERS
def test_steps_follow_each_other_without_draining(bench, q, order) -> None:
    """Two updates and replays in a row, on streams that run late, give each its own value."""
    runtime = bench.runtime(lazy=True, seed=5)
    session = story_session(runtime, order=order)
    history = bench.tensor(0.0)
    with session.capture() as graph:
        history.mul_(100).add_(attn(torch.zeros_like(q), lens=[0])[0])
    graph.step({"lens": [3]})
    graph.step({"lens": [5]})
    runtime.synchronize()
    assert history.item() == 30 * 100 + 50


def test_update_and_replay_can_be_called_apart(bench, q) -> None:
    """`update` then `replay` is what `step` does."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1])
    graph.update({"lens": [3]})
    graph.replay()
    assert torch.equal(out["a"], q + 30)


def test_a_second_replay_is_refused_until_armed_again(bench, q) -> None:
    """A replay consumes the update; re-arming uses the last values."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1])
    graph.step({"lens": [3]})
    with pytest.raises(errors.GraphNotArmed, match="a#0"):
        graph.replay()
    graph.update({}, rest=KEEP)
    graph.replay()
    assert torch.equal(out["a"], q + 30)


def test_the_last_of_two_updates_counts(bench, q) -> None:
    """Two updates before one replay leave the second's values, and arm once."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1])
    graph.update({"lens": [3]})
    graph.update({"lens": [4]})
    graph.replay()
    assert torch.equal(out["a"], q + 40)
    with pytest.raises(errors.GraphNotArmed):
        graph.replay()


def test_values_are_sticky(bench, q) -> None:
    """A parameter that is not mentioned keeps its last value."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1])
    graph.step({"other": [1]})
    assert torch.equal(out["a"], q + 1010)
    graph.step({"lens": [2]})
    assert torch.equal(out["a"], q + 1020)
    assert dict(graph.records[0].values) == {"lens": (2,), "other": (1,), "table": None}


def test_a_parameter_left_at_its_default_at_capture_can_be_updated(bench, q) -> None:
    """Arguments that the dispatcher drops, because they equal their default, are updated all the same."""
    session = story_session(bench.runtime())
    with session.capture() as graph:
        out = attn(q)
    graph.step({"lens": [2], "other": [3]})
    assert torch.equal(out, q + 3020)


def test_each_pairs_up_in_capture_order(bench, q) -> None:
    """`each` gives the n-th mapping to the n-th record."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1], b=[1], c=[1])
    graph.step(each([{"lens": [1]}, {"lens": [2]}, {"lens": [3]}]))
    assert [out[n][0].item() for n in "abc"] == [10, 20, 30]


def test_by_label_routes_whatever_the_order(bench, q) -> None:
    """`by_label` reaches records by path or whole label, in any order."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1], b=[1], c=[1])
    graph.step(by_label({"c": {"lens": [3]}, "a#0": {"lens": [1]}, "b*": {"lens": [2]}}))
    assert [out[n][0].item() for n in "abc"] == [10, 20, 30]


def test_by_label_may_keep_records(bench, q) -> None:
    """A pattern may say KEEP; a record that another pattern gives values takes those."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1], b=[2], c=[3])
    graph.step(by_label({"*": KEEP, "b": {"lens": [7]}}))
    assert [out[n][0].item() for n in "abc"] == [10, 70, 30]


def test_a_callable_is_asked_for_each_record(bench, q) -> None:
    """A callable gets the record and returns its values, or KEEP."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1], b=[1])
    graph.step(lambda record: {"lens": [record.index + 5]} if record.label == "b#0" else KEEP)
    assert [out[n][0].item() for n in "ab"] == [10, 60]


def test_mixed_operators_are_routed_by_name(bench, q) -> None:
    """A broadcast reaches those records that declare the name."""
    out = torch.empty_like(q)
    with story_session(bench.runtime()).capture() as graph:
        first = attn(q, lens=[1])
        paged(q, torch.tensor([1], dtype=torch.int32), out)
    graph.step({"lens": [2], "context_lens": [3]})
    assert torch.equal(first, q + 20)
    assert torch.equal(out, q + 30)
    with pytest.raises(errors.MissingValues, match="#1"):
        graph.step({"lens": [2]})
    graph.step({"lens": [4]}, rest=KEEP)
    assert torch.equal(first, q + 40)
    assert torch.equal(out, q + 30)


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"lenz": [1]}, errors.UnknownParameter),
        ({"q": torch.ones(3)}, errors.UnknownParameter),
        ({}, errors.MissingValues),
        (each([{"lens": [1]}]), errors.WrongCount),
        (each([{"lens": [1]}, {}]), errors.MissingValues),
        (each([{"lens": [1]}, {"context_lens": [1]}]), errors.UnknownParameter),
        (by_label({"nowhere": {"lens": [1]}}), errors.UnknownLabel),
        (by_label({"*": {"lens": [1]}, "a": {"lens": [2]}}), errors.AmbiguousUpdate),
        (by_label({"a": {"lens": [1]}}), errors.MissingValues),
        (lambda _: {"nope": 1}, errors.UnknownParameter),
        ({"lens": [1.5]}, errors.InvalidValue),
        ({"lens": "ab"}, errors.InvalidValue),
        ({"lens": [True]}, errors.InvalidValue),
        ({"table": torch.ones(3)}, errors.InvalidValue),
        ([{"lens": [1]}], TypeError),
    ],
)
def test_bad_values_are_refused_before_the_device_is_touched(bench, q, values, error) -> None:
    """Each kind of bad update is its own error, issues no primitive, and the next correct call works."""
    runtime = RecordingRuntime(bench.runtime())
    graph, out = captured(q, story_session(runtime), a=[1], b=[1])
    graph.step({"lens": [2]})
    runtime.clear()
    for call in (graph.update, graph.step):
        with pytest.raises(error):
            call(values)
    assert runtime.primitives == ()
    assert [dict(r.values)["lens"] for r in graph.records] == [(2,), (2,)]
    graph.step({"lens": [7]})
    assert torch.equal(out["b"], q + 70)


def test_values_are_snapshots(bench, q) -> None:
    """The caller may change its list the next moment; one list given for many records is not shared."""
    graph, out = captured(q, story_session(bench.runtime(lazy=True)), a=[1], b=[1])
    value = [3]
    graph.update({"lens": value})
    value[0] += 1
    graph.replay()
    graph.close()
    assert torch.equal(out["a"], q + 30)
    assert torch.equal(out["b"], q + 30)


def test_an_unchanged_value_only_signals(bench, q) -> None:
    """A step with the values that stand issues no task update."""
    runtime = RecordingRuntime(bench.runtime())
    graph, out = captured(q, story_session(runtime), a=[1], b=[1])
    graph.step({"lens": [2]})
    runtime.clear()
    graph.step({"lens": [2]})
    assert runtime.counts()["task_update_begin"] == 0
    assert runtime.counts()["event.record"] == 3  # two records, one fence
    assert torch.equal(out["a"], q + 20)


def test_the_first_update_with_the_captured_values_is_right_although_the_callers_tensor_died(bench, q) -> None:
    """An unchanged host tensor still has its captured value after the caller's own is gone."""
    out = torch.empty_like(q)
    with story_session(bench.runtime()).capture() as graph:
        paged(q, torch.tensor([4], dtype=torch.int32), out)
    gc.collect()
    graph.step({"context_lens": [4]})
    assert torch.equal(out, q + 40)


@ORDERS
def test_an_unhandled_graph_replays_freely(bench, q, order) -> None:
    """A graph without records needs no update, and refuses one that is not empty."""
    session = story_session(bench.runtime(), order=order)
    with session.capture() as graph:
        out = q * 3
    graph.replay()
    graph.replay()
    graph.update({})
    graph.step({})
    assert torch.equal(out, q * 3)
    with pytest.raises(errors.UnknownParameter, match="no captured operator has a handler"):
        graph.update({"lens": [1]})


def test_a_rebind_uses_another_tensor_of_the_same_form(bench, q) -> None:
    """A declared device tensor can be exchanged; the graph follows the new one and lets go of the old."""
    first, second = bench.tensor([1.0]), bench.tensor([5.0])
    with story_session(bench.runtime()).capture() as graph:
        out = attn(q, table=first)
    graph.step({"table": second})
    assert torch.equal(out, q + 5)
    second.fill_(7)
    del first
    gc.collect()
    graph.update({}, rest=KEEP)
    graph.replay()
    assert torch.equal(out, q + 7)
    del second
    gc.collect()
    with pytest.raises(errors.StaleBinding, match="table"):
        graph.update({}, rest=KEEP)


def test_an_operand_is_not_kept_alive_and_its_death_is_noticed(bench, q) -> None:
    """The caller's tensors are used weakly: their death refuses updates and replays, naming them."""
    q = bench.tensor([0.0, 1.0, 2.0, 3.0])
    with story_session(bench.runtime()).capture() as graph:
        attn(q, lens=[1])
    graph.update({"lens": [1]})
    del q
    gc.collect()
    for call in (graph.replay, lambda: graph.update({"lens": [1]}), lambda: graph.step({"lens": [1]}), graph.verify):
        with pytest.raises(errors.StaleBinding, match=r"'q' of story::attn\.default"):
            call()


def test_intermediates_belong_to_the_graph(bench, q) -> None:
    """Tensors made inside the capture may die in Python; the graph still computes with them."""
    weight = torch.full_like(q, 2.0)
    with story_session(bench.runtime()).capture() as graph:
        out = attn(attn(q * weight, lens=[1]) + 1, lens=[1])
    gc.collect()
    assert graph.bindings() == ()
    graph.step(each([{"lens": [2]}, {"lens": [3]}]))
    assert torch.equal(out, q * 2 + 51)


def test_a_slice_of_a_living_tensor_is_alive(bench) -> None:
    """Liveness is the storage's: a view that died while its base lives is no reason to refuse."""
    base = bench.tensor([0.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    with story_session(bench.runtime()).capture() as graph:
        out = attn(base[2:5], lens=[1])
    gc.collect()
    graph.step({"lens": [2]})
    assert torch.equal(out, base[2:5] + 20)


def test_watched_modules_are_verified(bench, q) -> None:
    """`verify` notices that a watched module's parameter was exchanged."""
    net = torch.nn.Linear(3, 3).to(bench.device)
    with torch.no_grad(), story_session(bench.runtime()).capture(watch=net) as graph:
        attn(net(q), lens=[1])
    graph.verify()
    net.weight = torch.nn.Parameter(torch.zeros_like(net.weight))
    with pytest.raises(errors.StaleBinding, match="weight"):
        graph.verify()


def test_watched_modules_are_not_kept_alive(bench, q) -> None:
    """Watching a module does not own it; its death is noticed."""
    net = torch.nn.Linear(3, 3).to(bench.device)
    with torch.no_grad(), story_session(bench.runtime()).capture(watch=[net]) as graph:
        attn(net(q), lens=[1])
    del net
    gc.collect()
    with pytest.raises(errors.StaleBinding, match=r"weight.*Linear.*freed"):
        graph.verify()


def test_an_invalidated_graph_refuses_everything_but_close(bench, q) -> None:
    """`invalidate` gives its reason to whoever uses the graph afterwards."""
    graph, _ = captured(q, story_session(bench.runtime()), a=[1])
    graph.invalidate("the weights were reloaded")
    for call in (graph.replay, lambda: graph.update({"lens": [1]}), lambda: graph.step({"lens": [1]})):
        with pytest.raises(errors.GraphInvalidated, match="weights were reloaded"):
            call()
    graph.close()


def test_a_closed_graph_refuses_everything_but_close(bench, q) -> None:
    """After `close` every use is an error of its own; closing again is allowed."""
    graph, out = captured(q, story_session(bench.runtime()), a=[1])
    with graph:
        graph.step({"lens": [2]})
    assert graph.closed
    graph.close()
    with pytest.raises(errors.GraphClosed), graph:
        pass
    for call in (
        graph.replay,
        lambda: graph.update({"lens": [1]}),
        lambda: graph.step({"lens": [1]}),
        lambda: graph.invalidate("x"),
    ):
        with pytest.raises(errors.GraphClosed):
            call()
    assert torch.equal(out["a"], q + 20)


def test_close_waits_for_the_last_replay(bench, q) -> None:
    """On streams that run late, the result is there once the graph is closed."""
    graph, out = captured(q, story_session(bench.runtime(lazy=True)), a=[1])
    graph.step({"lens": [2]})
    graph.close()
    assert torch.equal(out["a"], q + 20)


def test_replaying_on_the_update_stream_is_refused(bench, q) -> None:
    """Updates and replays on one stream would hang, and are refused."""
    runtime = bench.runtime()
    graph, out = captured(q, story_session(runtime), a=[1])
    with runtime.stream(runtime.update_stream()), pytest.raises(errors.SharedStream):
        graph.step({"lens": [1]})
    graph.step({"lens": [2]})
    assert torch.equal(out["a"], q + 20)


@ORDERS
def test_a_failing_operator_poisons_and_a_complete_update_heals(bench, q, order) -> None:
    """When the device step fails midway, replay is refused; the next complete update heals the graph."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=["task_update_begin"])
    session = GraphCaptureSession(STORY, runtime=faulty, order=order)
    with session.capture() as graph:
        first, second = attn(q, lens=[1]), picky(q, lens=[1])
    graph.step({"lens": [2]})
    faulty.fail_at = faulty.count + 1
    with pytest.raises(InjectedFault):
        graph.step({"lens": [5]})
    with pytest.raises(errors.GraphPoisoned, match="injected fault"):
        graph.replay()
    with pytest.raises(errors.MissingValues):
        graph.update({})
    graph.step({"lens": [6]})
    assert torch.equal(first, q + 60)
    assert torch.equal(second, q + 60)
    graph.step({"lens": [7]})
    assert torch.equal(first, q + 70)


def test_the_error_says_when_a_running_replay_is_garbage(bench, q) -> None:
    """In replay-then-update order a failed update tells that the launched replay's result is not to be used."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=["task_update_end"])
    graph, out = captured(q, story_session(faulty, order=ReplayThenUpdate()), a=[1])
    faulty.fail_at = 0
    with pytest.raises(InjectedFault) as caught:
        graph.step({"lens": [5]})
    if hasattr(caught.value, "__notes__"):
        assert "computes garbage" in caught.value.__notes__[0]
    graph.update({"lens": [8]})
    graph.replay()
    assert torch.equal(out["a"], q + 80)
    graph.step({"lens": [9]})
    assert torch.equal(out["a"], q + 90)


def test_a_failed_replay_first_step_leaves_no_replay_waiting(bench, q) -> None:
    """The launched replay ends without its update, so that the device, and other graphs, go on."""
    faulty = FaultyRuntime(bench.runtime(lazy=True), fail_at=None, names=["task_update_begin"])
    session = story_session(faulty, order=ReplayThenUpdate())
    graph, _ = captured(q, session, a=[1], b=[1])
    other, out = captured(q, session, a=[1])
    other.step({"lens": [1]})
    faulty.fail_at = faulty.count + 1
    with pytest.raises(InjectedFault):
        graph.step({"lens": [5]})
    for value in (2, 3):
        other.step({"lens": [value]})
        faulty.synchronize()
        assert torch.equal(out["a"], q + 10 * value)
    graph.close()


class Forgets:
    """An order that replays and does not update."""

    def run(self, *, update, replay):  # noqa: ARG002 - the protocol
        """Replay."""
        replay()


class ReplaysTwice:
    """An order that replays twice."""

    def run(self, *, update, replay):
        """Update once, replay twice."""
        update()
        replay()
        replay()


@pytest.mark.parametrize("order", [Forgets(), ReplaysTwice()])
def test_a_broken_order_is_named_and_hangs_nobody(bench, q, order) -> None:
    """An order must update and replay once each; what it launched without signals is let go."""
    runtime = bench.runtime()
    graph, out = captured(q, story_session(runtime, order=order), a=[1])
    with pytest.raises(errors.BrokenOrder, match=type(order).__name__):
        graph.step({"lens": [5]})
    runtime.synchronize()
    graph.update({"lens": [6]})
    graph.replay()
    assert torch.equal(out["a"], q + 60)


def test_an_interrupted_step_hangs_nobody(bench, q) -> None:
    """A KeyboardInterrupt between replay and update lets the replay end; the graph wants a new update."""

    class Interrupted:
        def run(self, *, update, replay):  # noqa: ARG002 - the protocol
            replay()
            raise KeyboardInterrupt

    runtime = bench.runtime()
    graph, out = captured(q, story_session(runtime, order=Interrupted()), a=[1])
    with pytest.raises(KeyboardInterrupt):
        graph.step({"lens": [5]})
    runtime.synchronize()
    with pytest.raises(errors.GraphPoisoned, match="without its update"):
        graph.replay()
    graph.update({"lens": [6]})
    graph.replay()
    assert torch.equal(out["a"], q + 60)


def test_a_failed_update_keeps_none_of_its_values(bench, q) -> None:
    """After a failure halfway, the values that stand are those from before, in all records."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=["task_update_begin"])
    graph, out = captured(q, story_session(faulty), a=[1], b=[1])
    faulty.fail_at = 1
    with pytest.raises(InjectedFault):
        graph.update({"lens": [5]})
    assert [r.values["lens"] for r in graph.records] == [[1], [1]]
    graph.update({}, rest=KEEP)
    graph.replay()
    assert [out[n][0].item() for n in "ab"] == [10, 10]


def test_the_values_of_a_failed_step_do_not_stand(bench, q) -> None:
    """When a replay fails because of a step's values, keeping the last values heals the graph with those before."""
    session = story_session(bench.runtime())
    with session.capture() as graph:
        out = picky(q, lens=[1])
    graph.step({"lens": [2]})
    with pytest.raises(RuntimeError, match="picky does not like 13"):
        graph.step({"lens": [13]})
    assert graph.records[0].values["lens"] == (2,)
    graph.step({}, rest=KEEP)
    assert torch.equal(out, q + 20)


def test_the_rebind_of_a_failed_step_does_not_stand(bench, q) -> None:
    """After a failed step the graph uses the tensor from before again, and looks after that one."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=["graph.replay"])
    old, new = bench.tensor([1.0, 1.0]), bench.tensor([4.0, 4.0])
    with story_session(faulty).capture() as graph:
        out = attn(q, lens=[0], table=old)
    faulty.fail_at = 0
    with pytest.raises(InjectedFault):
        graph.step({"table": new})
    del new
    gc.collect()
    graph.step({}, rest=KEEP)
    assert torch.equal(out, q + 2)
    del old
    gc.collect()
    with pytest.raises(errors.StaleBinding, match="table"):
        graph.step({}, rest=KEEP)


def test_a_failed_launch_of_a_graph_without_records_is_no_obstacle(bench, q) -> None:
    """There is nothing to update in such a graph, so the next replay simply runs."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=0, names=["graph.replay"])
    with story_session(faulty).capture() as graph:
        out = q * 2
    with pytest.raises(InjectedFault):
        graph.replay()
    graph.replay()
    assert torch.equal(out, q * 2)


def test_close_waits_for_replays_on_every_stream(bench, q) -> None:
    """A graph that was replayed on several streams is destroyed when all of them are done."""
    runtime = bench.runtime(lazy=True, most_lazy_steps=0)
    graph, out = captured(q, story_session(runtime), a=[1])
    for value, stream in enumerate([runtime.new_stream(), runtime.new_stream()]):
        with runtime.stream(stream):
            graph.step({"lens": [value + 3]})
    graph.close()
    assert torch.equal(out["a"], q + 40)


def test_close_waits_for_its_own_patches(bench, q) -> None:
    """An update that no replay has followed is done before the graph is destroyed."""
    runtime = RecordingRuntime(bench.runtime(lazy=True, most_lazy_steps=0))
    graph, _ = captured(q, story_session(runtime), a=[1])
    graph.update({"lens": [3]})
    runtime.clear()
    graph.close()
    assert runtime.names() == ("synchronize", "graph.reset")


def test_a_failed_close_can_be_tried_again(bench, q) -> None:
    """When the device fails while closing, the graph takes nothing but another try to close it."""
    for name in ("synchronize", "graph.reset"):
        faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=[name])
        graph, _ = captured(q, story_session(faulty), a=[1])
        graph.step({"lens": [1]})
        faulty.fail_at = faulty.count
        with pytest.raises(InjectedFault):
            graph.close()
        assert not graph.closed
        with pytest.raises(errors.GraphInvalidated, match="closing it failed"):
            graph.update({"lens": [1]})
        graph.close()
        assert graph.closed


def test_closing_inside_a_capture_is_refused(bench, q) -> None:
    """`close` waits on the host, which would break the capture that is going on."""
    session = story_session(bench.runtime())
    graph, _ = captured(q, session, a=[1])
    with session.capture() as outer:
        out = attn(q, lens=[1])
        with pytest.raises(errors.GraphInCapture):
            graph.close()
    outer.step({"lens": [2]})
    assert torch.equal(out, q + 20)
    graph.close()


def test_a_rebind_may_replace_a_tensor_that_is_gone(bench, q) -> None:
    """A dead operand is no reason to refuse the very update that replaces it."""
    table = bench.tensor([1.0, 1.0])
    with story_session(bench.runtime()).capture() as graph:
        out = attn(q, lens=[0], table=table)
    graph.step({"lens": [1]})
    del table
    gc.collect()
    with pytest.raises(errors.StaleBinding, match="table"):
        graph.step({"lens": [2]})
    new = bench.tensor([4.0, 4.0])
    graph.step({"table": new})
    assert torch.equal(out, q + 18)


@pytest.mark.parametrize("validation", ["error", "off"])
@pytest.mark.parametrize(
    "make",
    [
        lambda _: np.ones(2),
        lambda _: [1, 2],
        lambda _: 3,
        lambda bench: bench.tensor([1.0, 1.0, 1.0, 1.0])[::2],
        lambda bench: bench.tensor([1, 1], dtype=torch.int32),
    ],
    ids=["array", "list", "number", "stride", "dtype"],
)
def test_a_rebind_must_be_like_the_captured_tensor(bench, q, make, validation) -> None:
    """What is no tensor is refused in any case, what has another form unless validation is off."""
    captured_table, table = bench.tensor([1.0, 1.0]), make(bench)
    with story_session(bench.runtime(), validation=validation).capture() as graph:
        attn(q, lens=[0], table=captured_table)
    if validation == "error" or not isinstance(table, torch.Tensor):
        with pytest.raises(errors.InvalidValue, match="table"):
            graph.update({"table": table})


def test_rest_is_keep_or_nothing(bench, q) -> None:
    """A misspelt `rest` is an error, also when every record gets values."""
    graph, _ = captured(q, story_session(bench.runtime()), a=[1])
    with pytest.raises(TypeError, match="rest must be KEEP"):
        graph.update({"lens": [1]}, rest="keep")


def test_by_label_reaches_records_of_several_operators(bench, q) -> None:
    """Under one pattern each record takes the names that it declares."""
    out = torch.empty_like(q)
    with story_session(bench.runtime()).capture() as graph:
        first = attn(q, lens=[1])
        paged(q, torch.tensor([1], dtype=torch.int32), out)
    graph.step(by_label({"*": {"lens": [2], "context_lens": [3]}}))
    assert torch.equal(first, q + 20)
    assert torch.equal(out, q + 30)


def test_a_label_with_brackets_matches_itself(bench, q) -> None:
    """A whole label, or path, is never taken for a pattern that does not match it."""
    graph, out = captured(q, story_session(bench.runtime()), **{"layers[0]": [1]})
    graph.step(by_label({"layers[0]": {"lens": [2]}}))
    graph.step(by_label({"layers[0]#0": {"lens": [3]}}))
    assert torch.equal(out["layers[0]"], q + 30)


def test_what_a_handler_makes_for_one_record_is_not_given_to_another(bench, q) -> None:
    """Only workspaces are shared: other tensors that a handler makes for an update stay with their record."""

    class Tabled(type(ATTN)):
        def prepare_update(self, call, runtime):  # noqa: ARG002 - a hook
            return call.replace(table=bench.tensor([float(sum(call.arguments["lens"]))] * 2))

    handler = Tabled(ATTN.variants, ATTN.params, outputs=ATTN.outputs)
    table = bench.tensor([0.0, 0.0])
    with GraphCaptureSession(HandlerRegistry.of(handler), runtime=bench.runtime()).capture() as graph:
        out = [attn(q, lens=[0], table=table) for _ in range(2)]
    for values in ([2, 3], [4, 1]):
        graph.step(each([{"lens": [value]} for value in values]))
        assert [y[0].item() for y in out] == [12 * value for value in values]


def test_a_launch_that_fails_halfway_says_that_its_result_is_garbage(bench, q) -> None:
    """In replay-then-update order the error of a failed fence tells that the replay computes garbage."""
    faulty = FaultyRuntime(bench.runtime(), fail_at=None, names=["event.record"])
    graph, out = captured(q, story_session(faulty, order=ReplayThenUpdate()), a=[1])
    faulty.fail_at = 0
    with pytest.raises(InjectedFault) as caught:
        graph.step({"lens": [5]})
    if hasattr(caught.value, "__notes__"):
        assert "computes garbage" in caught.value.__notes__[0]
    graph.step({"lens": [6]})
    assert torch.equal(out["a"], q + 60)


def test_a_device_that_fails_again_while_cleaning_up_can_still_be_healed(bench, q) -> None:
    """When the signals that would free a waiting replay fail too, the first error is seen and an update heals."""
    inner = FaultyRuntime(bench.runtime(), fail_at=None, names=["event.record"])
    outer = FaultyRuntime(inner, fail_at=None, names=["task_update_begin"])
    graph, out = captured(q, story_session(outer, order=ReplayThenUpdate()), a=[1])
    graph.step({"lens": [2]})
    outer.fail_at, inner.fail_at = outer.count, inner.count + 1  # the fence is recorded, the signal is not
    with pytest.raises(InjectedFault, match="task_update_begin"):
        graph.step({"lens": [3]})
    assert inner.failed
    for value in (4, 5):
        graph.step({"lens": [value]})
        outer.synchronize()
        assert torch.equal(out["a"], q + 10 * value)


def test_a_pool_can_be_shared(bench, q) -> None:
    """A graph's pool token is what another capture takes."""
    session = story_session(bench.runtime())
    with session.capture() as first:
        a = attn(q, lens=[1])
    with session.capture(pool=first.pool()) as second:
        b = attn(a, lens=[1])
    first.step({"lens": [2]})
    second.step({"lens": [3]})
    assert torch.equal(b, q + 50)


@ORDERS
def test_a_step_after_a_lone_update_uses_the_steps_values(bench, q, order) -> None:
    """A record that is armed already does not let a step's replay run with older values."""
    runtime = bench.runtime(lazy=True, seed=1)
    graph, out = captured(q, story_session(runtime, order=order), a=[1])
    graph.update({"lens": [3]})
    graph.step({"lens": [4]})
    runtime.synchronize()
    assert torch.equal(out["a"], q + 40)


def test_validation_may_warn_or_be_off(bench, q) -> None:
    """A session can let suspicious lengths pass, with or without a warning."""

    class Even(type(ATTN)):
        def validate_update(self, call, values):
            if values["lens"][0] % 2:
                raise errors.InvalidValue(call.name, "lens", "even", str(values["lens"]))

    even = Even(ATTN.variants, ATTN.params, rebind=ATTN.rebind, outputs=ATTN.outputs)
    for validation in ("error", "warn", "off"):
        session = GraphCaptureSession(HandlerRegistry.of(even), runtime=bench.runtime(), validation=validation)
        graph, out = captured(q, session, a=[1])
        if validation == "error":
            with pytest.raises(errors.InvalidValue, match="even"):
                graph.step({"lens": [3]})
            continue
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph.step({"lens": [3]})
        assert len(caught) == (validation == "warn")
        assert torch.equal(out["a"], q + 30)


def test_two_threads_step_one_graph_atomically(bench) -> None:
    """Steps from two threads never mix: each replay sees one step's values in all records."""
    runtime = bench.runtime(lazy=True, seed=2)
    session = story_session(runtime)
    same = bench.tensor(True)
    count = bench.tensor(0)
    zero = bench.tensor([0.0])
    with session.capture() as graph:
        a, b = attn(zero, lens=[0]), attn(zero, lens=[0])
        same.logical_and_((a == b).all())
        count.add_(1)

    def work(n: int) -> None:
        for i in range(20):
            graph.step({"lens": [100 * n + i]})

    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    runtime.synchronize()
    assert count.item() == 40
    assert same.item()


def test_records_show_themselves(bench, q) -> None:
    """Graphs and records have a short repr, and records cannot be changed."""
    graph, _ = captured(q, story_session(bench.runtime()), a=[1])
    assert repr(graph) == "<CapturedGraph 'graph' ready, 1 record(s)>"
    assert repr(graph.records[0]) == "<Record 0 'a#0' story::attn.out>"
    graph.update({"lens": [2]})
    assert repr(graph.records[0]) == "<Record 0 'a#0' story::attn.out armed>"
    with pytest.raises(AttributeError):
        graph.records[0].label = "b"


def test_the_memory_report_counts_operands_once(bench, q) -> None:
    """Storages of the caller's are counted once; nothing is held but what updates made."""
    graph, _ = captured(q, story_session(bench.runtime()), a=[1], b=[1])
    report = graph.memory_report()
    assert (report.held, report.operands) == (0, 12)
