"""ATB's operators: they compute what the reference kernels compute, and captured ones follow their updates."""

import math
import os
import subprocess
import sys

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npugraph_strategies import GraphCaptureSession
from npugraph_strategies.handlers import BUILTIN
from npugraph_strategies.reference import _latent, _paged, _slots
from npugraph_strategies.runtimes import NpuRuntime

torch_npu = pytest.importorskip("torch_npu")
pytestmark = pytest.mark.npu

atb = torch.ops.atb
KERNELS = {**_paged.KERNELS, **_latent.KERNELS, **_slots.KERNELS}
DTYPES = (torch.float16, torch.bfloat16)
MLA = "atb::npu_multi_head_latent_attention"
RING = "calc_type_ring"  # the only calculation for which torch_npu returns a log-sum-exp

few = settings(max_examples=10, deadline=None)
dtypes = st.sampled_from(DTYPES)


def reference(name, *args, **options):
    """Run a reference kernel on the CPU."""

    def host(value):
        return value.cpu() if isinstance(value, torch.Tensor) else value

    return KERNELS[name].run(*map(host, args), **{key: host(value) for key, value in options.items()})


def same(got, wanted):
    """Compare a result on the device with one on the host."""
    assert got.device.type == "npu"
    torch.testing.assert_close(got.cpu(), wanted.to(got.dtype))


def lens(values):
    """Return lengths as ATB takes them: int32 in host memory."""
    return torch.tensor(values, dtype=torch.int32)


@attrs.frozen
class Paged:
    """Sequences in a paged cache, and queries for them."""

    lengths: list[int]
    capacity: int
    query: torch.Tensor = attrs.field(eq=False, repr=False)
    keys: torch.Tensor = attrs.field(eq=False, repr=False)
    values: torch.Tensor = attrs.field(eq=False, repr=False)
    table: torch.Tensor = attrs.field(eq=False, repr=False)

    @property
    def heads(self):
        """Return the heads of keys and of queries."""
        return self.keys.size(2), self.query.size(1)

    def attention(self, out, lengths=None):
        """Return the arguments of paged attention."""
        kv_heads, heads = self.heads
        given = lens(self.lengths if lengths is None else lengths)
        return (self.query, self.keys, self.values, kv_heads, heads, 0.3, self.table, given, out)

    def tokens(self, cache, sequence):
        """Return a sequence's rows of a cache, in float32 on the host."""
        rows = cache.cpu()[self.table.cpu()[sequence].long()].flatten(0, 1)
        return rows[: self.lengths[sequence]].float()


