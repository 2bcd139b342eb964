"""Attention operators on a device: they equal the reference, eager, captured and updated, forward and backward.

Heads here are narrower than a device's alignment allows, so that there can be many examples: these tests are for the
CANN simulator.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import accumulate

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npugraph_strategies import GraphCaptureSession
from npugraph_strategies.handlers import BUILTIN
from npugraph_strategies.reference._fused import KERNELS
from oracles.fused_cases import ACCURACY, NAMES, TRIANGLE, fused_cases

PROFILE = settings(max_examples=50, deadline=None)
HALVES = (torch.float16, torch.bfloat16)
FUSED = list(NAMES)
cases = fused_cases().filter(lambda case: case.args[0].dtype in HALVES)


def on_device(value):
    """Return tensors on the device and everything else as it is."""
    return value.npu() if torch.is_tensor(value) else value


def fused(case, overload="default", **more):
    """Call a fused case's operator on the device."""
    kwargs = {name: on_device(value) for name, value in case.kwargs.items()}
    return getattr(case.packet, overload)(*map(on_device, case.args), **kwargs, **more)


def helper(case, suffix):
    """Call a helper operator with those of the case's arguments that it has."""
    operator = getattr(torch.ops.npu, f"_{case.op}_{suffix}").default
    arguments = dict(zip(("query", "key", "value"), case.args, strict=True)) | case.kwargs
    names = {argument.name for argument in operator._schema.arguments}
    return operator(**{name: on_device(value) for name, value in arguments.items() if name in names})


def close(actual, expected, dtype):
    """Assert that results computed from inputs of `dtype` agree."""
    torch.testing.assert_close(actual.cpu().double(), expected.double(), rtol=ACCURACY[dtype], atol=ACCURACY[dtype])


@PROFILE
@given(case=cases)
def test_fused_attention_equals_the_reference(case):
    """Every layout, mask, length form and cache gives what the reference kernel gives on the CPU."""
    expected, expected_lse = KERNELS[f"npu::{case.op}"].run(*case.args, **case.kwargs)
    out, lse = fused(case)
    close(out, expected, out.dtype)
    close(lse, expected_lse, torch.float32)


@PROFILE
@given(case=cases)
def test_out_of_fused_attention_writes_and_returns_what_it_was_given(case):
    """`.out` with the helpers' workspace and outputs writes what `.default` returns, and returns its own tensors."""
    expected = fused(case)
    out = list(helper(case, "infer_output"))
    returned = fused(case, "out", workspace=helper(case, "get_max_workspace"), out=out)
    assert [left is right for left, right in zip(returned, out, strict=True)] == [True, True]
    torch.testing.assert_close([one.cpu() for one in out], [one.cpu() for one in expected], rtol=0, atol=0)


def plain(op, layout="BNSD", **kwargs):
    """Call a fused operator with two heads on zeros of its layout: two sequences, or five packed tokens."""
    tensor = torch.zeros((5, 2, 8) if layout == "TND" else (2, 2, 3, 8), dtype=torch.float16, device="npu")
    options = {NAMES[op]["heads"]: 2, "input_layout": layout} | kwargs
    return getattr(torch.ops.npu, op)(tensor, tensor, tensor, **options)


@pytest.mark.parametrize(
    ("queries", "keys", "problem"),
    [
        ([3, 4], [2, 5], "must end at T"),
        ([3, 2, 5], [2, 4, 5], "must be cumulative"),
        ([3, 5], [2, 6], "ends at 6, the key has 5"),
        ([3, 5], [5], "must have 2 values"),
        (None, [2, 5], "a packed layout needs"),
    ],
)
@pytest.mark.parametrize("op", FUSED)
def test_wrong_lengths_are_refused_by_tiling(op, queries, keys, problem):
    """Packed lengths that do not fit give CANN's own code, and a diagnosis."""
    with pytest.raises(RuntimeError, match=rf"(?s)561002.*{problem}"):
        plain(op, "TND", **{NAMES[op]["queries"]: queries, NAMES[op]["keys"]: keys})


