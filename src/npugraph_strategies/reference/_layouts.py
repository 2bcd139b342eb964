"""Layouts of the fused operators: what the letters of `input_layout` say about queries, outputs and dense caches.

B is the batch, S the padded length, T all tokens of a packed batch, N the heads, D the size of a head, H is N x D.
A name such as `BNSD_BSND` gives the layout of the inputs, then the one of the output (shapes as in the meta
registrations of torch_npu 2.13). Kernels compute on `[B, N, S, D]`; this module is the way there and back.
"""

from __future__ import annotations

from typing import Final

import attrs
import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._attention import padding
from npugraph_strategies.reference._checks import require

__all__ = ["Layout", "QueryShape", "find_layout", "query_shape", "to_padded"]

# How to permute [B, N, S, D] for each padded output layout, and [T, N, D] for each packed one.
_FROM_BNSD: Final = {"BNSD": (0, 1, 2, 3), "BSND": (0, 2, 1, 3), "BSH": (0, 2, 1, 3), "NBSD": (1, 0, 2, 3)}
_FROM_TND: Final = {"TND": (0, 1, 2), "NTD": (1, 0, 2)}
_OUTPUTS: Final = {
    "BSH": ("BSH", "BNSD", "NBSD"),
    "BSND": ("BSND", "BNSD", "NBSD"),
    "BNSD": ("BNSD", "BSND", "NBSD"),
    "TND": ("TND", "NTD"),
    "NTD": ("NTD", "TND"),
}


@attrs.frozen
class Layout:
    """The layout of the inputs and the layout of the output."""

    inputs: str
    output: str

    @property
    def packed(self) -> bool:
        """Whether sequences lie one after the other along T, with no padding."""
        return "T" in self.inputs

    def place(self, padded: torch.Tensor, lengths: list[int]) -> torch.Tensor:
        """Return `padded` (`[B, N, S, D]`) in the output layout; packed layouts keep the first `lengths` rows."""
        if self.packed:
            tokens = padded.transpose(1, 2)[~padding(lengths, padded.size(2))]
            return tokens.permute(_FROM_TND[self.output])
        placed = padded.permute(_FROM_BNSD[self.output])
        return placed.flatten(2) if self.output == "BSH" else placed

    def output_shape(self, query: QueryShape, value_dim: int) -> tuple[int, ...]:
        """Return the shape of the output."""
        if self.packed:
            sizes = (query.rows, query.heads, value_dim)
            return tuple(sizes[axis] for axis in _FROM_TND[self.output])
        padded = (query.batch, query.heads, query.rows, value_dim)
        placed = tuple(padded[axis] for axis in _FROM_BNSD[self.output])
        return (*placed[:2], query.heads * value_dim) if self.output == "BSH" else placed

    def lse_shape(self, query: QueryShape) -> tuple[int, ...]:
        """Return the shape of the log-sum-exp: `[T, N, 1]` or `[B, N, S, 1]`, whatever the output layout."""
        return (query.rows, query.heads, 1) if self.packed else (query.batch, query.heads, query.rows, 1)


@attrs.frozen
class QueryShape:
    """Sizes of a query; `rows` is S, or T with `batch` 1 in a packed layout."""

    batch: int
    heads: int
    rows: int
    dim: int


def find_layout(op: str, name: str) -> Layout:
    """Return the layout called `name`.

    Raises `NotSimulated` for the one that the operator knows and this package does not, `OperatorRejected` for others.
    """
    if name == "NSD":
        raise NotSimulated(op, "input_layout='NSD'")
    inputs, _, output = name.partition("_")
    known = inputs in _OUTPUTS and (output in _OUTPUTS[inputs] if output else "_" not in name)
    require(known, op, f"input_layout must be BSH, BSND, BNSD, TND, NTD or a pair such as BNSD_BSND; given {name!r}")
    return Layout(inputs, output or inputs)


def query_shape(op: str, query: torch.Tensor, layout: Layout, heads: int) -> QueryShape:
    """Return the sizes of `query`; raises `OperatorRejected` if it does not fit its layout or `heads`."""
    rank = len(layout.inputs)
    require(query.dim() == rank, op, f"a {layout.inputs} query has {rank} dimensions; given {list(query.shape)}")
    if layout.inputs == "BSH":
        require(query.size(2) % heads == 0, op, f"H must be a multiple of {heads} heads; given {query.size(2)}")
        return QueryShape(query.size(0), heads, query.size(1), query.size(2) // heads)
    size = dict(zip(layout.inputs, query.shape, strict=True))
    require(size["N"] == heads, op, f"the query has {size['N']} heads, {heads} were declared")
    return QueryShape(size.get("B", 1), heads, size["T" if layout.packed else "S"], size["D"])


def to_padded(tensor: torch.Tensor, layout: Layout, heads: int, lengths: list[int]) -> torch.Tensor:
    """Return a query, or a dense key or value, as `[B, N, S, D]`.

    `lengths` splits a packed tensor into sequences and is not read otherwise. Rows past a length hold anything.
    """
    if layout.packed:
        tokens = tensor if layout.inputs == "TND" else tensor.transpose(0, 1)
        ends = torch.tensor(lengths, dtype=torch.long).cumsum(0)
        starts = (ends - torch.tensor(lengths, dtype=torch.long))[:, None]
        rows = starts + torch.arange(max(lengths))
        return tokens[rows.masked_fill(rows >= ends[:, None], 0)].transpose(1, 2)
    if layout.inputs == "BSH":
        return tensor.reshape(*tensor.shape[:2], heads, tensor.size(2) // heads).transpose(1, 2)
    return tensor if layout.inputs == "BNSD" else tensor.transpose(1, 2)