def numbers(*shape, dtype=torch.float16, seed=0):
    """Return random numbers on the device."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype).npu()


def pages(
    lengths, *, group=2, kv_heads=2, size=16, value_size=16, rows=8, columns=3, tokens=None, dtype=DTYPES[0], seed=0
):
    """Make a paged cache in which no two sequences share a block."""
    batch = len(lengths)
    shuffled = torch.randperm(batch * columns + 1, generator=torch.Generator().manual_seed(seed))
    table = shuffled[: batch * columns].reshape(batch, columns).int().npu()
    query = numbers(batch if tokens is None else tokens, group * kv_heads, size, dtype=dtype, seed=seed)
    keys = numbers(batch * columns + 1, rows, kv_heads, size, dtype=dtype, seed=seed + 1)
    values = numbers(batch * columns + 1, rows, kv_heads, value_size, dtype=dtype, seed=seed + 2)
    return Paged(lengths, rows * columns, query, keys, values, table)


@st.composite
def paged_calls(draw):
    """Draw sequences of any lengths, none among them."""
    columns, rows = draw(st.integers(1, 3)), draw(st.sampled_from((1, 4, 8)))
    lengths = draw(st.lists(st.integers(0, rows * columns), min_size=1, max_size=4))
    return pages(
        lengths,
        group=draw(st.integers(1, 3)),
        kv_heads=draw(st.integers(1, 2)),
        size=draw(st.sampled_from((8, 16))),
        value_size=draw(st.sampled_from((8, 16))),
        rows=rows,
        columns=columns,
        dtype=draw(dtypes),
        seed=draw(st.integers(0, 2**16)),
    )


def output(paged):
    """Return a place for the output that holds nothing useful."""
    return torch.full((*paged.query.shape[:2], paged.values.size(3)), math.nan, dtype=paged.query.dtype).npu()


def attended(query, keys, values, *, scale, bias=None, hidden=None):
    """Attend with one sequence: queries `[S, N, D]`, keys `[L, K, D]`, values `[L, K, Dv]`, all on the host."""
    group = query.size(1) // keys.size(1)
    keys, values = (one.float().repeat_interleave(group, 1).transpose(0, 1) for one in (keys, values))
    scores = query.float().transpose(0, 1) @ keys.transpose(1, 2) * scale
    scores = scores if bias is None else scores + bias.float()
    scores = scores if hidden is None else scores.masked_fill(hidden, -math.inf)
    return (torch.softmax(scores, -1) @ values).transpose(0, 1)


def triangle(queries, keys):
    """Return a bool that is True where a query must not see a key: the triangle from the bottom right."""
    return torch.arange(keys) > torch.arange(queries)[:, None] + keys - queries


@few
@given(call=paged_calls())
def test_paged_attention(call):
    """Decoding gives what the reference kernel gives."""
    got, wanted = output(call), output(call).cpu()
    args = call.attention(got)
    atb._npu_paged_attention(*args)
    reference("atb::_npu_paged_attention", *args[:-1], wanted)
    same(got, wanted)


@few
@given(call=paged_calls())
def test_workspace_of_paged_attention(call):
    """The helper says what the reference says for these very lengths, and the operator accepts it."""
    got, wanted = output(call), output(call).cpu()
    args = call.attention(got)
    workspace = atb._npu_paged_attention_get_workspace(*args)
    assert workspace.numel() == reference("atb::_npu_paged_attention_get_workspace", *args).numel()
    atb._npu_paged_attention(*args, workspace=workspace)
    reference("atb::_npu_paged_attention", *args[:-1], wanted)
    same(got, wanted)


@few
@given(call=paged_calls())
def test_paged_attention_v2(call):
    """The second version, whose lengths are numbers, is the same computation."""
    got, wanted = output(call), output(call).cpu()
    kv_heads, heads = call.heads
    given = {"value_cache": call.values, "num_kv_heads": kv_heads, "num_heads": heads, "scale_value": 0.3}
    inputs = (call.query, call.keys, call.table, call.lengths)
    workspace = atb._npu_paged_attention_v2_get_workspace(*inputs, **given, out=got)
    atb._npu_paged_attention_v2(*inputs, **given, workspace=workspace, out=got)
    args = call.attention(got)
    reference("atb::_npu_paged_attention", *args[:-1], wanted)
    same(got, wanted)


def test_paged_attention_v2_adds_a_slope_to_the_scores():
    """A mask of type ALIBI is one row for each sequence and head."""
    call, got = pages([5, 24]), output(pages([5, 24]))
    kv_heads, heads = call.heads
    slopes = numbers(2, heads, 1, call.capacity)
    atb._npu_paged_attention_v2(
        *(call.query, call.keys, call.table, call.lengths),
        value_cache=call.values,
        num_kv_heads=kv_heads,
        num_heads=heads,
        scale_value=0.3,
        mask=slopes,
        mask_type=2,
        out=got,
    )
    for i, length in enumerate(call.lengths):
        keys, values = call.tokens(call.keys, i), call.tokens(call.values, i)
        bias = slopes[i, :, :, :length].cpu()
        same(got[i : i + 1], attended(call.query[i : i + 1].cpu(), keys, values, scale=0.3, bias=bias))


@pytest.mark.parametrize("dtype", DTYPES)
def test_split_fuse_adds_its_mask(dtype):
    """Prompts and single tokens in one batch: each token adds its own row of the mask."""
    queries = [1, 3, 2]
    call = pages([7, 11, 2], tokens=sum(queries), dtype=dtype)
    got = output(call)
    mask = numbers(sum(queries), call.capacity, dtype=dtype)
    kv_heads, heads = call.heads
    cached = (call.keys, call.values, call.table, lens(call.lengths))
    atb._npu_paged_attention_splitfuse(call.query, *cached, mask, lens(queries), kv_heads, heads, 0.3, got)
    for i, (ours, biases) in enumerate(zip(call.query.split(queries), mask.split(queries), strict=True)):
        keys, values = call.tokens(call.keys, i), call.tokens(call.values, i)
        bias = biases[:, : call.lengths[i]].cpu()
        same(got.split(queries)[i], attended(ours.cpu(), keys, values, scale=0.3, bias=bias))


def prefilled(run):
    """Compare an operator that prefills after a cached prefix: a query sees what comes before it."""
    queries = [1, 3, 2]
    call = pages([7, 11, 2], tokens=sum(queries))
    got = output(call)
    run(call, queries, got)
    for i, ours in enumerate(call.query.split(queries)):
        keys, values = call.tokens(call.keys, i), call.tokens(call.values, i)
        hidden = triangle(queries[i], call.lengths[i])
        same(got.split(queries)[i], attended(ours.cpu(), keys, values, scale=0.3, hidden=hidden))


def test_split_fuse_with_a_compressed_mask_is_causal():
    """Version two has a triangle for a mask."""

    def run(call, queries, got):
        mask, cached = numbers(128, 128), (call.keys, call.values, call.table, lens(call.lengths))
        rest = (mask, lens(queries), *call.heads, 0.3)
        atb._npu_paged_attention_splitfuse_v2(call.query, *cached, *rest, out=got)

    prefilled(run)


def test_flash_attention_with_query_lengths_is_causal():
    """Prefilling after a cached prefix."""

    def run(call, queries, got):
        cached = (call.keys, call.values, call.table, numbers(128, 128))
        rest = (lens(queries), lens(call.lengths), *call.heads, 0.3, got)
        atb._npu_flash_attention_qlens(call.query, *cached, *rest)

    prefilled(run)


def test_paged_attention_of_latent_rows():
    """The values are the first columns of the keys."""
    call = pages([7, 24], kv_heads=1)
    kv_heads, heads = call.heads
    got = torch.full((2, heads, 8), math.nan, dtype=torch.float16).npu()
    atb._npu_paged_attention_mla(call.query, call.keys, kv_heads, heads, 0.3, call.table, lens(call.lengths), 8, got)
    for i in range(2):
        keys = call.tokens(call.keys, i)
        same(got[i : i + 1], attended(call.query[i : i + 1].cpu(), keys, keys[..., :8], scale=0.3))


@few
@given(data=st.data(), dtype=dtypes)
def test_reshape_and_cache(data, dtype):
    """Rows go to their slots, negative slots are skipped, all else stays."""
    capacity = 3 * 4
    chosen = data.draw(st.lists(st.integers(0, capacity - 1), unique=True, max_size=6))
    slots = torch.tensor([data.draw(st.sampled_from((slot, -1))) for slot in chosen], dtype=torch.int32)
    rows = [numbers(len(slots), 2, size, dtype=dtype, seed=size) for size in (8, 16)]
    caches = [numbers(3, 4, 2, size, dtype=dtype, seed=size + 1) for size in (8, 16)]
    wanted = [cache.cpu() for cache in caches]
    atb._npu_reshape_and_cache(*rows, *caches, slots.npu())
    reference("atb::_npu_reshape_and_cache", *rows, *wanted, slots)
    for got, cache in zip(caches, wanted, strict=True):
        torch.testing.assert_close(got.cpu(), cache, rtol=0, atol=0)


def test_reshape_and_cache_of_one_cache():
    """The operator for a single cache writes that one."""
    rows, cache, slots = numbers(2, 1, 8), numbers(3, 4, 1, 8), torch.tensor([11, 0], dtype=torch.int32)
    wanted = cache.cpu().flatten(0, 1)
    wanted[slots.long()] = rows.cpu()
    atb._npu_reshape_and_cache_siso(rows, cache, slots.npu())
    torch.testing.assert_close(cache.cpu().flatten(0, 1), wanted, rtol=0, atol=0)


@attrs.frozen
class Latent:
    """Sequences in a latent cache, and queries for them."""

    lengths: list[int]
    queries: list[int] | None
    tensors: tuple[torch.Tensor, ...] = attrs.field(eq=False, repr=False)

    def arguments(self, lengths=None):
        """Return the arguments of latent attention, without those of an overload."""
        heads, kv_heads = self.tensors[0].size(1), self.tensors[2].size(2)
        return (*self.tensors, self.lengths if lengths is None else lengths, heads, 0.3, kv_heads)

    def run(self, overload, lengths=None, **options):
        """Run an overload; return its outputs, the log-sum-exp if there is one."""
        args = self.arguments(lengths)
        op = getattr(atb.npu_multi_head_latent_attention, overload)
        options = {"qseqlen": self.queries, **options}
        if overload.startswith("lse"):
            args, options = (*args, True), {**options, "calc_type": RING}
        if overload.endswith("out"):
            nope = self.tensors[0]
            options["output"] = torch.full_like(nope, math.nan)
            if overload == "lse_out":
                options["lse"] = torch.full_like(nope[..., :1], math.nan)
        given = op(*args, **options)
        return given if isinstance(given, tuple) else (given,)

    def wanted(self, lengths=None, **options):
        """Return what the reference gives: the output and the log-sum-exp."""
        return reference(f"{MLA}.lse", *self.arguments(lengths), True, qseqlen=self.queries, **options)


def latent(lengths, queries=None, *, group=2, size=32, rope=8, rows=8, columns=3, dtype=DTYPES[0], seed=0):
    """Make a latent cache in which no two sequences share a block; the device has one key head."""
    batch, tokens = len(lengths), len(lengths) if queries is None else sum(queries)
    shuffled = torch.randperm(batch * columns + 1, generator=torch.Generator().manual_seed(seed))
    shapes = ((tokens, group), (tokens, group), (batch * columns + 1, rows, 1), (batch * columns + 1, rows, 1))
    made = [numbers(*s, (size, rope)[i % 2], dtype=dtype, seed=seed + i) for i, s in enumerate(shapes)]
    return Latent(lengths, queries, (*made, shuffled[: batch * columns].reshape(batch, columns).int().npu()))


@st.composite
def latent_calls(draw):
    """Draw sequences with one query each, or with several."""
    columns, rows = draw(st.integers(1, 3)), draw(st.sampled_from((1, 4, 8)))
    lengths = draw(st.lists(st.integers(0, rows * columns), min_size=1, max_size=4))
    several = st.lists(st.integers(1, 3), min_size=len(lengths), max_size=len(lengths))
    return latent(
        lengths,
        draw(st.none() | several),
        group=draw(st.integers(1, 3)),
        rows=rows,
        columns=columns,
        dtype=draw(dtypes),
        seed=draw(st.integers(0, 2**16)),
    )


OVERLOADS = ("default", "out", "lse", "lse_out")


@pytest.mark.parametrize("overload", OVERLOADS)
@few
@given(call=latent_calls())
def test_latent_attention(overload, call):
    """Each overload gives the reference's output, and those that have one its log-sum-exp."""
    for got, wanted in zip(call.run(overload), call.wanted(), strict=False):
        same(got, wanted)