@pytest.mark.parametrize(
    ("op", "argument", "value", "name"),
    [
        (FUSED[0], "quant_scale2", torch.ones(1), "quantScale2"),
        (FUSED[0], "kv_padding_size", torch.ones(1, dtype=torch.int64), "kvPaddingSize"),
        (FUSED[0], "actual_shared_prefix_len", [1], "actualSharedPrefixLen"),
        (FUSED[1], "learnable_sink", torch.ones(2, dtype=torch.float16), "learnableSink"),
        (FUSED[1], "sparse_mode", 9, "sparse mode 9"),
    ],
)
def test_what_is_not_simulated_is_refused_by_its_name(op, argument, value, name):
    """An argument that the simulator has no mathematics for is never ignored."""
    with pytest.raises(RuntimeError, match=f"does not compute {name}"):
        plain(op, **{argument: on_device(value)})


_TOO_SMALL = """
import torch
tensor = torch.zeros(2, 2, 3, 8, dtype=torch.float16, device="npu")
out = [torch.empty_like(tensor), torch.empty(0, device="npu")]
workspace = torch.empty(1, dtype=torch.uint8, device="npu")
kwargs = dict(num_heads=2, input_layout="BNSD", workspace=workspace, out=out)
torch.ops.npu.npu_fused_infer_attention_score.out(tensor, tensor, tensor, **kwargs)
torch.npu.synchronize()
"""


