"""Laws of the RMS norm kernel."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from npugraph_strategies import reference
from npugraph_strategies.errors import OperatorRejected

ACCURACY = {torch.float64: 1e-6, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@pytest.fixture(autouse=True, scope="module")
def _installed():
    reference.install()


def metadata(tensor: torch.Tensor) -> tuple[object, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


@settings(max_examples=50, deadline=None)
@given(
    lead=st.lists(st.integers(1, 3), max_size=2),
    tail=st.lists(st.integers(1, 4), min_size=1, max_size=2),
    dtype=st.sampled_from(list(ACCURACY)),
    seed=st.integers(0, 999),
)
def test_each_row_is_divided_by_its_root_mean_square(lead, tail, dtype, seed):
    """Every row is normalised and scaled on its own; the factor has the metadata that fake tensors promise."""
    generator = torch.Generator().manual_seed(seed)
    rows, gamma = (torch.randn(*shape, generator=generator).to(dtype) for shape in ([*lead, *tail], tail))
    out, rstd = torch.ops.npu.npu_rms_norm(rows, gamma, 1e-3)
    many = rows.double().reshape(-1, gamma.numel())
    for row, normed, factor in zip(many, out.reshape(many.shape), rstd.flatten(), strict=True):
        root = ((row * row).sum() / row.numel() + 1e-3).sqrt()
        close = {"rtol": ACCURACY[dtype], "atol": ACCURACY[dtype]}
        torch.testing.assert_close(normed.double(), row / root * gamma.double().flatten(), **close)
        torch.testing.assert_close(factor.double(), 1 / root, rtol=1e-5, atol=1e-5)
    with FakeTensorMode() as mode:
        fake = torch.ops.npu.npu_rms_norm(mode.from_tensor(rows), mode.from_tensor(gamma))
    assert [metadata(tensor) for tensor in fake] == [metadata(tensor) for tensor in (out, rstd)]


@pytest.mark.parametrize("shape", [[], [3], [2, 3, 4]])
def test_gamma_has_the_trailing_shape(shape):
    """A gamma that is not the trailing shape of the input is rejected."""
    with pytest.raises(OperatorRejected, match="gamma must have the trailing shape"):
        torch.ops.npu.npu_rms_norm(torch.randn(3, 4), torch.ones(shape))
