"""What holds for all kernels: no gradients, given tensors returned, fakes that do not lie."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import DynamicOutputShapeException
from torch.fx.experimental.symbolic_shapes import ShapeEnv

NPU = torch.ops.npu
ATB = torch.ops.atb


def paged_arguments(**tensor_options):
    """Return arguments of paged attention for two sequences in blocks of four."""
    query = torch.randn(2, 2, 3, **tensor_options)
    caches = [torch.randn(3, 4, 1, 3, **tensor_options) for _ in range(2)]
    table = torch.tensor([[0, 1], [2, 0]], dtype=torch.int32)
    return [query, *caches, 1, 2, 1.0, table, torch.tensor([5, 4], dtype=torch.int32)]


def latent_arguments(**tensor_options):
    """Return arguments of latent attention for two sequences in blocks of four."""
    queries = [torch.randn(2, 2, width, **tensor_options) for width in (3, 1)]
    caches = [torch.randn(3, 4, 1, width, **tensor_options) for width in (3, 1)]
    return [*queries, *caches, torch.tensor([[0, 1], [2, 0]], dtype=torch.int32), [5, 4], 2, 1.0, 1]


def test_fused_results_have_no_history():
    """New and given outputs of fused attention stay without grad_fn for inputs that require grad."""
    row = torch.randn(1, 2, 4, requires_grad=True)
    out = [torch.empty(1, 2, 4), torch.empty(0)]
    results = [
        *NPU.npu_fused_infer_attention_score(row, row, row),
        *NPU.npu_fused_infer_attention_score.out(row, row, row, out=out),
        *out,
    ]
    assert [tensor.requires_grad for tensor in results] == [False] * 6


def test_paged_results_have_no_history():
    """`out` and the caches stay without grad_fn for inputs that require grad."""
    query, key, value, *rest = paged_arguments(requires_grad=True)
    out, caches = torch.empty(2, 2, 3), [torch.zeros(3, 4, 1, 3), torch.zeros(3, 4, 1, 3)]
    ATB._npu_paged_attention(query, key, value, *rest, out)
    tokens = torch.randn(2, 1, 3, requires_grad=True)
    ATB._npu_reshape_and_cache(tokens, tokens, *caches, torch.tensor([0, 5]))
    assert [tensor.requires_grad for tensor in (out, *caches)] == [False] * 3


def test_latent_results_have_no_history():
    """New and given outputs of latent attention stay without grad_fn for inputs that require grad."""
    arguments = latent_arguments(requires_grad=True)
    output, lse = torch.empty(2, 2, 3), torch.empty(2, 2, 1)
    op = ATB.npu_multi_head_latent_attention
    results = [op(*arguments), *op.lse(*arguments, True), *op.lse_out(*arguments, True, output=output, lse=lse)]
    assert [tensor.requires_grad for tensor in results] == [False] * 5


def test_inference_mode_gives_inference_tensors():
    """Under inference_mode results are inference tensors, like those of any operator."""
    with torch.inference_mode():
        row = torch.randn(1, 2, 4)
        assert NPU.npu_fused_infer_attention_score(row, row, row)[0].is_inference()


def test_a_write_bumps_the_version():
    """Writing to `out` is seen by autograd's version counter."""
    out = torch.empty(2, 2, 3)
    before = out._version
    ATB._npu_paged_attention(*paged_arguments(), out)
    assert out._version > before


def test_output_may_be_an_input():
    """An output that overlaps the query gets the same result as a new one."""
    query, *rest = paged_arguments()
    out = torch.empty_like(query)
    ATB._npu_paged_attention(query, *rest, out)
    ATB._npu_paged_attention(query, *rest, query)
    torch.testing.assert_close(query, out, rtol=0, atol=0)


def test_meta_tensors_are_enough():
    """Plain meta tensors give shapes, and `.out` gives its own tensors back."""
    row = torch.empty(1, 2, 4, device="meta")
    out = [torch.empty(1, 2, 4, device="meta"), torch.empty(0, device="meta")]
    assert NPU.npu_fused_infer_attention_score(row, row, row)[0].shape == (1, 2, 4)
    assert NPU.npu_fused_infer_attention_score.out(row, row, row, out=out)[0] is out[0]


