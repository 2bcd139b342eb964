"""Laws of the fused attention kernels: they equal a plain loop, and their forms equal one another."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from torch._subclasses import FakeTensorMode

from npugraph_strategies import reference
from oracles.fused_cases import LAYOUTS, FusedCase, close, fused_cases, past

PROFILE = settings(max_examples=100, deadline=None)


@pytest.fixture(autouse=True, scope="module")
def _installed() -> None:
    reference.install()


def metadata(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tuple(tensor.shape), tensor.stride(), tensor.dtype


def helper(case: FusedCase, suffix: str) -> Any:
    """Call a helper operator with those of the case's arguments that its schema has."""
    operator = getattr(torch.ops.npu, f"_{case.op}_{suffix}").default
    names = ["query", "key", "value"]
    arguments = dict(zip(names, case.args, strict=True)) | case.kwargs
    taken = {
        argument.name: arguments[argument.name] for argument in operator._schema.arguments if argument.name in arguments
    }
    return operator(**taken)


@PROFILE
@given(case=fused_cases())
def test_equals_the_plain_loop(case):
    """Every layout, mask, length form, cache and dtype gives what a loop over rows and heads gives."""
    out, lse = case.packet(*case.args, **case.kwargs)
    if not case.with_lse:
        assert metadata(lse) == ((0,), (1,), torch.float32)
        lse = case.packet(*case.args, **case.kwargs | {key: True for key in case.kwargs if "lse" in key})[1]
    for (actual, sums), (expected, logs) in zip(case.results(out, lse), case.expected, strict=True):
        close(actual, expected, case.args[0].dtype)
        close(sums, logs, torch.float32)


@PROFILE
@given(case=fused_cases())
def test_rows_past_a_length_are_zero(case):
    """A padded row is zero with an infinite log-sum-exp, whatever lies in memory there."""
    inputs, output = LAYOUTS[case.kwargs["input_layout"]]
    if "T" not in inputs:
        out, lse = case.packet(*case.args, **case.kwargs)
        assert (past(case.lengths, out, output, case.heads) == 0).all()
        if case.with_lse:
            assert (past(case.lengths, lse, "BNSD", case.heads) == math.inf).all()


@PROFILE
@given(case=fused_cases())
def test_out_equals_default(case):
    """`.out` with the helpers' workspace and outputs writes what `.default` returns, and returns its own tensors."""
    expected = case.packet(*case.args, **case.kwargs)
    out = list(helper(case, "infer_output"))
    assert [metadata(tensor) for tensor in out] == [metadata(tensor) for tensor in expected]
    workspace = helper(case, "get_max_workspace")
    returned = case.packet.out(*case.args, **case.kwargs, workspace=workspace, out=out)
    assert [left is right for left, right in zip(returned, out, strict=True)] == [True, True]
    torch.testing.assert_close(out, list(expected), rtol=0, atol=0, equal_nan=False)


@PROFILE
@given(case=fused_cases())
def test_fake_results_have_the_metadata_of_real_ones(case):
    """Shape, strides and dtype under FakeTensorMode are those of the real run."""
    real = case.packet(*case.args, **case.kwargs)
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fakes = [mode.from_tensor(tensor) for tensor in case.args]
        fake = case.packet(*fakes, **case.kwargs)
        own = [torch.empty_like(tensor) for tensor in fake]
        assert all(
            left is right for left, right in zip(case.packet.out(*fakes, **case.kwargs, out=own), own, strict=True)
        )
    assert [metadata(tensor) for tensor in fake] == [metadata(tensor) for tensor in real]