@few
@given(call=latent_calls())
def test_workspace_of_latent_attention(call):
    """The helper says what the reference says for these very lengths, and the operator accepts it."""
    helper = atb._npu_multi_head_latent_attention_get_workspace.lse
    workspace = helper(*call.arguments(), True, qseqlen=call.queries, calc_type=RING)
    name = "atb::_npu_multi_head_latent_attention_get_workspace.lse"
    assert workspace.numel() == reference(name, *call.arguments(), True, qseqlen=call.queries).numel()
    same(call.run("lse", workspace=workspace)[0], call.wanted()[0])


@pytest.mark.parametrize("queries", [None, [2, 3]])
@pytest.mark.parametrize("kind", ["undefined", "mask_type_spec"])
@pytest.mark.parametrize("made", ["nothing", "tokens", "positions"])
def test_mask_of_latent_attention(queries, kind, made):
    """A mask is added by token or by position; without one, speculative queries are causal."""
    call = latent([7, 20], queries)
    rows = {"nothing": None, "tokens": call.tensors[0].size(0), "positions": 7}[made]
    mask = None if rows is None else numbers(rows, 24)
    got = call.run("lse", mask=mask, mask_type=kind)
    for one, wanted in zip(got, call.wanted(mask=mask, mask_type=kind), strict=True):
        same(one, wanted)