def test_only_outputs_that_are_asked_for_are_written():
    """Without log-sum-exp the second output of `.out` may be anything, and is left alone."""
    row, spare = torch.randn(1, 2, 4), torch.full((3,), 5, dtype=torch.int8)
    out = [torch.empty(1, 2, 4), spare]
    assert NPU.npu_fused_infer_attention_score.out(row, row, row, out=out)[1] is spare
    assert (spare == 5).all()


def test_maximal_workspace_knows_no_lengths():
    """The workspace of fused attention depends on shapes only, is never empty and grows with the output."""
    helper = torch.ops.npu._npu_fused_infer_attention_score_get_max_workspace
    sizes = [
        helper(q, q, q, actual_seq_lengths_kv=lengths).numel()
        for q, lengths in [
            (torch.randn(1, 900, 4), None),
            (torch.randn(1, 900, 4), [3]),
            (torch.randn(1, 9000, 4), [3]),
            (torch.randn(0, 9, 4), None),
        ]
    ]
    assert sizes[0] == sizes[1] < sizes[2]
    assert sizes[3] > 0


def test_workspace_for_these_lengths_is_not_monotone():
    """A shorter context may need the larger workspace, because its last block is ragged."""
    *arguments, _ = paged_arguments()
    out = torch.empty(2, 2, 3)
    sizes = [
        ATB._npu_paged_attention_get_workspace(*arguments, torch.tensor(lengths, dtype=torch.int32), out).numel()
        for lengths in ([3, 3], [4, 4], [8, 8], [7, 7])
    ]
    assert sizes[0] > sizes[1]
    assert sizes[3] > sizes[0] > sizes[1] < sizes[2]


def test_workspace_for_latent_lengths_is_not_monotone():
    """The same holds for latent attention."""
    arguments = latent_arguments()
    sizes = []
    for lengths in ([3, 3], [4, 4], [7, 7]):
        arguments[5] = lengths
        sizes.append(ATB._npu_multi_head_latent_attention_get_workspace.lse(*arguments, True).numel())
    assert sizes[0] > sizes[1] < sizes[2]


def test_fake_lengths_give_no_workspace_size():
    """The workspace of paged attention depends on data: a fake one has a symbolic size, or none can be had."""
    arguments = [*paged_arguments(), torch.empty(2, 2, 3)]

    def size(mode):
        with mode:
            fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in arguments]
            return ATB._npu_paged_attention_get_workspace(*fakes).size(0)

    assert isinstance(size(FakeTensorMode(shape_env=ShapeEnv())), torch.SymInt)
    with pytest.raises(DynamicOutputShapeException):
        size(FakeTensorMode())


def test_results_are_contiguous_to_the_last_stride():
    """A result with dimensions of size one has the strides of a new tensor, which fake kernels promise."""
    row = torch.randn(1, 1, 2, 1)
    out, _ = NPU.npu_fused_infer_attention_score(row, row, row, num_heads=2, input_layout="BSND")
    assert out.stride() == torch.empty(1, 1, 2, 1).stride()


@pytest.mark.parametrize("version", ["", "_v2"])
def test_fused_registration_passes_torchs_own_checks(version):
    """Schema, autograd, fake tensors and tracing of fused attention hold up to torch.library.opcheck."""
    row = torch.randn(1, 2, 4)
    torch.library.opcheck(getattr(NPU, f"npu_fused_infer_attention_score{version}").default, (row, row, row))


def test_paged_registration_passes_torchs_own_checks():
    """The same holds for paged attention, which writes to an argument and returns nothing."""
    torch.library.opcheck(ATB._npu_paged_attention.default, (*paged_arguments(), torch.empty(2, 2, 3)))


def test_compiled_code_gives_the_same():
    """A function that is traced in full graph mode gives what it gives when it is run."""
    rest, out = paged_arguments(), torch.zeros(2, 2, 3)

    def decode(query):
        ATB._npu_paged_attention(query, *rest[1:], out)
        row = out.reshape(1, 2, 6)
        return NPU.npu_fused_infer_attention_score(row, row, row, num_heads=2)[0] + 1

    compiled = torch.compile(decode, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(rest[0]), decode(rest[0]))
