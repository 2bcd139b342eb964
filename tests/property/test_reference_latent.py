"""Laws of the multi-head latent attention kernels."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from torch._subclasses import FakeTensorMode

from npugraph_strategies import reference
from oracles.fused_cases import close
from oracles.paged_cases import PagedCase, latent_cases

PROFILE = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _installed():
    reference.install()


def metadata(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def blank(case: PagedCase) -> tuple[torch.Tensor, torch.Tensor]:
    return case.args[0].new_full(case.shape, 9.0), torch.full((*case.shape[:2], 1), 9.0)


@PROFILE
@given(case=latent_cases())
def test_equals_the_plain_loop(case):
    """Any mask, number of query tokens, cache and dtype gives what a loop over rows and heads gives."""
    out, lse = blank(case)
    op = torch.ops.atb.npu_multi_head_latent_attention
    close(op(*case.args, **case.kwargs), case.expected[0], out.dtype)
    op.lse_out(*case.args, True, **case.kwargs, output=out, lse=lse)
    close(out, case.expected[0], out.dtype)
    close(lse.squeeze(-1), case.expected[1], torch.float32)


@PROFILE
@given(case=latent_cases())
def test_overloads_agree(case):
    """All four overloads give the same output; those that are given tensors return these."""
    op = torch.ops.atb.npu_multi_head_latent_attention
    workspace = torch.ops.atb._npu_multi_head_latent_attention_get_workspace.lse(*case.args, True, **case.kwargs)
    expected, sums = op.lse(*case.args, True, **case.kwargs, workspace=workspace)
    (out, lse), (other, _) = blank(case), blank(case)
    assert op.out(*case.args, **case.kwargs, output=other) is other
    lse = lse.to(sums.dtype)
    returned = op.lse_out(*case.args, True, **case.kwargs, output=out, lse=lse, workspace=workspace)
    assert [left is right for left, right in zip(returned, (out, lse), strict=True)] == [True, True]
    for result in (op(*case.args, **case.kwargs), out, other):
        torch.testing.assert_close(result, expected, rtol=0, atol=0)
    torch.testing.assert_close(lse, sums, rtol=0, atol=0)


@PROFILE
@given(case=latent_cases())
def test_without_lse_there_is_none(case):
    """With return_lse False a new log-sum-exp is zero, and a given one is not touched."""
    op = torch.ops.atb.npu_multi_head_latent_attention
    out, lse = blank(case)
    assert (op.lse(*case.args, False, **case.kwargs)[1] == 0).all()
    op.lse_out(*case.args, False, **case.kwargs, output=out, lse=lse)
    assert (lse == 9.0).all()


@PROFILE
@given(case=latent_cases())
def test_fake_results_have_the_metadata_of_real_ones(case):
    """Shape, strides and dtype under FakeTensorMode are those of the real run; given tensors are returned."""
    op = torch.ops.atb.npu_multi_head_latent_attention
    helper = torch.ops.atb._npu_multi_head_latent_attention_get_workspace.lse
    real = [*op.lse(*case.args, True, **case.kwargs), helper(*case.args, True, **case.kwargs)]
    with FakeTensorMode() as mode:
        args = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in case.args]
        options = {
            name: mode.from_tensor(value) if isinstance(value, torch.Tensor) else value
            for name, value in case.kwargs.items()
        }
        fake = [*op.lse(*args, True, **options), helper(*args, True, **options)]
        out, lse = fake[:2]
        assert metadata(op(*args, **options)) == metadata(out)
        assert op.out(*args, **options, output=out) is out
        returned = op.lse_out(*args, True, **options, output=out, lse=lse)
        assert [left is right for left, right in zip(returned, (out, lse), strict=True)] == [True, True]
    assert [metadata(tensor) for tensor in fake] == [metadata(tensor) for tensor in real]