def test_latent_attention_free_of_a_mask_is_causal():
    """What a mask holds does not matter where the mask type says that there is none."""
    call = latent([7, 20], [2, 3])
    got = call.run("lse", mask=numbers(5, 24), mask_type="mask_type_free")
    for one, wanted in zip(got, call.wanted(mask_type="mask_type_spec"), strict=True):
        same(one, wanted)


UPDATES = ([3, 20], [24, 1], [8, 8], [9, 16])


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated:UserWarning")  # torch_npu copies host lengths
def test_torch_npu_updates_paged_attention():
    """A graph of torch_npu follows lengths that were not known at its capture."""
    call, got = pages([1, 1]), output(pages([1, 1]))
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        atb._npu_paged_attention(*call.attention(got))
    for lengths in UPDATES:
        graph.update(cpu_update_input=[{"context_lens": lens(lengths)}])
        graph.replay()
        torch.npu.synchronize()
        wanted = torch.empty_like(got, device="cpu")
        reference("atb::_npu_paged_attention", *call.attention(wanted, lengths))
        same(got, wanted)


def test_torch_npu_updates_latent_attention():
    """A graph of torch_npu follows lengths, for the one overload that it updates."""
    call = latent([1, 1])
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        (got,) = call.run("out")
    for lengths in UPDATES:
        graph.update(cpu_update_input=[{"context_lens": lengths}])
        graph.replay()
        torch.npu.synchronize()
        same(got, call.wanted(lengths)[0])


