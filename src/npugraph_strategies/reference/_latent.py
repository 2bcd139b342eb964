"""Kernels of ATB's multi-head latent attention (MLA) over a paged latent cache, and of its workspace helper.

A key is the latent row `ctkv` next to the rotary row `k_rope`, and the value is the latent row itself, so scores are
`q_nope @ ctkv^T + q_rope @ k_rope^T`. Widths are 512 and 64 on the device and free here. Where the public
documentation is silent, the choices are:

- `mask_type` None or `"undefined"`: a mask that is given is applied, and without one every cached token is seen;
- `"mask_type_spec"` (speculative decoding): the same, but without a mask queries are causal, aligned to the right;
- `"mask_type_free"`: causal, aligned to the right; the mask's content is not read;
- a float mask is added to the scaled scores, a bool or integer mask hides where it is not zero;
- a row that sees no token gives zeros, with a log-sum-exp of +inf;
- the log-sum-exp is that of the scaled scores, in the dtype of `q_nope` unless the caller gives a float32 `lse`;
  it is zero when `return_lse` is False, and a given `lse` is then not touched.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs
import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._attention import Attended, attend, padding
from npugraph_strategies.reference._cache import check_table, gather_blocks
from npugraph_strategies.reference._checks import require, require_floating, require_output, require_workspace
from npugraph_strategies.reference._kernels import Kernel
from npugraph_strategies.reference._latent_mask import LatentMask
from npugraph_strategies.reference._layouts import Layout, to_padded
from npugraph_strategies.reference._lengths import exact_lengths
from npugraph_strategies.reference._paged import workspace_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KERNELS"]

_OP: Final = "atb::npu_multi_head_latent_attention"
_TND: Final = Layout("TND", "TND")
# All of these are the same computation; the ring calculation merges the partial results afterwards.
_CALCULATIONS: Final = (None, "calc_type_undefined", "calc_type_spec", "calc_type_ring")
_CACHES: Final = (None, "krope_ctkv")


@attrs.frozen(eq=False)
class _Call:
    """The arguments of one call, in schema order; defaults are the schema's."""

    q_nope: torch.Tensor
    q_rope: torch.Tensor
    ctkv: torch.Tensor
    k_rope: torch.Tensor
    block_tables: torch.Tensor
    context_lens: Sequence[int]
    q_headnum: int
    qk_scale: float
    kv_headnum: int
    mask: torch.Tensor | None = attrs.field(default=None, kw_only=True)
    qseqlen: Sequence[int] | None = attrs.field(default=None, kw_only=True)
    qk_descale: torch.Tensor | None = attrs.field(default=None, kw_only=True)
    pv_descale: torch.Tensor | None = attrs.field(default=None, kw_only=True)
    mask_type: str | None = attrs.field(default=None, kw_only=True)
    calc_type: str | None = attrs.field(default=None, kw_only=True)
    cache_mode: str | None = attrs.field(default=None, kw_only=True)

    @property
    def lse_shape(self) -> tuple[int, ...]:
        """The shape of the log-sum-exp."""
        return (self.q_nope.size(0), self.q_nope.size(1), 1)

    def workspace_bytes(self) -> int:
        """Return the workspace for these very lengths, in bytes."""
        return workspace_bytes(list(self.context_lens), self.ctkv.size(1), self.q_headnum, self.q_nope.size(2))


def _refuse_uncovered(call: _Call) -> None:
    """Raise `NotSimulated` for what the kernel does not cover."""
    for name in ("qk_descale", "pv_descale"):
        if getattr(call, name) is not None:
            raise NotSimulated(_OP, f"the argument {name!r}")
    for name, covered in (("calc_type", _CALCULATIONS), ("cache_mode", _CACHES)):
        if getattr(call, name) not in covered:
            raise NotSimulated(_OP, f"{name}={getattr(call, name)!r}")


def _checked(call: _Call) -> tuple[list[int], list[int], LatentMask]:
    """Return query lengths, key lengths and mask after every check that the device makes before it computes."""
    _refuse_uncovered(call)
    require_floating(_OP, q_nope=call.q_nope, q_rope=call.q_rope, ctkv=call.ctkv, k_rope=call.k_rope)
    heads, kv_heads = call.q_headnum, call.kv_headnum
    require(kv_heads > 0 and heads % kv_heads == 0, _OP, f"kv_headnum must divide {heads} heads; given {kv_heads}")
    ranks = (call.q_nope.dim(), call.q_rope.dim(), call.ctkv.dim(), call.k_rope.dim(), call.block_tables.dim())
    require(ranks == (3, 3, 4, 4, 2), _OP, f"queries, caches, table have 3, 3, 4, 4, 2 dimensions; given {ranks}")
    tokens = call.q_nope.size(0)
    blocks, rows = call.ctkv.shape[:2]
    latent, rope = call.q_nope.size(2), call.q_rope.size(2)
    for name, shape in (
        ("q_nope", (tokens, heads, latent)),
        ("q_rope", (tokens, heads, rope)),
        ("ctkv", (blocks, rows, kv_heads, latent)),
        ("k_rope", (blocks, rows, kv_heads, rope)),
    ):
        given = tuple(getattr(call, name).shape)
        require(given == shape, _OP, f"{name} must have shape {list(shape)}; given {list(given)}")
    batch = call.block_tables.size(0)
    require(batch > 0, _OP, "block_tables must have a row for every sequence; given none")
    dtype = call.block_tables.dtype
    require(dtype == torch.int32, _OP, f"block_tables must be torch.int32; given {dtype}")
    keys = exact_lengths(_OP, "context_lens", call.context_lens, batch, call.block_tables.size(1) * rows)
    check_table(_OP, call.block_tables, keys, call.ctkv, rows)
    queries = exact_lengths(_OP, "qseqlen", [1] * batch if call.qseqlen is None else call.qseqlen, batch, tokens)
    require(sum(queries) == tokens, _OP, f"qseqlen must add up to the {tokens} tokens; given {queries}")
    return queries, keys, LatentMask.read(_OP, call.mask, call.mask_type, queries, keys)