@pytest.mark.parametrize("queue", ["0", "1"])
def test_a_workspace_that_is_too_small_is_refused(queue):
    """A launch with less workspace than it asked for fails, wherever it is launched from.

    In a process of its own: a launch that fails on the task queue stops that queue for good.
    """
    done = subprocess.run(  # noqa: S603 - this very interpreter, on the text above
        [sys.executable, "-c", _TOO_SMALL],
        env=os.environ | {"TASK_QUEUE_ENABLE": queue},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert "the workspace has 1 bytes, and 1024 were asked for" in done.stderr


@attrs.frozen
class Decoding:
    """A call whose lengths change from step to step."""

    op: str
    layout: str
    queries: tuple[list[int] | None, ...]
    keys: tuple[list[int], ...]
    paged: bool

    def lengths(self, step):
        """Return the lengths of a step, by the operator's names."""
        names, queries = NAMES[self.op], self.queries[step]
        return {names["keys"]: self.keys[step]} | ({} if queries is None else {names["queries"]: queries})

    def function(self):
        """Return the operator with fixed tensors, as a function of a step's lengths."""
        generator = torch.Generator().manual_seed(7)

        def noise(*shape):
            return torch.randn(*shape, generator=generator).half().npu()

        options = {NAMES[self.op]["heads"]: 4, "num_key_value_heads": 2, NAMES[self.op]["scale"]: 0.3}
        options |= {NAMES[self.op]["lse"]: True, "input_layout": self.layout}
        query = noise(5, 4, 8) if self.layout == "TND" else noise(2, 4, 1, 8)
        key, value = (noise(9, 4, 16) if self.paged else noise(2, 2, 16, 8) for _ in range(2))
        if self.paged:
            options |= {"block_table": torch.tensor([[8, 1, 5, 2], [4, 3, 0, 7]], dtype=torch.int32).npu()}
            options |= {"block_size": 4}
        return lambda lengths: getattr(torch.ops.npu, self.op)(query, key, value, **options, **lengths)


KEYS = ([1, 2], [5, 16], [16, 1], [9, 9])
DECODING = {
    f"{op} {name}": Decoding(op, *rest)
    for op in FUSED
    for name, rest in {
        "padded": ("BNSD", (None,) * 4, KEYS, False),
        "paged": ("BNSD", (None,) * 4, KEYS, True),
        "packed": ("TND", ([2, 5], [5, 5], [0, 5], [4, 5]), KEYS, True),
    }.items()
}
decoding = pytest.mark.parametrize("call", DECODING.values(), ids=list(DECODING))


def same(actual, expected):
    """Assert that results are the very same numbers."""
    torch.npu.synchronize()
    torch.testing.assert_close(
        [one.cpu() for one in actual], [one.cpu() for one in expected], rtol=0, atol=0, equal_nan=False
    )


@decoding
def test_fused_attention_updated_by_torch_npu_equals_eager(call):
    """A graph that torch_npu captures and updates gives at each step what the eager call gives."""
    run, graph = call.function(), torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        results = run(call.lengths(0))
    for step in range(4):
        graph.update(cpu_update_input=[call.lengths(step)])
        graph.replay()
        same(results, run(call.lengths(step)))


@decoding
def test_fused_attention_updated_by_a_session_equals_eager(bench, call):
    """A graph that a session captures and updates gives at each step what the eager call gives."""
    run = call.function()
    with GraphCaptureSession(BUILTIN, runtime=bench.runtime()).capture() as graph:
        results = run(call.lengths(0))
    with graph:
        for step in range(4):
            graph.step(call.lengths(step))
            same(results, run(call.lengths(step)))


# -- flash attention ---------------------------------------------------------------------------------------------------


def placed(sequences, layout):
    """Return sequences (`[S, N, D]` each) as one tensor in a layout of training."""
    if layout == "TND":
        return torch.cat(sequences)
    tensor = torch.stack(sequences)
    if layout == "BNSD":
        return tensor.transpose(1, 2).contiguous()
    tensor = tensor.flatten(2) if layout.endswith("H") else tensor
    return tensor.transpose(0, 1).contiguous() if layout == "SBH" else tensor


@attrs.frozen(eq=False)
class Training:
    """A call of flash attention, and its mathematics in float64 with autograd."""

    layout: str
    sequences: list[tuple[torch.Tensor, ...]]  # query, key, value, gradient of the output: [S, N, D] each
    options: dict
    hidden: list[torch.Tensor]  # [S, L] each
    scale: float
    pse: torch.Tensor | None  # [B, N, S, L]

    @property
    def heads(self):
        return self.sequences[0][0].size(1)

    @property
    def lengths(self):
        """The host lengths of a packed layout, and nothing for others."""
        if self.layout != "TND":
            return {}
        ends = [list(accumulate(len(one[place]) for one in self.sequences)) for place in (0, 1)]
        return dict(zip(("actual_seq_qlen", "actual_seq_kvlen"), ends, strict=True))

    def operands(self):
        """Return query, key, value and the gradient of the output on the device, in the layout."""
        return [placed(list(parts), self.layout).npu() for parts in zip(*self.sequences, strict=True)]

    def expected(self):
        """Return scores `[N, S, L]` and outputs `[S, N, D]` by sequence, then gradients in the layout."""
        leaves = [[part.double().requires_grad_() for part in one[:3]] for one in self.sequences]
        pse = None if self.pse is None else self.pse.double().requires_grad_()
        scores, outputs = [], []
        for number, ((query, key, value), hidden) in enumerate(zip(leaves, self.hidden, strict=True)):
            group = query.size(1) // key.size(1)
            key, value = (part.repeat_interleave(group, 1).transpose(0, 1) for part in (key, value))  # noqa: PLW2901
            products = query.transpose(0, 1) @ key.transpose(1, 2)
            products = products if pse is None else products + pse[number]
            scores.append((products * self.scale).masked_fill(hidden, -math.inf))
            outputs.append((torch.softmax(scores[-1], -1).nan_to_num(0.0) @ value).transpose(0, 1))
        upstream = [one[3].double() for one in self.sequences]
        flat = [part for one in leaves for part in one] + ([] if pse is None else [pse])
        gradients = torch.autograd.grad(outputs, flat, upstream)
        by_operand = [placed(list(gradients[place : 3 * len(leaves) : 3]), self.layout) for place in range(3)]
        return scores, outputs, by_operand + ([] if pse is None else [gradients[-1]])


@st.composite
def trainings(draw, layouts=("BNSD", "BSND", "BSH", "SBH", "TND"), *, biased=True):
    """Draw a call of flash attention; every row may see a key, but for modes that hide all of them."""
    layout, batch = draw(st.sampled_from(layouts)), draw(st.integers(1, 3))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    kv_heads, dim = draw(st.integers(1, 2)), draw(st.integers(1, 5))
    heads = kv_heads * draw(st.integers(1, 3))
    dtype, mode = draw(st.sampled_from(HALVES)), draw(st.sampled_from([0, 0, 1, 2, 3, 4]))
    sizes = [(draw(st.integers(1, 4)), draw(st.integers(1, 6))) for _ in range(batch)]
    sizes = sizes if layout == "TND" else sizes[:1] * batch

    def noise(*shape):
        return torch.randn(*shape, generator=generator).to(dtype)

    sequences = [
        (noise(rows, heads, dim), noise(columns, kv_heads, dim), noise(columns, kv_heads, dim), noise(rows, heads, dim))
        for rows, columns in sizes
    ]
    options, before, after = {"sparse_mode": mode}, draw(st.integers(0, 6)), draw(st.integers(0, 6))
    shape = max(rows for rows, _ in sizes), max(columns for _, columns in sizes)
    mask = torch.zeros(shape, dtype=torch.bool)
    if mode == 1 or (mode == 0 and draw(st.booleans())):
        mask = torch.rand(shape, generator=generator) < 0.3
        options["atten_mask"] = mask
    elif mode:
        options["atten_mask"] = TRIANGLE
    options |= {"before": before, "after": after} if mode == 4 else {}
    hidden = []
    for rows, columns in sizes:
        distance = torch.arange(columns) - torch.arange(rows)[:, None] - (columns - rows if mode > 2 else 0)
        by_mode = {2: distance > 0, 3: distance > 0, 4: (distance > after) | (distance < -before)}
        hidden.append(by_mode.get(mode, mask[:rows, :columns]))
    pse = noise(batch, heads, *shape) if biased and layout != "TND" and draw(st.booleans()) else None
    return Training(layout, sequences, options, hidden, 0.6, pse)


def arguments(op, call):
    """Return the options of a call on the device, by the names of a version."""
    second = op.endswith("v2")
    names = {"before": "pre_tokens" if second else "pre_tockens", "after": "next_tokens" if second else "next_tockens"}
    options = {names.get(name, name): on_device(value) for name, value in call.options.items()}
    return options | {"scale": call.scale} | ({} if call.pse is None else {"pse": call.pse.npu()})


def host_tensors(lengths):
    """Return lengths as the third version takes them."""
    return {name: torch.tensor(values) for name, values in lengths.items()}


VERSIONS = {"npu_fusion_attention": dict, "npu_fusion_attention_v2": dict, "npu_fusion_attention_v3": host_tensors}
versions = pytest.mark.parametrize("op", list(VERSIONS))


def forward(op, call, *operands, **more):
    """Call a version of flash attention on the device."""
    lengths = VERSIONS[op](call.lengths)
    return getattr(torch.ops.npu, op)(*operands, call.heads, call.layout, **arguments(op, call), **lengths, **more)


@versions
@PROFILE
@given(call=trainings())
def test_flash_attention_equals_the_mathematics(op, call):
    """Every layout, mask and bias gives the output of a plain softmax."""
    query, key, value, _ = call.operands()
    out = forward(op, call, query, key, value)[0]
    _, outputs, _ = call.expected()
    close(out, placed(outputs, call.layout), out.dtype)


def statistics(per_head, layout, kind):
    """Return `[N, S]` values of each sequence in the form of the softmax's maximum and sum."""
    if layout != "TND":
        form = torch.stack(per_head)
    elif kind == "TND":
        form = torch.cat([one.transpose(0, 1) for one in per_head])
    else:
        rows, heads = sum(one.size(1) for one in per_head), per_head[0].size(0)
        form = torch.cat([one.flatten() for one in per_head]).reshape(rows, heads)
    return form[..., None].expand(*form.shape, 8)


@pytest.mark.parametrize("kind", ["", "TND"])
@PROFILE
@given(call=trainings())
def test_maximum_and_sum_of_the_softmax(kind, call):
    """They are returned eight times for each row and head, by sequence and head unless their layout says TND."""
    query, key, value, _ = call.operands()
    kind = kind if call.layout == "TND" else ""
    _, maximum, total, *_ = forward("npu_fusion_attention_v3", call, query, key, value, softmax_layout=kind)
    scores = [one.detach() for one in call.expected()[0]]
    empty = [(one == -math.inf).all(-1) for one in scores]
    bounds = torch.finfo(torch.float32)
    highest = [one.amax(-1).clamp_min(bounds.min) for one in scores]
    sums = [
        (one - top[..., None]).exp().sum(-1).masked_fill(none, bounds.max)
        for one, top, none in zip(scores, highest, empty, strict=True)
    ]
    close(maximum, statistics(highest, call.layout, kind), torch.float32)
    close(total, statistics(sums, call.layout, kind), torch.float32)


@versions
@PROFILE
@given(call=trainings())
def test_gradients_of_flash_attention_equal_autograd(op, call):
    """The backward operator, reached by autograd on the device, gives what autograd gives for the mathematics."""
    query, key, value, upstream = call.operands()
    leaves = [one.requires_grad_() for one in (query, key, value)]
    if call.pse is not None:
        leaves.append(call.pse.npu().requires_grad_())
    more = {} if call.pse is None else {"pse": leaves[-1]}
    without_bias = attrs.evolve(call, pse=None)
    out = forward(op, without_bias, query, key, value, **more)[0]
    gradients = torch.autograd.grad(out, leaves, upstream)
    _, _, expected = call.expected()
    for actual, right in zip(gradients, expected, strict=True):
        bound = 4 * ACCURACY[query.dtype] * max(1.0, right.abs().max().item())
        torch.testing.assert_close(actual.cpu().double(), right, rtol=bound, atol=bound)


def test_a_bias_is_added_before_or_after_scaling():
    """The second version adds it before; with `pse_type=0` after, which is the same for a bias twice as large."""
    query, key, value, bias = (torch.randn(2, 3, 4, size).half().npu() for size in (8, 8, 8, 4))
    operator = torch.ops.npu.npu_fusion_attention_v2
    before = operator(query, key, value, 3, "BNSD", pse=bias, scale=0.5)[:3]
    same(before, operator(query, key, value, 3, "BNSD", pse=bias / 2, scale=0.5, pse_type=0)[:3])


@versions
def test_dropout_is_refused(op):
    """Random results cannot equal anything, so dropout is not simulated."""
    tensor = torch.zeros(1, 1, 16, 16, dtype=torch.float16, device="npu")
    with pytest.raises(RuntimeError, match="does not compute dropout"):
        getattr(torch.ops.npu, op)(tensor, tensor, tensor, 1, "BNSD", keep_prob=0.5)


LENGTHS = (([2, 5], [3, 9]), ([5, 5], [8, 9]), ([1, 5], [1, 2]), ([3, 5], [4, 7]))


# torch_npu copies host lengths when it captures, in a way that torch warns of.
copied_by_torch_npu = pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")


def packed(step):
    """Return lengths of a step of packed flash attention."""
    return host_tensors(dict(zip(("actual_seq_qlen", "actual_seq_kvlen"), LENGTHS[step], strict=True)))


def flash_operands():
    """Return query, key, value and the gradient of the output, packed."""
    generator = torch.Generator().manual_seed(3)
    shapes = (5, 4, 8), (9, 2, 8), (9, 2, 8), (5, 4, 8)
    return [torch.randn(*shape, generator=generator).half().npu() for shape in shapes]


@copied_by_torch_npu
def test_flash_attention_updated_by_torch_npu_equals_eager():
    """A graph with a packed forward pass follows new lengths."""
    query, key, value, _ = flash_operands()

    def run(lengths):
        rest = (None, None, None, 0.3, 1.0, 2**31 - 1, 2**31 - 1, 0, None)
        return torch.ops.npu.npu_fusion_attention_v3(query, key, value, 4, "TND", *rest, *lengths.values())

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        results = run(packed(0))
    for step in range(4):
        graph.update(cpu_update_input=[packed(step)])
        graph.replay()
        same(results[:3], run(packed(step))[:3])


@copied_by_torch_npu
def test_gradients_of_flash_attention_updated_by_torch_npu_equal_eager():
    """A graph with a packed backward pass follows new lengths and new results of the forward pass."""
    query, key, value, upstream = flash_operands()
    given = [torch.zeros_like(query), *(torch.zeros(5, 4, 8, device="npu") for _ in range(2))]

    def feed(lengths):
        results = torch.ops.npu.npu_fusion_attention_v3(query, key, value, 4, "TND", scale=0.3, **lengths)
        for one, new in zip(given, results, strict=False):
            one.copy_(new)

    def run(lengths):
        inputs = dict(zip(("attention_in", "softmax_max", "softmax_sum"), given, strict=True))
        operator = torch.ops.npu.npu_fusion_attention_grad_v3
        return operator(query, key, value, upstream, 4, "TND", scale_value=0.3, **inputs, **lengths)

    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        results = run(packed(0))
    for step in range(4):
        feed(packed(step))
        graph.update(cpu_update_input=[packed(step)])
        graph.replay()
        same(results[:3], run(packed(step))[:3])


@pytest.mark.parametrize("layout", ["BNSD", "SBH"])
def test_flash_attention_of_padded_layouts_is_captured_as_it_is(layout):
    """Without lengths there is nothing to update: a replay gives what the eager call gives for the new inputs."""
    query, key, value = (torch.randn(2, 4, 3, 8).half().npu() for _ in range(3))
    heads = 4 if layout == "BNSD" else 1
    operands = [one if layout == "BNSD" else one.reshape(2, 4, 24) for one in (query, key, value)]
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        results = torch.ops.npu.npu_fusion_attention_v3(*operands, heads, layout)
    for _ in range(2):
        query.normal_()
        graph.replay()
        same(results[:3], torch.ops.npu.npu_fusion_attention_v3(*operands, heads, layout)[:3])