def test_captured_paged_attention_writes_nothing_before_the_replay():
    """A capture stores the operator, which is destroyed; the replay still has all it needs."""
    call, got = pages([5, 17]), output(pages([5, 17]))
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        atb._npu_paged_attention(*call.attention(got))
    torch.npu.synchronize()
    assert got.isnan().all()
    graph.replay()
    torch.npu.synchronize()
    wanted = torch.empty_like(got, device="cpu")
    reference("atb::_npu_paged_attention", *call.attention(wanted))
    same(got, wanted)


def test_a_session_updates_paged_attention():
    """A session's graph, with a workspace that grows, follows its lengths."""
    call, got = pages([1, 1]), output(pages([1, 1]))
    with GraphCaptureSession(BUILTIN, runtime=NpuRuntime()).capture() as graph:
        atb._npu_paged_attention(*call.attention(got))
    for lengths in UPDATES:
        graph.step({"context_lens": lens(lengths)})
        torch.npu.synchronize()
        wanted = torch.empty_like(got, device="cpu")
        reference("atb::_npu_paged_attention", *call.attention(wanted, lengths))
        same(got, wanted)


@pytest.mark.parametrize("overload", OVERLOADS)
def test_a_session_updates_latent_attention(overload):
    """A session's graph follows its lengths in every overload."""
    call = latent([1, 1])
    with GraphCaptureSession(BUILTIN, runtime=NpuRuntime()).capture() as graph:
        outputs = call.run(overload)
    for lengths in UPDATES:
        graph.step({"context_lens": lengths})
        torch.npu.synchronize()
        for got, wanted in zip(outputs, call.wanted(lengths), strict=False):
            same(got, wanted)


