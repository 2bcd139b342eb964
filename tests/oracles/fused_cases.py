"""Random calls of the fused attention operators, each with the result that the oracle expects."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import attrs
import torch
from hypothesis import strategies as st

from oracles.attention import Sequence, attention, by_mode, everything
from oracles.placing import block_table, dense, paged, ragged

NAMES = {
    "npu_fused_infer_attention_score": {
        "heads": "num_heads",
        "scale": "scale",
        "queries": "actual_seq_lengths",
        "keys": "actual_seq_lengths_kv",
        "lse": "softmax_lse_flag",
    },
    "npu_fused_infer_attention_score_v2": {
        "heads": "num_query_heads",
        "scale": "softmax_scale",
        "queries": "actual_seq_qlen",
        "keys": "actual_seq_kvlen",
        "lse": "return_softmax_lse",
    },
}
LAYOUTS = {
    "BNSD": ("BNSD", "BNSD"),
    "BSND": ("BSND", "BSND"),
    "BSH": ("BSH", "BSH"),
    "TND": ("TND", "TND"),
    "NTD": ("NTD", "NTD"),
    "BNSD_BSND": ("BNSD", "BSND"),
    "BSH_NBSD": ("BSH", "NBSD"),
    "TND_NTD": ("TND", "NTD"),
}
TRIANGLE = torch.ones(2048, 2048, dtype=torch.bool).triu(1)
ACCURACY = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 2e-2}


@attrs.frozen(eq=False)
class FusedCase:
    """A call, and the expected output and log-sum-exp of each of its sequences."""

    op: str
    args: tuple[torch.Tensor, ...]
    kwargs: dict[str, Any]
    lengths: list[int]
    heads: int
    expected: list[tuple[torch.Tensor, torch.Tensor]]

    @property
    def packet(self) -> Any:
        """The operator."""
        return getattr(torch.ops.npu, self.op)

    @property
    def with_lse(self) -> bool:
        """Whether the log-sum-exp is asked for."""
        return self.kwargs[NAMES[self.op]["lse"]]

    def results(self, out: torch.Tensor, lse: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Return the operator's results by sequence, as the oracle gives them."""
        inputs, output = LAYOUTS[self.kwargs["input_layout"]]
        outs = ragged(out, output, self.heads, self.lengths)
        sums = ragged(lse, "TND" if "T" in inputs else "BNSD", self.heads, self.lengths)
        return [(left, right.squeeze(-1)) for left, right in zip(outs, sums, strict=True)]


def _lengths(draw: Any, batch: int, most: int) -> list[int]:
    return draw(st.lists(st.integers(0, most), min_size=batch, max_size=batch))


@attrs.frozen(eq=False)
class _Shape:
    """What a case is about, before it has tensors."""

    packed: bool
    queries: list[int]
    keys: list[int]
    kv_heads: int
    heads: int
    dims: tuple[int, int, int]  # of query and key, of their rope (0 is none), of value
    rows: int
    dtype: torch.dtype
    generator: torch.Generator

    def noise(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=self.generator).to(self.dtype)

    def bits(self, *shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=self.generator) < 0.3

    @property
    def by_row(self) -> bool:
        return self.packed or self.rows > 1 or self.dims[1] > 0


@st.composite
def _shapes(draw: Any, packed: bool) -> _Shape:  # noqa: FBT001 - Hypothesis wants positional arguments here
    batch = draw(st.integers(1, 3))
    kv_heads, rows = draw(st.integers(1, 2)), draw(st.integers(1, 4))
    queries = [1] * batch if rows == 1 and not packed else _lengths(draw, batch, rows)
    return _Shape(
        packed=packed,
        queries=queries,
        keys=_lengths(draw, batch, 6),
        kv_heads=kv_heads,
        heads=kv_heads * draw(st.integers(1, 3)),
        dims=(draw(st.integers(1, 5)), draw(st.sampled_from([0, 0, 2])), draw(st.integers(1, 5))),
        rows=max(queries) if packed else rows,
        dtype=draw(st.sampled_from(list(ACCURACY))),
        generator=torch.Generator().manual_seed(draw(st.integers(0, 2**16))),
    )


def _host_lengths(draw: Any, lengths: list[int], full: int | None) -> list[int] | None:
    """Return lengths in one of the spellings of a padded layout; `full` is what None stands for, if anything."""
    spellings: list[list[int] | None] = [lengths, [*lengths, 0, 9]]
    if len(set(lengths)) == 1:
        spellings.append(lengths[:1])
    if set(lengths) == {full}:
        spellings.append(None)
    return draw(st.sampled_from(spellings))


