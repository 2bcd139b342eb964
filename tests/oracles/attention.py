"""Attention spelled out: one sequence, one head, one row at a time, over the keys that the row may see.

Slow and plain on purpose, in float64, and independent of the kernels that it judges.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from collections.abc import Callable


class Sequence(NamedTuple):
    """One sequence: `query` is [S, N, D], `key` [L, K, D], `value` [L, K, Dv]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor


def everything(_row: int, _column: int) -> bool:
    """Hide nothing."""
    return True


def by_mode(sequence: Sequence, mode: int, before: int, after: int) -> Callable[[int, int], bool]:
    """Return which keys a row may see, from the text of the public documentation."""
    shift = len(sequence.key) - len(sequence.query)
    rules = {
        0: lambda i, j: i - before <= j <= i + after,
        1: everything,
        2: lambda i, j: j <= i,
        3: lambda i, j: j <= i + shift,
        4: lambda i, j: i + shift - before <= j <= i + shift + after,
    }
    return rules[mode]


def attention(
    sequence: Sequence,
    scale: float,
    visible: Callable[[int, int], bool] = everything,
    bias: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output [S, N, Dv] and log-sum-exp [S, N]; `bias` is [N, S, L]."""
    query, key, value = (tensor.double() for tensor in sequence)
    rows, heads, _ = query.shape
    group = heads // key.size(1)
    out = torch.zeros(rows, heads, value.size(2), dtype=torch.float64)
    lse = torch.full((rows, heads), math.inf, dtype=torch.float64)
    for row in range(rows):
        columns = [column for column in range(len(key)) if visible(row, column)]
        for head in range(heads) if columns else ():
            scores = key[columns, head // group] @ query[row, head] * scale
            if bias is not None:
                scores = scores + bias[head, row, columns].double()
            out[row, head] = torch.softmax(scores, 0) @ value[columns, head // group]
            lse[row, head] = scores.exp().sum().log()
    return out, lse