def failure(run):
    """Return the error that an operator raises, at the call or when the device is waited for."""

    def all_of_it():
        run()
        torch.npu.synchronize()

    with pytest.raises(RuntimeError) as raised:
        all_of_it()
    return str(raised.value)


def test_a_workspace_for_other_lengths_is_refused(capfd):
    """Lengths that need more than was given fail on the device, with both sizes named."""
    call, got = pages([24, 24]), output(pages([24, 24]))
    small = atb._npu_paged_attention_get_workspace(*call.attention(got))
    args = call.attention(got, [23, 23])  # fewer, but the last block is not full
    needed = reference("atb::_npu_paged_attention_get_workspace", *args).numel()
    assert needed > small.numel()
    failure(lambda: atb._npu_paged_attention(*args, workspace=small))
    assert f"the workspace has {small.numel()} bytes, and these lengths need {needed}" in capfd.readouterr().err


REFUSED = """
import torch, torch_npu
key, out = torch.ones(4, 8, 1, 16).half().npu(), torch.full((2, 1, 16), torch.nan).half().npu()
table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32).npu()
for wrong in {wrong}:
    lengths = torch.tensor(wrong, dtype=torch.int32)
    try:
        torch.ops.atb._npu_paged_attention(out, key, key, 1, 1, 1.0, table, lengths, out)
        torch.npu.synchronize()
    except RuntimeError as error:
        assert "PagedAttention" in str(error), error
    else:
        raise AssertionError(wrong)
"""


@pytest.mark.parametrize(("queue", "wrong"), [("0", [[17, 1], [-1, 1], [1], [1, 1, 1]]), ("1", [[17, 1]])])
def test_lengths_that_do_not_fit_are_refused(queue, wrong):
    """A length beyond the table, a negative one, or another number of them: torch_npu's queue does not survive it."""
    command = [sys.executable, "-c", REFUSED.format(wrong=wrong)]
    environ = {**os.environ, "TASK_QUEUE_ENABLE": queue}
    child = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)  # noqa: S603 - our own
    assert child.returncode == 0, child.stderr
    assert child.stderr.count("161002: ATB PagedAttention: ") == len(wrong)


@pytest.mark.parametrize("halves", [True, False])
def test_rotary_embedding(halves):
    """Halves of a head, or neighbours in it, are turned by the angles of their position."""
    query, key = numbers(3, 2 * 16), numbers(3, 16, seed=1)
    places, angles = torch.tensor([5, 0, 7]), torch.arange(64.0).reshape(8, 8) % 6  # torch_npu keeps the first it sees
    wanted = []
    for rows in (query, key):
        heads = rows.cpu().float().unflatten(1, (-1, 16))
        one, two = heads.chunk(2, -1) if halves else (heads[..., ::2], heads[..., 1::2])
        cos, sin = angles.cos()[places][:, None], angles.sin()[places][:, None]
        turned = (one * cos - two * sin, two * cos + one * sin)
        wanted.append((torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(2)).flatten(1))
    cache = torch.cat([angles.cos(), angles.sin()], -1).half().npu()
    atb._npu_rotary_embedding(places.npu(), query, key, 16, cache, halves)
    for got, one in zip((query, key), wanted, strict=True):
        torch.testing.assert_close(got.cpu().float(), one, rtol=2e-3, atol=4e-3)


