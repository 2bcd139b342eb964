"""Toy operators that cover what schemas can say, for tests of calls and handlers; defined once per process."""

from __future__ import annotations

import torch

from npugraph_strategies.handlers import (
    EmptyLike,
    GrowingWorkspace,
    HelperOutputs,
    MaxWorkspace,
    OutVariant,
    UpdateParams,
)

LIBRARY = torch.library.Library("nstest", "DEF")

_ATTN = "Tensor q, int[] lens, *, float scale=1.0, int heads=1, int[]? other=None"
_MIX = (
    "Tensor x, int[] sizes, float scale=1.0, int shift=0, *, bool flag=False, str mode='a', int[]? lens=None, "
    "Tensor? extra=None"
)
_KINDS = (
    "Tensor x, *, int i=0, float f=0.0, bool b=False, str s='', Scalar n=0, int? j=None, int[] li=[], float[] lf=[], "
    "bool[]? lb=None, str[]? ls=None, int[]? lo=None, Tensor? t=None, Tensor[]? lt=None"
)
_SCHEMAS = (
    f"mix({_MIX}) -> Tensor",
    "lists(Tensor[] xs, Tensor?[] maybe, *, int[]? lens=None, int[2] pair=1) -> Tensor",
    f"kinds({_KINDS}) -> Tensor",
    f"attn({_ATTN}) -> (Tensor, Tensor)",
    f"attn.out({_ATTN}, Tensor? workspace=None, Tensor[] out) -> (Tensor, Tensor)",
    "_attn_get_max_workspace(Tensor q, *, int heads=1) -> Tensor",
    "_attn_infer_output(Tensor q, *, int heads=1) -> (Tensor, Tensor)",
    "single(Tensor q, int[] lens) -> Tensor",
    "single.out(Tensor q, int[] lens, *, Tensor(a!) out) -> Tensor(a!)",
    "_single_infer_output(Tensor q) -> Tensor",
    "fill(Tensor q, Tensor lens, Tensor table, Tensor(a!) out, *, Tensor? workspace=None) -> ()",
    "_fill_get_workspace(Tensor q, Tensor lens) -> Tensor",
)


def _mix(x, sizes, scale=1.0, shift=0, *, flag=False, mode="a", lens=None, extra=None):
    numbers = [*sizes, shift, int(flag), len(mode), *(lens or ())]
    weighted = sum(10.0**i * number for i, number in enumerate(numbers))
    result = x * scale + weighted
    return result if extra is None else result + extra


def _lists(xs, maybe, *, lens=None, pair=(1, 1)):
    present = [tensor for tensor in maybe if tensor is not None]
    return torch.stack([*xs, *present]).sum(0) + len(maybe) + 10 * sum(lens or ()) + 100 * sum(pair)


def _attn(q, lens, *, scale=1.0, heads=1, other=None):
    return q * scale + 10 * sum(lens) + 1000 * sum(other or ()), q.new_full((heads,), float(sum(lens)))


def _attn_out(q, lens, *, scale=1.0, heads=1, other=None, workspace=None, out):
    assert workspace is None or workspace.numel() >= q.numel() * heads
    for target, result in zip(out, _attn(q, lens, scale=scale, heads=heads, other=other), strict=True):
        target.copy_(result)
    return out[0], out[1]


def _fill(q, lens, table, out, *, workspace=None):
    assert workspace is None or workspace.numel() >= fill_needs(lens)
    out.copy_(q + 10 * lens.sum() + 1000 * table.sum())


def fill_needs(lens):
    """Return the workspace of `nstest::fill` in bytes, which does not grow with the lengths."""
    longest = int(lens.max())
    return 100 if longest == 3 else longest


def _bytes(q, count):
    return q.new_empty(count, dtype=torch.uint8)


_KERNELS = {
    "mix": _mix,
    "lists": _lists,
    "kinds": lambda x, **_: x.clone(),
    "attn": _attn,
    "attn.out": _attn_out,
    "_attn_get_max_workspace": lambda q, *, heads=1: _bytes(q, q.numel() * heads),
    "_attn_infer_output": lambda q, *, heads=1: (torch.empty_like(q), q.new_empty(heads)),
    "single": lambda q, lens: q + 10 * sum(lens),
    "single.out": lambda q, lens, *, out: out.copy_(q + 10 * sum(lens)),
    "_single_infer_output": torch.empty_like,
    "fill": _fill,
    "_fill_get_workspace": lambda q, lens: _bytes(q, fill_needs(lens)),
}

for _schema in _SCHEMAS:
    LIBRARY.define(_schema)
for _name, _kernel in _KERNELS.items():
    for _key in ("CPU", "PrivateUse1"):  # the simulated device, an NPU
        LIBRARY.impl(_name, _kernel, _key)

ATTN = OutVariant(
    ("nstest::attn.default", "nstest::attn.out"),
    ("lens", "other"),
    workspace=MaxWorkspace("nstest::_attn_get_max_workspace"),
    outputs=(HelperOutputs("nstest::_attn_infer_output"),),
)
SINGLE = OutVariant(("nstest::single.default", "nstest::single.out"), "lens", outputs=(EmptyLike("out", like="q"),))
FILL = UpdateParams("nstest::fill", "lens", rebind="table", workspace=GrowingWorkspace("nstest::_fill_get_workspace"))
MIX = UpdateParams("nstest::mix", ("lens", "sizes"), rebind="extra")
LISTS = UpdateParams("nstest::lists", ("lens", "pair"))
