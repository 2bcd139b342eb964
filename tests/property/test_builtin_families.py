"""Each built-in family, captured, updated and replayed, gives what eager gives with the new lengths."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npugraph_strategies import KEEP, GraphCaptureSession, OpCall, ReplayThenUpdate, UpdateThenReplay, errors, reference
from npugraph_strategies.handlers import ATTENTION, MLA, PAGED_ATTENTION
from npugraph_strategies.runtimes import RecordingRuntime, SimulatedDevice, SimulatedRuntime
from support.families import FUSED, NAMES, fused, latent, paged, table

ORDERS = st.sampled_from([UpdateThenReplay(), ReplayThenUpdate()])
PAIRS = st.tuples(st.integers(1, 4), st.integers(1, 4)).map(list)
ROUNDS = st.lists(PAIRS, min_size=1, max_size=3)


def outputs(call: OpCall, result):
    """Return what the operator wrote, whichever way it gives it back."""
    found = call.arguments["out"] if result is None else result
    return [found] if isinstance(found, torch.Tensor) else list(found)


def steps_equal_eager(call: OpCall, rounds, *, order, seed) -> None:
    """Capture the call; for each round of values step the graph, and compare with an eager call."""
    runtime = SimulatedRuntime(SimulatedDevice(seed=seed, lazy=True))
    session = GraphCaptureSession(ATTENTION, runtime=runtime, order=order)
    with session.capture() as graph:
        captured = outputs(call, call())
    for values in rounds:
        graph.step(values)
        runtime.synchronize()
        results = [tensor.clone() for tensor in captured]
        eager = call.replace(**values, **dict.fromkeys({"workspace"} & set(call.arguments)))
        for result, expected in zip(results, outputs(eager, eager()), strict=True):
            assert torch.equal(result, expected)
    graph.close()


def as_out(call: OpCall) -> OpCall:
    """Return the call as a user would make it who brings outputs and workspace."""
    handler = ATTENTION[call.name]
    return handler.prepare_capture(call, SimulatedRuntime())


def either(call: OpCall, out: bool) -> OpCall:  # noqa: FBT001 - drawn
    return as_out(call) if out else call


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@given(out=st.booleans(), paged_cache=st.booleans(), lengths=ROUNDS, order=ORDERS, seed=st.integers(0, 99))
def test_fused_attention_by_sequence(handler, out, paged_cache, lengths, order, seed) -> None:
    """Fused attention in a batched layout, dense or paged, follows its key/value lengths."""
    _, kv = NAMES[handler]
    blocks = (2, 2) if paged_cache else None
    call = either(fused(handler, lengths=[1, 1], blocks=blocks, keys=4), out)
    steps_equal_eager(call, [{kv: given} for given in lengths], order=order, seed=seed)


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@given(out=st.booleans(), lengths=ROUNDS, cut=st.integers(1, 3), order=ORDERS, seed=st.integers(0, 99))
def test_fused_attention_packed(handler, out, lengths, cut, order, seed) -> None:
    """Packed fused attention follows cumulative query lengths and per-sequence cache lengths."""
    query, kv = NAMES[handler]
    call = either(fused(handler, "TND", shape=(4, 1, 4), queries=[2, 4], lengths=[1, 1], blocks=(2, 2)), out)
    rounds = [{query: [cut, 4], kv: given} for given in lengths]
    steps_equal_eager(call, rounds, order=order, seed=seed)


@settings(max_examples=10, deadline=None)
@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@given(lengths=PAIRS, order=ORDERS)
def test_fused_attention_captured_without_lengths(handler, lengths, order) -> None:
    """Lengths that were left at their default at capture can be updated."""
    _, kv = NAMES[handler]
    steps_equal_eager(fused(handler, keys=4), [{kv: lengths}], order=order, seed=0)


@settings(max_examples=10, deadline=None)
@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@given(lengths=PAIRS, flip=st.booleans())
def test_fused_attention_rebinds_its_block_table(handler, lengths, flip) -> None:
    """A block table may be exchanged for another of the same form."""
    _, kv = NAMES[handler]
    other = table(2, 2).flip(0) if flip else table(2, 2)
    call = fused(handler, lengths=[1, 1], blocks=(2, 2))
    steps_equal_eager(call, [{kv: lengths, "block_table": other}], order=UpdateThenReplay(), seed=0)


@settings(max_examples=25, deadline=None)
@given(lengths=ROUNDS, order=ORDERS, seed=st.integers(0, 99))
def test_paged_attention(lengths, order, seed) -> None:
    """Paged attention follows its context lengths, with a workspace that grows where it must."""
    call = paged([1, 1], columns=2, block_size=2)
    expected = call.replace(out=torch.zeros_like(call.arguments["out"]))
    runtime = SimulatedRuntime(SimulatedDevice(seed=seed, lazy=True))
    with GraphCaptureSession(ATTENTION, runtime=runtime, order=order).capture() as graph:
        call()
    for given_lengths in lengths:
        graph.step({"context_lens": given_lengths})
        runtime.synchronize()
        expected.replace(context_lens=torch.tensor(given_lengths, dtype=torch.int32))()
        assert torch.equal(call.arguments["out"], expected.arguments["out"])
    assert graph.records[0].handler == PAGED_ATTENTION


@settings(max_examples=25, deadline=None)
@pytest.mark.parametrize("overload", ["default", "lse"])
@given(out=st.booleans(), lengths=ROUNDS, order=ORDERS, seed=st.integers(0, 99))
def test_latent_attention(overload, out, lengths, order, seed) -> None:
    """Latent attention follows its context lengths in all four overloads, and returns what eager returns."""
    call = either(latent(overload, [1, 1]), out)
    steps_equal_eager(call, [{"context_lens": given} for given in lengths], order=order, seed=seed)
    assert ATTENTION[call.name] == MLA


@pytest.mark.parametrize(
    ("make", "values"),
    [
        (lambda: fused(FUSED[0], lengths=[1, 1], keys=4), {"actual_seq_lengths_kv": [5, 1]}),
        (lambda: fused(FUSED[1], lengths=[1, 1, 1], shape=(3, 3, 1, 4), keys=4), {"actual_seq_kvlen": [1, 1]}),
        (
            lambda: fused(FUSED[1], "TND", shape=(4, 1, 4), queries=[2, 4], lengths=[1, 1], blocks=(2, 2)),
            {"actual_seq_qlen": [2, 3]},
        ),
        (lambda: paged([1, 1], columns=2, block_size=2), {"context_lens": [1, 5]}),
        (lambda: paged([1, 1], columns=2, block_size=2), {"context_lens": [1]}),
        (lambda: latent("default", [1, 1]), {"context_lens": [1, 9]}),
        (lambda: latent("default", [1, 1]), {"qseqlen": [1, 2]}),
    ],
    ids=["too long", "too few", "not ending at T", "beyond the blocks", "fewer rows", "beyond the cache", "wrong sum"],
)
def test_wrong_lengths_are_refused_before_the_device_is_touched(make, values) -> None:
    """A length that the operator would reject issues no primitive, and the next right step works."""
    runtime = RecordingRuntime(SimulatedRuntime())
    call = make()
    with GraphCaptureSession(ATTENTION, runtime=runtime).capture() as graph:
        call()
    runtime.clear()
    with pytest.raises(errors.InvalidValue):
        graph.step(values)
    assert runtime.primitives == ()
    graph.step({}, rest=KEEP)
    assert runtime.counts()["graph.replay"] == 1


def test_the_builtin_handlers_fit_the_schemas() -> None:
    """Every built-in handler agrees with the operators as they are registered."""
    reference.install()
    report = ATTENTION.check()
    report.raise_for_errors()
    assert report.not_installed == ()
    assert len(report.findings) == len(ATTENTION.ops)
