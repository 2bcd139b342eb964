"""Scaled dot-product attention on padded sequences: the one computation behind every attention kernel here."""

from __future__ import annotations

import math

import torch

__all__ = ["Attended", "attend", "padding", "wide"]

Attended = tuple[torch.Tensor, torch.Tensor]


def wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return `tensor` in the dtype to compute in: float64 stays, everything else becomes float32."""
    return tensor if tensor.dtype == torch.float64 else tensor.to(torch.float32)


def padding(lengths: list[int], width: int) -> torch.Tensor:
    """Return a bool `[batch, width]` that is True past each sequence's length."""
    return torch.arange(width) >= torch.tensor(lengths, dtype=torch.long)[:, None]


def attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    hidden: torch.Tensor,
    absent: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> Attended:
    """Return `softmax(scale * query @ key^T + bias) @ value` and its log-sum-exp.

    `query` is `[B, N, S, D]`, `key` `[B, K, L, D]`, `value` `[B, K, L, Dv]`; head `n` of the query reads head
    `n // (N / K)`. `hidden` (bool, broadcastable to `[B, N, S, L]`) is True where a key must not be seen, `absent`
    (bool, `[B, L]`) where there is no key at all. Results are `[B, N, S, Dv]` and `[B, N, S, 1]`, in float32, or in
    float64 for float64 inputs.

    A row that sees no key gives zeros with a log-sum-exp of +inf: a finite result and a mark that no real row can
    have, never NaN.

    What lies in absent keys and values is not read: device memory past a sequence may hold NaN, and `0 * NaN` is NaN.
    """
    batch, heads, rows, _ = query.shape
    kv_heads, columns = key.shape[1:3]
    group = heads // kv_heads
    folded = wide(query).reshape(batch, kv_heads, group * rows, query.size(3))
    scores = (folded @ wide(key).transpose(2, 3)).reshape(batch, heads, rows, columns) * scale
    if bias is not None:
        scores = scores + wide(bias)
    scores = scores.masked_fill(hidden | absent[:, None, None, :], -math.inf)
    lse = torch.logsumexp(scores, dim=-1, keepdim=True)
    empty = lse == -math.inf
    weights = torch.exp(scores - lse.masked_fill(empty, 0.0))
    present = wide(value).masked_fill(absent[:, None, :, None], 0.0)
    out = weights.reshape(batch, kv_heads, group * rows, columns) @ present
    return out.reshape(batch, heads, rows, value.size(3)), lse.masked_fill(empty, math.inf)
