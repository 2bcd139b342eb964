"""One call of a fused attention operator, version 1 or 2, in one vocabulary.

The two versions are the same operator with other argument names. A `Dialect` holds the names of one version, so that
errors speak of the argument that the caller wrote, and `FusedCall` holds the values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import attrs

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._checks import require, require_floating
from npugraph_strategies.reference._layouts import Layout, QueryShape, find_layout, query_shape

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import torch

__all__ = ["NZ_DIMENSIONS", "V1", "V2", "Dialect", "FusedCall", "output_shapes"]

_UNLIMITED: Final = 2147483647
NZ_DIMENSIONS: Final = 5  # [blocks, heads, dim / 16, block_size, 16]


@attrs.frozen
class Dialect:
    """What one version of the operator calls its arguments."""

    op: str
    heads: str
    scale: str
    query_lengths: str
    kv_lengths: str
    with_lse: str
    uncovered: tuple[str, ...]

    def refuse_uncovered(self, options: Mapping[str, Any]) -> None:
        """Raise `NotSimulated` for the first argument given that the kernel does not cover."""
        for name in self.uncovered:
            if options.get(name) is not None:
                raise NotSimulated(self.op, f"the argument {name!r}")


V1: Final = Dialect(
    op="npu::npu_fused_infer_attention_score",
    heads="num_heads",
    scale="scale",
    query_lengths="actual_seq_lengths",
    kv_lengths="actual_seq_lengths_kv",
    with_lse="softmax_lse_flag",
    uncovered=(
        *("dequant_scale1", "quant_scale1", "dequant_scale2", "quant_scale2", "quant_offset2"),
        *("antiquant_scale", "antiquant_offset", "key_antiquant_scale", "key_antiquant_offset"),
        *("value_antiquant_scale", "value_antiquant_offset", "key_rope_antiquant_scale"),
        *("query_padding_size", "kv_padding_size"),
        *("key_shared_prefix", "value_shared_prefix", "actual_shared_prefix_len"),
    ),
)

V2: Final = Dialect(
    op="npu::npu_fused_infer_attention_score_v2",
    heads="num_query_heads",
    scale="softmax_scale",
    query_lengths="actual_seq_qlen",
    kv_lengths="actual_seq_kvlen",
    with_lse="return_softmax_lse",
    uncovered=(
        *("dequant_scale_query", "dequant_scale_key", "dequant_offset_key", "dequant_scale_value"),
        *("dequant_offset_value", "dequant_scale_key_rope", "quant_scale_out", "quant_offset_out", "quant_scale_p"),
        "learnable_sink",
        *("query_dtype", "key_dtype", "value_dtype", "query_rope_dtype", "key_rope_dtype"),
        *("key_shared_prefix_dtype", "value_shared_prefix_dtype", "dequant_scale_query_dtype"),
        *("dequant_scale_key_dtype", "dequant_scale_value_dtype", "dequant_scale_key_rope_dtype", "out_dtype"),
    ),
)


@attrs.frozen(eq=False)
class FusedCall:
    """The arguments of one call; everything that shapes alone can prove was checked by `read`."""

    dialect: Dialect
    layout: Layout
    shape: QueryShape
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    kv_heads: int
    query_rope: torch.Tensor | None
    key_rope: torch.Tensor | None
    pse_shift: torch.Tensor | None
    atten_mask: torch.Tensor | None
    block_table: torch.Tensor | None
    query_lengths: Sequence[int] | None
    kv_lengths: Sequence[int] | None
    scale: float
    pre_tokens: int
    next_tokens: int
    sparse_mode: int
    block_size: int
    with_lse: bool

    @classmethod
    def read(
        cls,
        dialect: Dialect,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        options: Mapping[str, Any],
    ) -> FusedCall:
        """Return the call that `options`, in the names of `dialect`, describe.

        Raises `NotSimulated` for an argument that the kernel does not cover, `OperatorRejected` for one that the
        operator does not take.
        """
        dialect.refuse_uncovered(options)
        optional = {name: options.get(name) for name in ("query_rope", "key_rope", "pse_shift", "atten_mask")}
        rope = {name: optional[name] for name in ("query_rope", "key_rope")}
        if not query.dtype.is_floating_point:
            raise NotSimulated(dialect.op, f"a query of {query.dtype}")
        require_floating(dialect.op, query=query, key=key, value=value, **rope)
        together = (optional["query_rope"] is None) == (optional["key_rope"] is None)
        require(together, dialect.op, "query_rope and key_rope go together; given one of them")
        layout, shape, kv_heads = _geometry(dialect, query, options)
        return cls(
            dialect=dialect,
            layout=layout,
            shape=shape,
            query=query,
            key=key,
            value=value,
            kv_heads=kv_heads,
            **optional,
            block_table=options.get("block_table"),
            query_lengths=options.get(dialect.query_lengths),
            kv_lengths=options.get(dialect.kv_lengths),
            scale=options.get(dialect.scale, 1.0),
            pre_tokens=options.get("pre_tokens", _UNLIMITED),
            next_tokens=options.get("next_tokens", _UNLIMITED),
            sparse_mode=options.get("sparse_mode", 0),
            block_size=options.get("block_size", 0),
            with_lse=options.get(dialect.with_lse, False),
        )


def _geometry(dialect: Dialect, query: torch.Tensor, options: Mapping[str, Any]) -> tuple[Layout, QueryShape, int]:
    """Return layout, sizes of the query and number of key/value heads (0 is as many as the query has)."""
    heads = options.get(dialect.heads, 1)
    require(heads > 0, dialect.op, f"{dialect.heads} must be positive; given {heads}")
    kv_heads = options.get("num_key_value_heads", 0)
    divides = kv_heads == 0 or (kv_heads > 0 and heads % kv_heads == 0)
    require(divides, dialect.op, f"num_key_value_heads must divide {heads} or be 0; given {kv_heads}")
    layout = find_layout(dialect.op, options.get("input_layout", "BSH"))
    return layout, query_shape(dialect.op, query, layout, heads), kv_heads if kv_heads > 0 else heads


def output_shapes(
    dialect: Dialect, query: torch.Tensor, value: torch.Tensor, options: Mapping[str, Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of the output and of the log-sum-exp, which is `[0]` unless it is asked for.

    They follow from shapes and flags only, as in the meta registrations of torch_npu 2.13. Raises `NotSimulated` and
    `OperatorRejected` as `FusedCall.read` does.
    """
    dialect.refuse_uncovered(options)
    layout, shape, kv_heads = _geometry(dialect, query, options)
    dim = _value_dim(dialect.op, value, layout, kv_heads, paged=options.get("block_table") is not None)
    lse = layout.lse_shape(shape) if options.get(dialect.with_lse, False) else (0,)
    return layout.output_shape(shape, dim), lse


def _value_dim(op: str, value: torch.Tensor, layout: Layout, kv_heads: int, *, paged: bool) -> int:
    """Return the size of a value head."""
    rank = value.dim()
    if paged and rank == NZ_DIMENSIONS:
        raise NotSimulated(op, "a value cache of five dimensions (NZ format)")
    expected = (3, 4) if paged else (len(layout.inputs),)
    require(rank in expected, op, f"value must have {' or '.join(map(str, expected))} dimensions; given {rank}")
    folded = rank == len("BSH") and (paged or layout.inputs == "BSH")
    return value.size(2) // kv_heads if folded else value.size(-1)
