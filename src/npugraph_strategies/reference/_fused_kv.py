"""Lengths, and keys and values, of a fused call: dense or paged, made into padded tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs
import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._cache import check_table, gather_blocks
from npugraph_strategies.reference._checks import require
from npugraph_strategies.reference._fused_call import NZ_DIMENSIONS
from npugraph_strategies.reference._layouts import to_padded
from npugraph_strategies.reference._lengths import cumulative_lengths, exact_lengths, padded_lengths

if TYPE_CHECKING:
    from npugraph_strategies.reference._fused_call import FusedCall

__all__ = ["Lengths", "check_sources", "padded_source", "resolve_lengths"]


@attrs.frozen
class Lengths:
    """Tokens of every sequence, and the most columns that its keys may take (what a mask has to cover)."""

    queries: list[int]
    keys: list[int]
    capacity: int


def resolve_lengths(call: FusedCall) -> Lengths:
    """Return the lengths of `call`, whose tensors `check_sources` has seen.

    Raises `OperatorRejected` if host lengths or the block table do not fit the tensors. A padded query of
    one row is always whole: the device ignores query lengths there.
    """
    queries = _query_lengths(call)
    batch = len(queries)
    op, name = call.dialect.op, call.dialect.kv_lengths
    if call.block_table is not None:
        return Lengths(queries, *_paged_lengths(call, call.block_table, batch))
    if call.layout.packed:
        require(call.kv_lengths is not None, op, f"layout {call.layout.inputs} needs {name}")
        keys = cumulative_lengths(op, name, call.kv_lengths or ())
        require(len(keys) == batch, op, f"{name} must have {batch} values, one a sequence; given {len(keys)}")
        total = call.key.size(call.layout.inputs.index("T"))
        require(sum(keys) <= total, op, f"{name} ends at {sum(keys)}, the key has {total} tokens")
        return Lengths(queries, keys, max(keys))
    capacity = call.key.size(call.layout.inputs.index("S"))
    return Lengths(queries, padded_lengths(op, name, call.kv_lengths, batch, capacity), capacity)


def _query_lengths(call: FusedCall) -> list[int]:
    """Return the tokens of every sequence of the query."""
    op, name, shape = call.dialect.op, call.dialect.query_lengths, call.shape
    if not call.layout.packed:
        given = None if shape.rows == 1 else call.query_lengths
        return padded_lengths(op, name, given, shape.batch, shape.rows)
    require(call.query_lengths is not None, op, f"layout {call.layout.inputs} needs {name}")
    lengths = cumulative_lengths(op, name, call.query_lengths or ())
    require(
        sum(lengths) == shape.rows,
        op,
        f"{name} must end at T, the {shape.rows} tokens of the query; it ends at {sum(lengths)}",
    )
    return lengths


def _paged_lengths(call: FusedCall, table: torch.Tensor, batch: int) -> tuple[list[int], int]:
    """Return the lengths of the cached sequences and what the block table can hold of each."""
    op, name = call.dialect.op, call.dialect.kv_lengths
    require(
        table.dim() == len(("batch", "blocks")) and table.size(0) == batch,
        op,
        f"block_table must be [{batch}, blocks]; given {list(table.shape)}",
    )
    require(table.dtype == torch.int32, op, f"block_table must be torch.int32; given {table.dtype}")
    require(call.kv_lengths is not None, op, f"a block_table needs {name}")
    capacity = table.size(1) * call.block_size
    read = exact_lengths if call.layout.packed else padded_lengths
    lengths = read(op, name, call.kv_lengths or (), batch, capacity)
    check_table(op, table, lengths, call.key, call.block_size)
    return lengths, capacity


def check_sources(call: FusedCall) -> None:
    """Raise `OperatorRejected` unless key, value and ropes fit the query and one another."""
    op, layout, heads = call.dialect.op, call.layout, call.kv_heads
    sizes = {name: _source_size(call, name, source) for name, source in _sources(call).items()}
    expected = {**sizes["key"]}
    for name, size in sizes.items():
        agrees = size["heads"] == heads and all(size[axis] == expected[axis] for axis in ("outer", "rows"))
        require(agrees, op, f"{name} must have {heads} heads and the key's rows: {expected}; given {size}")
    require(sizes["key"]["dim"] == call.shape.dim, op, f"key heads must be {call.shape.dim} wide; given {sizes['key']}")
    if call.block_table is not None:
        require(call.block_size > 0, op, f"a block_table needs a positive block_size; given {call.block_size}")
        cache = paged_view(call, "key", call.key)
        require(
            cache.size(1) == call.block_size,
            op,
            f"block_size is {call.block_size}, the key cache has blocks of {cache.size(1)}",
        )
    elif not layout.packed:
        require(
            expected["outer"] == call.shape.batch, op, f"key has batch {expected['outer']}, query {call.shape.batch}"
        )
    _check_rope(call, sizes)


def _check_rope(call: FusedCall, sizes: dict[str, dict[str, int]]) -> None:
    """Raise `OperatorRejected` unless the ropes have the rows of query and key, and one width."""
    if call.query_rope is None:
        return
    op, layout = call.dialect.op, call.layout
    wide = sizes["key_rope"]["dim"]
    trailing = call.shape.heads * wide if layout.inputs == "BSH" else wide
    shape = (*call.query.shape[:-1], trailing)
    require(
        tuple(call.query_rope.shape) == shape,
        op,
        f"query_rope must have shape {list(shape)}; given {list(call.query_rope.shape)}",
    )


def _sources(call: FusedCall) -> dict[str, torch.Tensor]:
    """Return what is read per key position, by argument name."""
    rope = {} if call.key_rope is None else {"key_rope": call.key_rope}
    return {"key": call.key, "value": call.value, **rope}


def _source_size(call: FusedCall, name: str, source: torch.Tensor) -> dict[str, int]:
    """Return the sizes of a key-like tensor: batch or blocks, rows, heads, dim."""
    op, heads = call.dialect.op, call.kv_heads
    if call.block_table is not None:
        blocks, rows, found, dim = paged_view(call, name, source).shape
        return {"outer": blocks, "rows": rows, "heads": found, "dim": dim}
    letters = call.layout.inputs
    rank = len(letters)
    require(source.dim() == rank, op, f"a {letters} {name} has {rank} dimensions; given {list(source.shape)}")
    size = dict(zip(letters, source.shape, strict=True))
    if "H" in size:
        require(size["H"] % heads == 0, op, f"H of {name} must be a multiple of {heads} heads; given {size['H']}")
        return {"outer": size["B"], "rows": size["S"], "heads": heads, "dim": size["H"] // heads}
    rows = size["T"] if call.layout.packed else size["S"]
    return {"outer": size.get("B", 1), "rows": rows, "heads": size["N"], "dim": size["D"]}


def paged_view(call: FusedCall, name: str, cache: torch.Tensor) -> torch.Tensor:
    """Return a cache as `[blocks, block_size, heads, dim]`.

    It comes as `[blocks, block_size, H]` or as `[blocks, heads, block_size, dim]`.
    """
    op, heads = call.dialect.op, call.kv_heads
    if cache.dim() == NZ_DIMENSIONS:
        raise NotSimulated(op, f"a {name} cache of five dimensions (NZ format)")
    require(cache.dim() in (3, 4), op, f"a {name} cache has three or four dimensions; given {list(cache.shape)}")
    if cache.dim() == len(("blocks", "heads", "rows", "dim")):
        return cache.transpose(1, 2)
    require(cache.size(2) % heads == 0, op, f"H of the {name} cache must be a multiple of {heads}: {cache.size(2)}")
    return cache.reshape(*cache.shape[:2], heads, cache.size(2) // heads)


def padded_source(call: FusedCall, lengths: Lengths, name: str, source: torch.Tensor) -> torch.Tensor:
    """Return a key-like tensor as `[B, heads, longest, dim]`."""
    if call.block_table is not None:
        return gather_blocks(paged_view(call, name, source), call.block_table, lengths.keys)
    padded = to_padded(source, call.layout, call.kv_heads, lengths.keys)
    return padded[:, :, : max(lengths.keys, default=0)]
