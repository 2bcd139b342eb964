"""Laws of ATB's paged attention kernels and of the cache they read."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from npugraph_strategies import reference
from oracles.fused_cases import close
from oracles.paged_cases import PagedCase, paged_cases

PROFILE = settings(max_examples=60, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _installed():
    reference.install()


def outputs(case: PagedCase) -> torch.Tensor:
    return case.args[0].new_full(case.shape, 9.0)


@PROFILE
@given(case=paged_cases())
def test_equals_the_plain_loop(case):
    """Paged attention writes what a loop over sequences and heads gives, and returns nothing."""
    out = outputs(case)
    assert torch.ops.atb._npu_paged_attention(*case.args, out) is None
    close(out, case.expected[0], out.dtype)


@PROFILE
@given(case=paged_cases())
def test_the_helpers_workspace_is_just_enough(case):
    """The workspace for these lengths is accepted, one byte less is refused and writes nothing."""
    out = outputs(case)
    workspace = torch.ops.atb._npu_paged_attention_get_workspace(*case.args, out)
    with pytest.raises(ValueError, match="workspace must have at least"):
        torch.ops.atb._npu_paged_attention(*case.args, out, workspace=workspace[1:])
    assert (out == 9.0).all()
    torch.ops.atb._npu_paged_attention(*case.args, out, workspace=workspace)
    close(out, case.expected[0], out.dtype)


@PROFILE
@given(case=paged_cases())
def test_runs_on_fake_tensors(case):
    """Under FakeTensorMode the operator takes fakes of real arguments and returns nothing."""
    real = outputs(case)
    with FakeTensorMode() as mode:
        fakes = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in case.args]
        assert torch.ops.atb._npu_paged_attention(*fakes, mode.from_tensor(real)) is None


@PROFILE
@given(data=st.data())
def test_what_is_cached_is_read_back(data):
    """Tokens written to distinct slots are found there; everything else in the cache stays, and so do padded tokens."""
    blocks, block_size = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    slots = data.draw(st.lists(st.integers(0, blocks * block_size - 1), unique=True, max_size=6))
    slots = data.draw(st.permutations([*slots, -1, -1]))
    kept = [(token, slot) for token, slot in enumerate(slots) if slot >= 0]
    key, value = torch.randn(len(slots), 2, 3), torch.randn(len(slots), 2, 4)
    caches = [torch.zeros(blocks, block_size, 2, 3), torch.zeros(blocks, block_size, 2, 4)]
    expected = [cache.clone() for cache in caches]
    for token, slot in kept:
        for cache, rows in zip(expected, (key, value), strict=True):
            cache.view(-1, *rows.shape[1:])[slot] = rows[token]
    dtype = data.draw(st.sampled_from([torch.int32, torch.int64]))
    others = [cache.clone() for cache in caches]
    where = torch.tensor(slots, dtype=dtype)
    assert torch.ops.atb._npu_reshape_and_cache(key, value, *caches, where) is None
    assert torch.ops.npu.npu_scatter_pa_kv_cache(key, value, *others, where, cache_mode="Norm") is None
    torch.testing.assert_close([*caches, *others], expected * 2, rtol=0, atol=0)
