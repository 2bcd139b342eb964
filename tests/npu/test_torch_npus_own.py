"""torch_npu's own graphs, handlers and updates against ours and against eager, on the same calls."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies import GraphCaptureSession
from npugraph_strategies.handlers import BUILTIN

BATCH, HEADS, DIM, KEYS = 2, 2, 64, 128


class Attention:
    """Two layers of fused attention with work between them."""

    def __init__(self, bench, op, heads, lengths, **options):
        generator = torch.Generator().manual_seed(0)
        shapes = (BATCH, HEADS, 1, DIM), (BATCH, HEADS, KEYS, DIM), (BATCH, HEADS, KEYS, DIM)
        self.query, self.key, self.value = (
            torch.randn(shape, generator=generator).to(bench.device, torch.float16) for shape in shapes
        )
        self.op, self.lengths = op, lengths
        self.options = {"input_layout": "BNSD", heads: HEADS, **options}

    def __call__(self, first, second):
        x, _ = self.op(self.query, self.key, self.value, **self.options, **{self.lengths: first})
        x, _ = self.op(x * 2, self.key, self.value, **self.options, **{self.lengths: second})
        return x + 1


FAMILIES = {
    "v1": lambda bench: Attention(
        bench, torch.ops.npu.npu_fused_infer_attention_score, "num_heads", "actual_seq_lengths_kv", scale=0.125
    ),
    "v2": lambda bench: Attention(
        bench,
        torch.ops.npu.npu_fused_infer_attention_score_v2,
        "num_query_heads",
        "actual_seq_kvlen",
        softmax_scale=0.125,
    ),
}
LENGTHS = [([3, 100], [5, 7]), ([4, 101], [6, 8]), ([1, 1], [128, 128]), ([4, 101], [6, 8])]


@pytest.fixture(params=FAMILIES)
def attention(bench, request):
    return FAMILIES[request.param](bench)


def test_torch_npus_update_gives_what_eager_gives(attention) -> None:
    """Its handlers and ``NPUGraph.update`` work: one mapping for each call, in capture order."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph, auto_dispatch_capture=True):
        out = attention([1, 1], [1, 1])
    for first, second in LENGTHS:
        torch.npu.synchronize()  # nothing else orders this update behind the replay before
        graph.update(cpu_update_input=[{attention.lengths: first}, {attention.lengths: second}])
        graph.replay()
        assert torch.equal(out.cpu(), attention(first, second).cpu())


def test_ours_gives_what_torch_npus_gives(bench, attention) -> None:
    """The same calls captured both ways, updated with the same values, compute the same."""
    theirs = torch.npu.NPUGraph()
    with torch.npu.graph(theirs, auto_dispatch_capture=True):
        expected = attention([1, 1], [1, 1])
    with GraphCaptureSession(BUILTIN, runtime=bench.runtime()).capture() as ours:
        out = attention([1, 1], [1, 1])
    assert [record.label for record in ours.records] == ["#0", "#1"]
    for first, _ in LENGTHS:
        torch.npu.synchronize()
        theirs.update(cpu_update_input=[{attention.lengths: first}])
        theirs.replay()
        ours.step({attention.lengths: first})
        assert torch.equal(out.cpu(), expected.cpu())
    ours.close()


def test_the_out_overload_returns_what_it_was_given(attention) -> None:
    """That is why a handler may hand the caller's outputs on."""
    out, lse = torch.empty_like(attention.query), attention.query.new_empty(1)
    options = {**attention.options, attention.lengths: [3, 4]}
    found = attention.op.out(attention.query, attention.key, attention.value, **options, workspace=None, out=[out, lse])
    assert found[0] is out
    assert found[1] is lse