def _masking(draw: Any, shape: _Shape, capacity: int) -> tuple[dict[str, Any], list[Any]]:
    """Return the arguments about masks, and for each sequence which keys a row sees, by position and by mask."""
    mode = draw(st.integers(0, 4))
    before, after = draw(st.integers(-1, 6)), draw(st.integers(-1, 6))
    options: dict[str, Any] = {"sparse_mode": mode, "pre_tokens": before, "next_tokens": after}
    batch, rows = len(shape.keys), shape.rows
    if mode > 1:
        options["atten_mask"] = draw(st.sampled_from([TRIANGLE, TRIANGLE[None], TRIANGLE[None, None]]))
        return options, [None] * batch
    if mode == 0 and draw(st.booleans()):
        return options, [None] * batch
    many, middle = draw(st.sampled_from([1, batch])), draw(st.sampled_from([(), (1,)]))
    if many == 1 and rows > 1 and middle == () and draw(st.booleans()):
        mask = shape.bits(rows, capacity + 2)
        views = [mask] * batch
    else:
        mask = shape.bits(many, *middle, rows, capacity + draw(st.integers(0, 3)))
        views = list((mask[:, 0] if middle else mask).expand(batch, -1, -1))
    options["atten_mask"] = mask.to(draw(st.sampled_from([torch.bool, torch.int8, torch.uint8])))
    return options, views


def _seen(sequence: Sequence, shape: _Shape, options: dict[str, Any], mask: torch.Tensor | None) -> Any:
    mode = options["sparse_mode"]
    positional = mode > 1 or (mode == 0 and mask is not None)
    rule = everything
    if positional and shape.by_row:
        rule = by_mode(sequence, mode, options["pre_tokens"], options["next_tokens"])
    return rule if mask is None else lambda i, j: rule(i, j) and not bool(mask[i, j])


@st.composite
def fused_cases(draw: Any) -> FusedCase:
    """Draw a call in any layout, dense or paged, with any mask, rope, bias, dtype and spelling of lengths."""
    op, layout = draw(st.sampled_from(list(NAMES))), draw(st.sampled_from(list(LAYOUTS)))
    names, inputs = NAMES[op], LAYOUTS[layout][0]
    packed = "T" in inputs
    shape: _Shape = draw(_shapes(packed))
    width, rope, value_dim = shape.dims
    sequences = [
        Sequence(
            shape.noise(queries, shape.heads, width + rope),
            shape.noise(keys, shape.kv_heads, width + rope),
            shape.noise(keys, shape.kv_heads, value_dim),
        )
        for queries, keys in zip(shape.queries, shape.keys, strict=True)
    ]
    kwargs: dict[str, Any] = {names["heads"]: shape.heads, "input_layout": layout, names["scale"]: 0.7}
    kwargs["num_key_value_heads"] = 0 if shape.heads == shape.kv_heads else shape.kv_heads
    kwargs[names["lse"]] = draw(st.booleans())
    by_batch = None if rope == 0 or shape.rows != 1 else shape.queries
    kwargs[names["queries"]] = (
        list(accumulate(shape.queries)) if packed else by_batch or _host_lengths(draw, shape.queries, shape.rows)
    )
    parts = {"key": [s.key[..., :width] for s in sequences], "value": [s.value for s in sequences]}
    if rope:
        parts["key_rope"] = [s.key[..., width:] for s in sequences]
        kwargs["query_rope"] = dense([s.query[..., width:] for s in sequences], inputs, shape.rows)
    capacity = max(shape.keys) if packed else max(shape.keys) + draw(st.integers(0, 2))
    if draw(st.booleans()):
        block_size = draw(st.integers(1, 4))
        columns = -(-max(shape.keys) // block_size) + draw(st.integers(0, 1))
        table, blocks = block_table(shape.keys, block_size, columns, shape.generator)
        form = draw(st.sampled_from(["flat", "by head"]))
        placed = {}
        for name, rows in parts.items():
            cache = paged(rows, table, blocks, block_size)
            placed[name] = cache.flatten(2) if form == "flat" else cache.transpose(1, 2).contiguous()
        capacity = columns * block_size
        kwargs |= {"block_table": table, "block_size": block_size}
        kwargs[names["keys"]] = shape.keys if packed else _host_lengths(draw, shape.keys, None)
    else:
        placed = {name: dense(rows, inputs, capacity) for name, rows in parts.items()}
        kwargs[names["keys"]] = list(accumulate(shape.keys)) if packed else _host_lengths(draw, shape.keys, capacity)
    if rope:
        kwargs["key_rope"] = placed.pop("key_rope")
    options, masks = _masking(draw, shape, capacity)
    bias = None
    if draw(st.booleans()):
        bias = shape.noise(len(sequences), shape.heads, shape.rows, capacity)
        kwargs["pse_shift"] = bias
    expected = [
        attention(sequence, 0.7, _seen(sequence, shape, options, mask), None if bias is None else bias[number])
        for number, (sequence, mask) in enumerate(zip(sequences, masks, strict=True))
    ]
    query = dense([s.query[..., :width] for s in sequences], inputs, shape.rows)
    return FusedCase(
        op=op,
        args=(query, placed["key"], placed["value"]),
        kwargs=kwargs | options,
        lengths=shape.queries,
        heads=shape.heads,
        expected=expected,
    )


def close(actual: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    """Assert that a result computed from inputs of `dtype` is what the oracle computed in float64."""
    accuracy = ACCURACY[dtype]
    torch.testing.assert_close(actual.double(), expected, rtol=accuracy, atol=accuracy)


def past(lengths: list[int], tensor: torch.Tensor, layout: str, heads: int) -> torch.Tensor:
    """Return all values of a padded result that lie past its sequences' lengths."""
    whole = ragged(tensor, layout, heads, [10**6] * len(lengths))
    return torch.cat([row[length:].flatten() for row, length in zip(whole, lengths, strict=True)])