def test_quantized_rms_norm():
    """The norm, made int8 by scale and offset."""
    x, gamma, beta = numbers(3, 16), numbers(16, seed=1), numbers(16, seed=2)
    scale, offset = torch.tensor([0.25]).half().npu(), torch.tensor([3], dtype=torch.int8).npu()
    got = torch.zeros(3, 16, dtype=torch.int8).npu()
    atb._npu_quant_rms_norm(x, gamma, beta, scale, offset, got, 1e-5)
    wide = [one.cpu().float() for one in (x, gamma, beta)]
    normed = torch.nn.functional.rms_norm(wide[0], (16,), wide[1], 1e-5) + wide[2]
    assert torch.equal(got.cpu(), ((normed / 0.25).round() + 3).clamp(-128, 127).char())


def test_quantize_per_tensor():
    """Numbers are divided by the scale, rounded, moved and clamped."""
    x, got = torch.tensor([[-100.0, 0.6, 0.75, 100.0]]).half().npu(), torch.zeros(1, 4, dtype=torch.int8).npu()
    atb._npu_quantize_per_tensor(x, torch.tensor([0.5]).half().npu(), torch.tensor([3], dtype=torch.int8).npu(), got)
    assert got.cpu().tolist() == [[-128, 4, 5, 127]]


def test_group_topk():
    """The scores of all groups but the best become zero."""
    scores = torch.tensor([[1.0, 9.0, 5.0, 6.0, 2.0, 3.0, 8.0, 0.0]]).half().npu()
    atb._npu_group_topk(scores, 2, 4, 2)
    assert scores.cpu().tolist() == [[1.0, 9.0, 5.0, 6.0, 0.0, 0.0, 0.0, 0.0]]


def test_matmul_add_fp32():
    """A gradient of weights is added to the ones before."""
    x, y, total = numbers(6, 3), numbers(6, 4, seed=1), numbers(3, 4, dtype=torch.float32, seed=2)
    wanted = total.cpu() + x.cpu().float().t() @ y.cpu().float()
    atb._npu_matmul_add_fp32(x, y, total)
    torch.testing.assert_close(total.cpu(), wanted)


def packed(run, *, bias=None, causal=False):
    """Compare an operator that attends with whole prompts, packed one after the other."""
    lengths, query = [3, 2], numbers(5, 4, 16)
    key, value, got = numbers(5, 2, 16, seed=1), numbers(5, 2, 16, seed=2), torch.full_like(query, math.nan)
    run(query, key, value, lens(lengths), got)
    for i, parts in enumerate(zip(*(one.cpu().split(lengths) for one in (query, key, value)), strict=True)):
        hidden = triangle(lengths[i], lengths[i]) if causal else None
        added = None if bias is None else bias.cpu()[: lengths[i], : lengths[i]]
        same(got.split(lengths)[i], attended(*parts, scale=0.3, bias=added, hidden=hidden))


def test_flash_attention_adds_its_mask():
    """One mask by position serves all sequences."""
    mask = numbers(8, 8)
    packed(lambda q, k, v, lengths, out: atb._npu_flash_attention(q, k, v, mask, lengths, 0.3, 4, 2, out), bias=mask)


def test_flash_attention_without_a_mask_sees_all():
    """Every token sees its whole sequence."""
    packed(lambda q, k, v, lengths, out: atb._npu_flash_attention_unpad(q, k, v, lengths, 0.3, 4, 2, out))


def test_flash_attention_with_a_compressed_mask_is_causal():
    """A triangle for a mask."""
    mask = numbers(128, 128)

    def run(q, k, v, lengths, out):
        atb._npu_flash_attention_v3(q, k, v, mask, lengths, 0.3, 4, 2, mask_type=3, out=out)

    packed(run, causal=True)
