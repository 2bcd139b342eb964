"""Paged caches: rows of a block table turned into padded keys and values, and tokens written to their slots."""

from __future__ import annotations

import torch

from npugraph_strategies.reference._checks import require

__all__ = ["blocks_needed", "check_slots", "check_table", "gather_blocks", "write_slots"]


def blocks_needed(length: int, block_size: int) -> int:
    """Return how many blocks hold `length` tokens."""
    return -(-length // block_size)


def check_table(op: str, table: torch.Tensor, lengths: list[int], cache: torch.Tensor, block_size: int) -> None:
    """Raise `OperatorRejected` unless `table` names an existing block for every token of every sequence.

    Entries past a sequence's last block are padding: they are not read, so they may hold anything.
    """
    needed = [blocks_needed(length, block_size) for length in lengths]
    require(
        max(needed, default=0) <= table.size(1),
        op,
        f"the block table has {table.size(1)} columns, lengths {lengths} need {max(needed, default=0)}",
    )
    used = torch.arange(table.size(1)) < torch.tensor(needed, dtype=torch.long)[:, None]
    ids = table[: len(lengths)][used]
    wrong = ids[(ids < 0) | (ids >= cache.size(0))]
    require(wrong.numel() == 0, op, f"block ids must lie in 0 to {cache.size(0) - 1}; the table holds {wrong.tolist()}")


def gather_blocks(cache: torch.Tensor, table: torch.Tensor, lengths: list[int]) -> torch.Tensor:
    """Return the cached rows as `[batch, heads, longest, dim]`; `cache` is `[blocks, block_size, heads, dim]`.

    Rows past a sequence's length are whatever the cache holds there.
    """
    block_size = cache.size(1)
    longest = max(lengths, default=0)
    positions = torch.arange(longest)
    valid = positions < torch.tensor(lengths, dtype=torch.long)[:, None]
    blocks = table[: len(lengths)].long()[:, positions // block_size].masked_fill(~valid, 0)
    return cache[blocks, positions % block_size].transpose(1, 2)


def check_slots(op: str, cache: torch.Tensor, slots: torch.Tensor) -> None:
    """Raise `OperatorRejected` unless every slot lies in `cache` (`[blocks, block_size, ...]`) or is negative."""
    capacity = cache.size(0) * cache.size(1)
    wrong = slots[slots >= capacity]
    require(wrong.numel() == 0, op, f"slots must be below {capacity}; given {wrong.tolist()}")


def write_slots(cache: torch.Tensor, rows: torch.Tensor, slots: torch.Tensor) -> None:
    """Write `rows` (`[tokens, ...]`) to their slots of `cache` (`[blocks, block_size, ...]`), in place.

    Slot `s` is offset `s % block_size` of block `s // block_size`; a negative slot is padding and is skipped.
    Of two rows for one slot either may win, as on the device.
    """
    keep = slots >= 0
    kept = slots[keep].long()
    cache[kept // cache.size(1), kept % cache.size(1)] = rows[keep]
