"""Kernels of `npu_fused_infer_attention_score` (FIA), versions 1 and 2, and of their helper operators.

Semantics follow the operator's public documentation; where it is silent, the choices are:

- rows of a padded query past its length are zero, with a log-sum-exp of +inf, and so is a row that may see no key;
- `pse_shift` is added after scaling; `query_rope` and `key_rope` are further columns of query and key;
- `block_size` may be any positive number that the cache has, not only a multiple of 16;
- a dense packed key may be longer than its last cumulative length: the rest is not read.

Results are computed in float32 (float64 for float64 inputs) and returned in the dtype of the query.
"""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from npugraph_strategies.reference._attention import Attended, attend, padding
from npugraph_strategies.reference._checks import require, require_output, require_workspace
from npugraph_strategies.reference._fused_call import V1, V2, Dialect, FusedCall, output_shapes
from npugraph_strategies.reference._fused_kv import Lengths, check_sources, padded_source, resolve_lengths
from npugraph_strategies.reference._kernels import Kernel
from npugraph_strategies.reference._layouts import to_padded
from npugraph_strategies.reference._masks import Sparsity, check_mask, fit, hidden_keys

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["KERNELS"]

_SPLITS: Final = 8
_ALIGNMENT: Final = 512
_RESULTS: Final = 2


def _sparsity(call: FusedCall) -> Sparsity:
    """Return which keys may be seen; the device ignores mode and band for padded single rows without rope."""
    by_row = call.layout.packed or call.shape.rows > 1 or call.query_rope is not None
    return Sparsity(call.sparse_mode, call.pre_tokens, call.next_tokens, by_row)


def _checked(call: FusedCall) -> Lengths:
    """Return the lengths of `call` after every check that the device makes before it computes."""
    check_sources(call)
    lengths = resolve_lengths(call)
    op, batch = call.dialect.op, len(lengths.queries)
    rows = max(lengths.queries) if call.layout.packed else call.shape.rows
    check_mask(op, call.atten_mask, _sparsity(call), batch, rows, lengths.capacity)
    if call.pse_shift is not None:
        fit(op, "pse_shift", call.pse_shift, (batch, call.shape.heads, rows, lengths.capacity))
    return lengths


def _computed(call: FusedCall, lengths: Lengths) -> Attended:
    """Return output and log-sum-exp of a checked call."""
    query = to_padded(call.query, call.layout, call.shape.heads, lengths.queries)
    key = padded_source(call, lengths, "key", call.key)
    if call.query_rope is not None and call.key_rope is not None:
        rope = to_padded(call.query_rope, call.layout, call.shape.heads, lengths.queries)
        query = torch.cat([query, rope], dim=-1)
        key = torch.cat([key, padded_source(call, lengths, "key_rope", call.key_rope)], dim=-1)
    rows, columns = query.size(2), key.size(2)
    op, batch = call.dialect.op, len(lengths.queries)
    hidden = hidden_keys(op, call.atten_mask, _sparsity(call), lengths.queries, lengths.keys, (rows, columns))
    bias = call.pse_shift
    out, lse = attend(
        query,
        key,
        padded_source(call, lengths, "value", call.value),
        scale=call.scale,
        hidden=hidden | padding(lengths.queries, rows)[:, None, :, None],
        absent=padding(lengths.keys, columns),
        bias=None if bias is None else fit(op, "pse_shift", bias, (batch, call.shape.heads, rows, columns)),
    )
    if call.layout.packed:
        lse = lse.transpose(1, 2)[~padding(lengths.queries, rows)]
    return call.layout.place(out, lengths.queries), lse


def _default(dialect: Dialect, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> Attended:
    """Run the operator, returning new tensors."""
    call = FusedCall.read(dialect, query, key, value, options)
    lengths = _checked(call)
    return _written(call, lengths, _infer_output(dialect, query, value, **options))


def _out(
    dialect: Dialect,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    out: Sequence[torch.Tensor],
    workspace: torch.Tensor | None = None,
    **options: Any,
) -> Attended:
    """Run the operator into `out` and return its two tensors; the second is not touched unless it is asked for."""
    call = FusedCall.read(dialect, query, key, value, options)
    lengths = _checked(call)
    op = dialect.op
    require(len(out) == _RESULTS, op, f"out must have {_RESULTS} tensors; given {len(out)}")
    out_shape, lse_shape = output_shapes(dialect, query, value, options)
    require_output(op, "out[0]", out[0], out_shape, query.dtype)
    if call.with_lse:
        require_output(op, "out[1]", out[1], lse_shape, torch.float32)
    require_workspace(op, workspace, _max_workspace_bytes(dialect, query, value, options))
    return _written(call, lengths, (out[0], out[1]))


def _written(call: FusedCall, lengths: Lengths, out: Attended) -> Attended:
    """Compute a checked call into `out`, whose second tensor stays as it is unless the call asks for it."""
    result, lse = _computed(call, lengths)
    out[0].copy_(result)
    if call.with_lse:
        out[1].copy_(lse)
    return out


def _max_workspace_bytes(dialect: Dialect, query: torch.Tensor, value: torch.Tensor, options: Mapping[str, Any]) -> int:
    """Return a size that suits all lengths: the partial outputs of `_SPLITS` key splits, in float32.

    The formula is ours, the device's is not public; what callers may rely on is that it depends on shapes alone and
    is never zero.
    """
    shape, _ = output_shapes(dialect, query, value, options)
    partial_bytes = _SPLITS * math.prod(shape) * torch.float32.itemsize
    return _ALIGNMENT * (1 + -(-partial_bytes // _ALIGNMENT))


def _max_workspace(
    dialect: Dialect, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
) -> torch.Tensor:
    """Return an uninitialised workspace that suits all lengths."""
    del key  # the operator's own arguments, so the schema has it
    size = _max_workspace_bytes(dialect, query, value, options)
    return torch.empty(size, dtype=torch.uint8, device=query.device)


def _infer_output(dialect: Dialect, query: torch.Tensor, value: torch.Tensor, **options: Any) -> Attended:
    """Return uninitialised outputs of the shapes and dtypes that the operator gives."""
    out, lse = output_shapes(dialect, query, value, options)
    device = query.device
    return query.new_empty(out), torch.empty(lse, dtype=torch.float32, device=device)


def _fake_default(
    dialect: Dialect, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
) -> Attended:
    """Return outputs of the right metadata."""
    del key
    return _infer_output(dialect, query, value, **options)


def _fake_out(*_args: torch.Tensor, out: Sequence[torch.Tensor], **_options: Any) -> Attended:
    """Return the very tensors that were given."""
    return out[0], out[1]


def _family(dialect: Dialect) -> dict[str, Kernel]:
    """Return the kernels of one version of the operator and its helpers."""
    helper = dialect.op.replace("::", "::_")
    workspace, infer = partial(_max_workspace, dialect), partial(_infer_output, dialect)
    return {
        dialect.op: Kernel(run=partial(_default, dialect), fake=partial(_fake_default, dialect)),
        f"{dialect.op}.out": Kernel(run=partial(_out, dialect), fake=_fake_out),
        f"{helper}_get_max_workspace": Kernel(run=workspace, fake=workspace),
        f"{helper}_infer_output": Kernel(run=infer, fake=infer),
    }


KERNELS: Final = {**_family(V1), **_family(V2)}