def _computed(call: _Call, queries: list[int], keys: list[int], mask: LatentMask) -> Attended:
    """Return `[tokens, heads, latent]` and `[tokens, heads, 1]` of a checked call."""
    latent = gather_blocks(call.ctkv, call.block_tables, keys)
    rope = gather_blocks(call.k_rope, call.block_tables, keys)
    query = to_padded(torch.cat([call.q_nope, call.q_rope], dim=-1), _TND, call.q_headnum, queries)
    rows, columns = query.size(2), latent.size(2)
    out, lse = attend(
        query,
        torch.cat([latent, rope], dim=-1),
        latent,
        scale=call.qk_scale,
        hidden=mask.hidden(rows, columns) | padding(queries, rows)[:, None, :, None],
        absent=padding(keys, columns),
        bias=mask.bias(rows, columns),
    )
    return _TND.place(out, queries), _TND.place(lse, queries)


def _default(*args: Any, **options: Any) -> torch.Tensor:
    """Run `.default`: a new output."""
    call = _Call(*args, **options)
    out, _ = _computed(call, *_checked(call))
    return _empty_output(call.q_nope, call.q_rope).copy_(out)


def _out(*args: Any, output: torch.Tensor, **options: Any) -> torch.Tensor:
    """Run `.out`: write to `output` and return it."""
    call = _Call(*args, **options)
    checked = _checked(call)
    require_output(_OP, "output", output, tuple(call.q_nope.shape), call.q_rope.dtype)
    return output.copy_(_computed(call, *checked)[0])


def _lse(*args: Any, workspace: torch.Tensor | None = None, **options: Any) -> Attended:
    """Run `.lse`: a new output and a new log-sum-exp."""
    *inputs, return_lse = args
    call = _Call(*inputs, **options)
    checked = _checked(call)
    require_workspace(_OP, workspace, call.workspace_bytes())
    result, sums = _computed(call, *checked)
    out, lse = _empty_outputs(call.q_nope, call.q_rope)
    return out.copy_(result), lse.copy_(sums) if return_lse else lse.zero_()


def _lse_out(
    *args: Any, output: torch.Tensor, lse: torch.Tensor, workspace: torch.Tensor | None = None, **options: Any
) -> Attended:
    """Run `.lse_out`: write to `output`, and to `lse` if it is asked for, and return both."""
    *inputs, return_lse = args
    call = _Call(*inputs, **options)
    checked = _checked(call)
    require_output(_OP, "output", output, tuple(call.q_nope.shape), call.q_rope.dtype)
    if return_lse:
        require_output(_OP, "lse", lse, call.lse_shape, call.q_nope.dtype, torch.float32)
    require_workspace(_OP, workspace, call.workspace_bytes())
    result, sums = _computed(call, *checked)
    output.copy_(result)
    if return_lse:
        lse.copy_(sums)
    return output, lse


def _workspace(*args: Any, **options: Any) -> torch.Tensor:
    """Return an uninitialised workspace for these very lengths."""
    *inputs, _return_lse = args
    call = _Call(*inputs, **options)
    return torch.empty(call.workspace_bytes(), dtype=torch.uint8, device=call.q_nope.device)


def _empty_output(q_nope: torch.Tensor, q_rope: torch.Tensor, *_args: Any, **_options: Any) -> torch.Tensor:
    """Return an uninitialised output; also what `.default` gives for fake tensors."""
    return torch.empty_like(q_nope, dtype=q_rope.dtype, memory_format=torch.contiguous_format)


def _empty_outputs(q_nope: torch.Tensor, q_rope: torch.Tensor, *_args: Any, **_options: Any) -> Attended:
    """Return an uninitialised output and log-sum-exp; also what `.lse` gives for fake tensors."""
    return _empty_output(q_nope, q_rope), q_nope.new_empty(*q_nope.shape[:2], 1)


def _fake_out(*_args: Any, output: torch.Tensor, **_options: Any) -> torch.Tensor:
    """Return the very tensor that was given."""
    return output


def _fake_lse_out(*_args: Any, output: torch.Tensor, lse: torch.Tensor, **_options: Any) -> Attended:
    """Return the very tensors that were given."""
    return output, lse


KERNELS: Final = {
    _OP: Kernel(run=_default, fake=_empty_output),
    f"{_OP}.out": Kernel(run=_out, fake=_fake_out),
    f"{_OP}.lse": Kernel(run=_lse, fake=_empty_outputs),
    f"{_OP}.lse_out": Kernel(run=_lse_out, fake=_fake_lse_out),
    "atb::_npu_multi_head_latent_attention_get_workspace.lse": Kernel(run=_workspace, fake=_workspace),
}
