"""Random calls of ATB's paged and latent attention, each with the result that the oracle expects."""

from __future__ import annotations

from typing import Any

import attrs
import torch
from hypothesis import strategies as st

from oracles.attention import Sequence, attention, by_mode, everything
from oracles.placing import block_table, paged

DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
SCALE = 0.6


@attrs.frozen(eq=False)
class PagedCase:
    """A call, the shape of its output, and the expected output and log-sum-exp of all tokens, one after the other."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    shape: tuple[int, ...]
    expected: tuple[torch.Tensor, torch.Tensor]


def _joined(results: list[tuple[torch.Tensor, torch.Tensor]]) -> tuple[torch.Tensor, torch.Tensor]:
    outs, sums = zip(*results, strict=True)
    return torch.cat(outs), torch.cat(sums)


@attrs.frozen(eq=False)
class _Sizes:
    heads: int
    kv_heads: int
    keys: list[int]
    block_size: int
    table: torch.Tensor
    blocks: int
    dtype: torch.dtype
    generator: torch.Generator

    def noise(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.dtype)

    def cache(self, rows: list[torch.Tensor]) -> torch.Tensor:
        return paged(rows, self.table, self.blocks, self.block_size)


@st.composite
def _sizes(draw: Any) -> _Sizes:
    keys = draw(st.lists(st.integers(0, 7), min_size=1, max_size=3))
    kv_heads, block_size = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    columns = -(-max(keys) // block_size) + draw(st.integers(0, 1))
    table, blocks = block_table(keys, block_size, columns, generator)
    heads = kv_heads * draw(st.integers(1, 3))
    return _Sizes(heads, kv_heads, keys, block_size, table, blocks, draw(st.sampled_from(DTYPES)), generator)


@st.composite
def paged_cases(draw: Any) -> PagedCase:
    """Draw a call of `_npu_paged_attention`, `out` and `workspace` left out."""
    sizes: _Sizes = draw(_sizes())
    dim, value_dim = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    sequences = [
        Sequence(
            sizes.noise(1, sizes.heads, dim),
            sizes.noise(length, sizes.kv_heads, dim),
            sizes.noise(length, sizes.kv_heads, value_dim),
        )
        for length in sizes.keys
    ]
    query = torch.cat([sequence.query for sequence in sequences])
    caches = sizes.cache([s.key for s in sequences]), sizes.cache([s.value for s in sequences])
    lengths = torch.tensor(sizes.keys, dtype=torch.int32)
    return PagedCase(
        args=(query, *caches, sizes.kv_heads, sizes.heads, SCALE, sizes.table, lengths),
        kwargs={},
        shape=(len(query), sizes.heads, value_dim),
        expected=_joined([attention(sequence, SCALE) for sequence in sequences]),
    )


def _latent_mask(draw: Any, sizes: _Sizes, queries: list[int]) -> tuple[dict[str, Any], list[torch.Tensor] | None]:
    """Return the arguments about masks and the mask [S, L] of each sequence; None stands for the rule of the type."""
    kind = draw(st.sampled_from([None, "undefined", "mask_type_spec", "mask_type_free"]))
    form = draw(st.sampled_from(["none", "by token", "by position", "by sequence"]))
    batch, rows, columns = len(queries), max(queries), max(sizes.keys) + draw(st.integers(0, 2))
    shape = {"by token": (sum(queries),), "by position": (rows,), "by sequence": (batch, rows)}
    if form == "none" or (form == "by position" and rows == sum(queries) and batch > 1):
        return {"mask_type": kind}, None
    hidden = torch.rand(*shape[form], columns, generator=sizes.generator) < 0.4
    views = {
        "by token": lambda: list(hidden.split(queries)),
        "by position": lambda: [hidden] * batch,
        "by sequence": lambda: list(hidden),
    }[form]()
    given = hidden
    if draw(st.booleans()):
        given = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf")).to(sizes.dtype)
    return {"mask_type": kind, "mask": given}, None if kind == "mask_type_free" else views


@st.composite
def latent_cases(draw: Any) -> PagedCase:
    """Draw a call of `npu_multi_head_latent_attention.default`."""
    sizes: _Sizes = draw(_sizes())
    queries = draw(st.lists(st.integers(0, 3), min_size=len(sizes.keys), max_size=len(sizes.keys)))
    queries = draw(st.sampled_from([queries, [1] * len(sizes.keys)]))
    latent, rope = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    rows = [sizes.noise(length, sizes.kv_heads, latent + rope) for length in sizes.keys]
    asked = [sizes.noise(length, sizes.heads, latent + rope) for length in queries]
    sequences = [Sequence(query, key, key[..., :latent]) for query, key in zip(asked, rows, strict=True)]
    options, masks = _latent_mask(draw, sizes, queries)
    causal = options["mask_type"] == "mask_type_free" or (
        options["mask_type"] == "mask_type_spec" and "mask" not in options
    )
    results = []
    for number, sequence in enumerate(sequences):
        rule = by_mode(sequence, 3, 0, 0) if causal else everything
        if masks is not None:
            rule = lambda i, j, mask=masks[number]: not bool(mask[i, j])
        results.append(attention(sequence, SCALE, rule))
    if set(queries) != {1} or draw(st.booleans()):
        options["qseqlen"] = queries
    options["calc_type"] = draw(st.sampled_from([None, "calc_type_undefined", "calc_type_ring"]))
    query = torch.cat(asked)
    caches = sizes.cache([row[..., :latent] for row in rows]), sizes.cache([row[..., latent:] for row in rows])
    queried = query[..., :latent].contiguous(), query[..., latent:].contiguous()
    return PagedCase(
        args=(*queried, *caches, sizes.table, sizes.keys, sizes.heads, SCALE, sizes.kv_heads),
        kwargs=options,
        shape=(len(query), sizes.heads, latent),
        expected=_joined(results),
    )
