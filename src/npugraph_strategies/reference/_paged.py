"""Kernels of ATB's paged attention for decoding, and of its workspace helper.

Caches are `[blocks, block_size, kv_heads, dim]`. `context_lens` is an int32 tensor in host memory: ATB reads it when
the operator is launched, which is why a captured graph has to be updated with a new one.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.library import get_ctx

from npugraph_strategies.reference._attention import attend, padding
from npugraph_strategies.reference._cache import blocks_needed, check_table, gather_blocks
from npugraph_strategies.reference._checks import require, require_floating, require_output, require_workspace
from npugraph_strategies.reference._kernels import Kernel

__all__ = ["KERNELS", "workspace_bytes"]

_ATTENTION: Final = "atb::_npu_paged_attention"
_ALIGNMENT: Final = 512
_PARTIAL_COST: Final = 4


def workspace_bytes(lengths: list[int], block_size: int, heads: int, dim: int) -> int:
    """Return the workspace for these very lengths, in bytes.

    The formula is ours, the device's is not public. Like the device's it is not monotone in the lengths: a partly
    filled last block costs more than a full one, so shorter sequences may need more than longer ones.
    """
    blocks = sum(blocks_needed(length, block_size) for length in lengths)
    ragged = sum(length % block_size != 0 for length in lengths)
    return _ALIGNMENT + (blocks + _PARTIAL_COST * ragged) * heads * dim * torch.float32.itemsize


def _lengths(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    kv_heads: int,
    heads: int,
    table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
) -> list[int]:
    """Return one length a sequence, after every check that does not depend on the workspace."""
    op = _ATTENTION
    require_floating(op, query=query, key_cache=key_cache, value_cache=value_cache)
    require(kv_heads > 0 and heads % kv_heads == 0, op, f"num_kv_heads must divide {heads} heads; given {kv_heads}")
    ranks = (query.dim(), key_cache.dim(), value_cache.dim(), table.dim(), context_lens.dim())
    require(ranks == (3, 4, 4, 2, 1), op, f"query, caches, table, lengths have 3, 4, 4, 2, 1 dimensions; given {ranks}")
    batch, found, dim = query.shape
    require(found == heads, op, f"the query has {found} heads, {heads} were declared")
    blocks, block_size, _, value_dim = value_cache.shape
    expected = ((blocks, block_size, kv_heads, dim), (blocks, block_size, kv_heads, value_dim))
    given = (tuple(key_cache.shape), tuple(value_cache.shape))
    require(given == expected, op, f"caches must have shapes {expected}; given {given}")
    host = context_lens.device.type == "cpu" and context_lens.dtype == torch.int32
    require(host, op, f"context_lens must be int32 on the host; given {context_lens.dtype} on {context_lens.device}")
    require(len(context_lens) == batch, op, f"context_lens must have {batch} values; given {len(context_lens)}")
    require(table.size(0) >= batch, op, f"block_table must have {batch} rows; given {table.size(0)}")
    require(table.dtype == torch.int32, op, f"block_table must be torch.int32; given {table.dtype}")
    lengths: list[int] = context_lens.tolist()
    require(min(lengths, default=0) >= 0, op, f"context_lens must not be negative; given {lengths}")
    check_table(op, table, lengths, key_cache, block_size)
    require_output(op, "out", out, (batch, heads, value_dim), query.dtype)
    return lengths


def _paged_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
    *,
    workspace: torch.Tensor | None = None,
) -> None:
    """Write to `out` the attention of one query token a sequence over its cached tokens; no tokens give zeros."""
    lengths = _lengths(query, key_cache, value_cache, num_kv_heads, num_heads, block_table, context_lens, out)
    needed = workspace_bytes(lengths, key_cache.size(1), num_heads, query.size(2))
    require_workspace(_ATTENTION, workspace, needed)
    absent = padding(lengths, max(lengths, default=0))
    attended, _ = attend(
        query[:, :, None],
        gather_blocks(key_cache, block_table, lengths),
        gather_blocks(value_cache, block_table, lengths),
        scale=scale_value,
        hidden=absent.new_zeros(1, 1, 1, 1),
        absent=absent,
    )
    out.copy_(attended[:, :, 0])


def _paged_workspace(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    num_kv_heads: int,
    num_heads: int,
    scale_value: float,
    block_table: torch.Tensor,
    context_lens: torch.Tensor,
    out: torch.Tensor,
) -> torch.Tensor:
    """Return an uninitialised workspace for these very lengths."""
    del scale_value  # the operator's own arguments, so the schema has it
    lengths = _lengths(query, key_cache, value_cache, num_kv_heads, num_heads, block_table, context_lens, out)
    size = workspace_bytes(lengths, key_cache.size(1), num_heads, query.size(2))
    return torch.empty(size, dtype=torch.uint8, device=query.device)


def _fake_workspace(query: torch.Tensor, *_args: Any) -> torch.Tensor:
    """Return a workspace of unknown size: it depends on the values of `context_lens`, which fake tensors lack."""
    return torch.empty(get_ctx().new_dynamic_size(), dtype=torch.uint8, device=query.device)


def _nothing(*_args: Any, **_options: Any) -> None:
    """Return None, as operators do that only write."""


KERNELS: Final = {
    _ATTENTION: Kernel(run=_paged_attention, fake=_nothing),
    f"{_ATTENTION}_get_workspace": Kernel(run=_paged_workspace, fake=_fake_workspace),
}
