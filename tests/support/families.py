"""Calls of the built-in operator families, small enough for many examples; the reference kernels run them."""

from __future__ import annotations

import torch

from npugraph_strategies import OpCall, reference
from npugraph_strategies.handlers import FIA_V1, FIA_V2, MLA, PAGED_ATTENTION

NAMES = {FIA_V1: ("actual_seq_lengths", "actual_seq_lengths_kv"), FIA_V2: ("actual_seq_qlen", "actual_seq_kvlen")}
HEADS = {FIA_V1: "num_heads", FIA_V2: "num_query_heads"}
FUSED = (FIA_V1, FIA_V2)
_FUSED_NAMES = {
    FIA_V1: "npu::npu_fused_infer_attention_score",
    FIA_V2: "npu::npu_fused_infer_attention_score_v2",
}
_MLA_NAME = "atb::npu_multi_head_latent_attention"


def table(rows, blocks):
    """Make a block table in which every entry is a block of its own."""
    return torch.arange(rows * blocks, dtype=torch.int32).reshape(rows, blocks)


def fused(handler, layout="BSND", *, shape=(2, 3, 1, 4), keys=5, queries=None, lengths=None, blocks=None):
    """Call fused infer attention: `shape` is the query's, `keys` the key's length, `blocks` the table's shape."""
    reference.install()
    query_name, kv_name = NAMES[handler]
    query = torch.randn(*shape)
    kwargs = {"input_layout": layout, HEADS[handler]: 1, query_name: queries, kv_name: lengths}
    if blocks is None:
        sizes = list(shape)
        sizes["TND".index("T") if layout == "TND" else layout.index("S" if "S" in layout else "T")] = keys
        key = torch.randn(*sizes)
    else:
        rows, columns = blocks
        key = torch.randn(max(rows * columns, 1), 2, shape[-1])
        kwargs |= {"block_table": table(rows, columns), "block_size": 2}
    return OpCall.bind(_FUSED_NAMES[handler], (query, key, key.clone()), kwargs)


def paged(lengths=(3, 4), *, batch=2, rows=None, columns=2, block_size=2):
    """Call ATB's paged attention; the table may have more rows than the batch."""
    reference.install()
    rows = batch if rows is None else rows
    caches = [torch.randn(max(rows * columns, 1), block_size, 1, 4) for _ in range(2)]
    query = torch.randn(batch, 1, 4)
    lens = torch.tensor(lengths, dtype=torch.int32)
    args = (query, *caches, 1, 1, 1.0, table(rows, columns), lens, torch.zeros_like(query))
    return OpCall.bind("atb::_npu_paged_attention", args)


def latent(overload="default", lengths=(3, 4), *, tokens=2, queries=None, rows=2, columns=2, dtype=torch.float32):
    """Call ATB's latent attention in one of its allocating overloads."""
    reference.install()
    blocks = max(rows * columns, 1)
    args = [
        torch.randn(tokens, 2, 4).to(dtype),
        torch.randn(tokens, 2, 2),
        torch.randn(blocks, 2, 1, 4).to(dtype),
        torch.randn(blocks, 2, 1, 2),
        table(rows, columns),
        list(lengths),
        2,
        1.0,
        1,
    ]
    if overload == "lse":
        args.append(True)
    return OpCall.bind(f"{_MLA_NAME}.{overload}", tuple(args), {"qseqlen": queries})


CASES = {
    "fia v1": (FIA_V1, lambda: fused(FIA_V1, lengths=[4, 5])),
    "fia v1, packed": (FIA_V1, lambda: fused(FIA_V1, "TND", shape=(3, 1, 4), keys=5, queries=[1, 3], lengths=[2, 5])),
    "fia v2": (FIA_V2, lambda: fused(FIA_V2, lengths=[4, 5])),
    "fia v2, paged": (FIA_V2, lambda: fused(FIA_V2, lengths=[4, 3], blocks=(2, 2))),
    "paged": (PAGED_ATTENTION, paged),
    "mla": (MLA, latent),
    "mla, lse": (MLA, lambda: latent("lse")),
}
