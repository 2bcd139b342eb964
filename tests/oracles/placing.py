"""Ragged sequences laid out as operators want them, with NaN wherever nothing must be read."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

_PADDED = {"BSND": (0, 1, 2, 3), "BNSD": (0, 2, 1, 3), "BSH": (0, 1, 2, 3), "NBSD": (2, 0, 1, 3)}


def dense(rows: Sequence[torch.Tensor], layout: str, width: int) -> torch.Tensor:
    """Return sequences ([length, heads, dim] each) in `layout`, padded to `width` where the layout pads."""
    if "T" in layout:
        packed = torch.cat(list(rows))
        return packed if layout == "TND" else packed.transpose(0, 1).contiguous()
    padded = rows[0].new_full((len(rows), width, *rows[0].shape[1:]), math.nan)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    placed = padded.permute(_PADDED[layout]).contiguous()
    return placed.flatten(2) if layout == "BSH" else placed


def ragged(tensor: torch.Tensor, layout: str, heads: int, lengths: Sequence[int]) -> list[torch.Tensor]:
    """Return the sequences ([length, heads, dim] each) of a tensor in `layout`: the way back from `dense`."""
    if "T" in layout:
        return list((tensor if layout == "TND" else tensor.transpose(0, 1)).split(list(lengths)))
    if layout == "BSH":
        tensor = tensor.unflatten(2, (heads, -1))
    order = _PADDED[layout]
    padded = tensor.permute([order.index(axis) for axis in range(4)])
    return [row[:length] for row, length in zip(padded, lengths, strict=True)]


def paged(rows: Sequence[torch.Tensor], table: torch.Tensor, blocks: int, block_size: int) -> torch.Tensor:
    """Return sequences ([length, heads, dim] each) in a cache [blocks, block_size, heads, dim], by `table`."""
    cache = rows[0].new_full((blocks, block_size, *rows[0].shape[1:]), math.nan)
    for row, ids in zip(rows, table.tolist(), strict=True):
        for position, token in enumerate(row):
            cache[ids[position // block_size], position % block_size] = token
    return cache


def block_table(
    lengths: Sequence[int], block_size: int, columns: int, generator: torch.Generator
) -> tuple[torch.Tensor, int]:
    """Return a table of shuffled blocks, -7 where no block is needed, and the number of blocks in the cache."""
    needed = [-(-length // block_size) for length in lengths]
    blocks = sum(needed) + 2
    free = torch.randperm(blocks, generator=generator).tolist()
    table = [[free.pop() for _ in range(count)] + [-7] * (columns - count) for count in needed]
    return torch.tensor(table, dtype=torch.int32), blocks
