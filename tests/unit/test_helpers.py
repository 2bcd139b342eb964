"""Helper operators, workspaces and outputs."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies import OpCall
from npugraph_strategies.errors import UnknownOperator, WorkspaceTooSmall
from npugraph_strategies.handlers import (
    EmptyLike,
    GrowingWorkspace,
    HelperOutputs,
    MaxWorkspace,
    NoWorkspace,
    PerHead,
    call_helper,
)
from support import toys
from support.families import latent

Q = torch.arange(3.0)
MAX = MaxWorkspace("nstest::_attn_get_max_workspace")
GROWING = GrowingWorkspace("nstest::_fill_get_workspace")


def attn(**kwargs):
    return OpCall.bind("nstest::attn", (Q, [1]), kwargs)


def fill(length, workspace=None):
    lens = torch.tensor([length], dtype=torch.int32)
    return OpCall.bind("nstest::fill", (Q, lens, torch.zeros(1), torch.zeros(3)), {"workspace": workspace})


def test_a_helper_gets_what_its_schema_names():
    """The helper's own schema says which arguments of the call it gets."""
    assert call_helper("nstest::_attn_get_max_workspace", attn(heads=5, scale=2.0)).numel() == 15


def test_a_missing_helper():
    """A helper that is not installed is an error that names it."""
    with pytest.raises(UnknownOperator, match="nstest::nope"):
        call_helper("nstest::nope", attn())


def test_no_workspace_changes_nothing():
    """Without a workspace the call stays the same object."""
    call = attn()
    assert NoWorkspace().at_capture(call) is call
    assert NoWorkspace().at_update(call) is call


def test_a_maximum_is_made_at_capture():
    """A workspace argument that was left out is filled."""
    call = attn().replace("nstest::attn.out", out=[Q.clone(), Q[:1].clone()])
    assert MAX.at_capture(call).arguments["workspace"].numel() == 3


def test_a_callers_workspace_is_kept():
    """A workspace that the caller gave is used as it is, even an empty one."""
    mine = torch.empty(0, dtype=torch.uint8)
    call = attn().replace("nstest::attn.out", out=[Q.clone(), Q[:1].clone()], workspace=mine)
    assert MAX.at_capture(call) is call


def test_an_overload_without_workspace():
    """An overload that takes no workspace gets none."""
    call = attn()
    assert MAX.at_capture(call) is call


def test_a_maximum_is_not_asked_for_again():
    """A maximum fits every value, so an update makes nothing."""
    call = attn()
    assert MAX.at_update(call) is call


def test_a_large_enough_workspace_is_kept():
    """A workspace that fits the new values is used again."""
    call = fill(50, torch.empty(50, dtype=torch.uint8))
    assert GROWING.at_update(call) is call


def test_needs_are_not_monotone():
    """A smaller length that needs more than was captured gets a new workspace."""
    call = GROWING.at_update(fill(3, torch.empty(50, dtype=torch.uint8)))
    assert call.arguments["workspace"].nbytes == 100


@pytest.mark.parametrize(("needed", "made"), [(51, 100), (99, 100), (101, 101), (1000, 1000)])
def test_a_workspace_at_least_doubles(needed, made):
    """All workspaces that a graph went through add up to less than twice the last one."""
    call = GROWING.at_update(fill(needed, torch.empty(50, dtype=torch.uint8)))
    assert call.arguments["workspace"].nbytes == made


def test_a_fixed_workspace_refuses():
    """Without growing, the error has what is needed and what is there."""
    fixed = GrowingWorkspace("nstest::_fill_get_workspace", grow=False)
    with pytest.raises(WorkspaceTooSmall) as caught:
        fixed.at_update(fill(3, torch.empty(50, dtype=torch.uint8)))
    assert (caught.value.needed, caught.value.available) == (100, 50)


def test_a_fixed_workspace_that_fits():
    """Without growing, what fits exactly is taken."""
    fixed = GrowingWorkspace("nstest::_fill_get_workspace", grow=False)
    call = fill(50, torch.empty(50, dtype=torch.uint8))
    assert fixed.at_update(call) is call


def test_no_workspace_to_grow():
    """A call that has no workspace, or takes none, stays as it is, and no helper is asked."""
    absent = GrowingWorkspace("nstest::nope")
    for call in (fill(3), attn()):
        assert absent.at_update(call) is call


def test_outputs_of_a_helper():
    """What the helper returns is a list, in order."""
    made = HelperOutputs("nstest::_attn_infer_output").allocate(attn(heads=4))
    assert [tuple(tensor.shape) for tensor in made] == [(3,), (4,)]


def test_a_single_output_of_a_helper():
    """A helper that returns one tensor gives a list of one."""
    made = HelperOutputs("nstest::_single_infer_output").allocate(OpCall.bind("nstest::single", (Q, [1])))
    assert [tuple(tensor.shape) for tensor in made] == [(3,)]


def test_an_output_like_an_argument():
    """Shape, dtype and device are the argument's; the memory is contiguous."""
    call = OpCall.bind("nstest::single", (torch.zeros(2, 3, dtype=torch.float16).t(), [1]))
    made = EmptyLike("out", like="q").allocate(call)
    assert (made.shape, made.dtype, made.is_contiguous()) == ((3, 2), torch.float16, True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.int8], ids=str)
def test_a_quantised_query_has_a_floating_output(dtype):
    """Latent attention returns the dtype of the rotary query, as torch_npu's meta kernel does."""
    made = EmptyLike("output", like="q_nope", dtype="q_rope").allocate(latent(dtype=dtype))
    assert (made.shape, made.dtype) == ((2, 2, 4), torch.float32)


def test_an_output_per_head():
    """The log-sum-exp has one number for each token and head."""
    made = PerHead("lse", like="q_nope", heads="q_headnum").allocate(latent("lse", tokens=2))
    assert made.shape == (2, 2, 1)


@pytest.mark.parametrize(
    "policy",
    [
        NoWorkspace(),
        MAX,
        GROWING,
        GrowingWorkspace("nstest::_fill_get_workspace", grow=False),
        HelperOutputs("nstest::_attn_infer_output"),
        EmptyLike("out", like="q", dtype="x"),
        PerHead("lse", like="q", heads="heads"),
    ],
    ids=lambda policy: type(policy).__name__,
)
def test_policies_are_values(policy):
    """A policy's repr evaluates to an equal one with the same hash."""
    back = eval(repr(policy))  # noqa: S307 - our own repr
    assert back == policy
    assert hash(back) == hash(policy)


def test_names_of_a_policy():
    """A policy lists what it fills or reads, and the helper that it asks."""
    assert MAX.names == ("workspace",)
    assert NoWorkspace().names == ()
    assert (NoWorkspace().helper, EmptyLike("out", like="q").helper, PerHead("l", like="q", heads="h").helper) == (
        None,
        None,
        None,
    )
    assert EmptyLike("out", like="q").names == ("q",)
    assert PerHead("lse", like="q", heads="heads").names == ("q", "heads")
    assert HelperOutputs("nstest::x").names == ()
    assert toys.ATTN.workspace == MAX
