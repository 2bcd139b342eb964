"""What the kernels refuse; a refused call has written nothing."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from npugraph_strategies.errors import NotSimulated, OperatorRejected

NPU, ATB = torch.ops.npu, torch.ops.atb


def fused(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a call of two sequences in layout BSND that the first version takes."""
    arguments = {
        "query": torch.randn(2, 3, 4, 8),
        "key": torch.randn(2, 5, 2, 8),
        "value": torch.randn(2, 5, 2, 8),
        "num_heads": 4,
        "num_key_value_heads": 2,
        "input_layout": "BSND",
        "actual_seq_lengths": [3, 2],
        "actual_seq_lengths_kv": [5, 4],
        "softmax_lse_flag": True,
        "out": [torch.full((2, 3, 4, 8), 9.0), torch.full((2, 4, 3, 1), 9.0)],
    }
    return arguments | changes


def packed(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a call of two packed sequences."""
    return (
        fused(
            query=torch.randn(5, 4, 8),
            key=torch.randn(9, 2, 8),
            value=torch.randn(9, 2, 8),
            input_layout="TND",
            actual_seq_lengths=[3, 5],
            actual_seq_lengths_kv=[5, 9],
            out=[torch.full((5, 4, 8), 9.0), torch.full((5, 4, 1), 9.0)],
        )
        | changes
    )


def cached(**changes: Any) -> dict[str, Any]:
    """Return the arguments of a call with paged keys and values."""
    return (
        fused(
            key=torch.randn(4, 3, 16),
            value=torch.randn(4, 3, 16),
            block_table=torch.tensor([[0, 1], [3, 2]], dtype=torch.int32),
            block_size=3,
        )
        | changes
    )


def paged(**changes: Any) -> dict[str, Any]:
    """Return the arguments of paged attention for two sequences."""
    return {
        "query": torch.randn(2, 4, 8),
        "key_cache": torch.randn(4, 3, 2, 8),
        "value_cache": torch.randn(4, 3, 2, 8),
        "num_kv_heads": 2,
        "num_heads": 4,
        "scale_value": 1.0,
        "block_table": torch.tensor([[0, 1], [3, 2]], dtype=torch.int32),
        "context_lens": torch.tensor([5, 3], dtype=torch.int32),
        "out": torch.full((2, 4, 8), 9.0),
    } | changes


def cache(**changes: Any) -> dict[str, Any]:
    """Return the arguments that put three tokens into a cache of four blocks of three."""
    return {
        "key": torch.randn(3, 2, 8),
        "value": torch.randn(3, 2, 8),
        "key_cache": torch.full((4, 3, 2, 8), 9.0),
        "value_cache": torch.full((4, 3, 2, 8), 9.0),
        "slot_indices": torch.tensor([0, 5, -1], dtype=torch.int32),
    } | changes


def scatter(**changes: Any) -> dict[str, Any]:
    """Return the same for the operator that knows cache formats."""
    arguments = cache(cache_mode="Norm")
    return arguments | {"slot_mapping": arguments.pop("slot_indices")} | changes


def latent(**changes: Any) -> dict[str, Any]:
    """Return the arguments of latent attention for two sequences."""
    return {
        "q_nope": torch.randn(3, 4, 8),
        "q_rope": torch.randn(3, 4, 2),
        "ctkv": torch.randn(4, 3, 2, 8),
        "k_rope": torch.randn(4, 3, 2, 2),
        "block_tables": torch.tensor([[0, 1], [3, 2]], dtype=torch.int32),
        "context_lens": [5, 3],
        "q_headnum": 4,
        "qk_scale": 1.0,
        "kv_headnum": 2,
        "return_lse": True,
        "qseqlen": [2, 1],
        "output": torch.full((3, 4, 8), 9.0),
        "lse": torch.full((3, 4, 1), 9.0),
    } | changes


OPERATORS = {
    fused: lambda: NPU.npu_fused_infer_attention_score.out,
    packed: lambda: NPU.npu_fused_infer_attention_score.out,
    cached: lambda: NPU.npu_fused_infer_attention_score.out,
    paged: lambda: ATB._npu_paged_attention,
    cache: lambda: ATB._npu_reshape_and_cache,
    scatter: lambda: NPU.npu_scatter_pa_kv_cache,
    latent: lambda: ATB.npu_multi_head_latent_attention.lse_out,
}
WRITTEN = ("out", "key_cache", "value_cache", "output", "lse")
ANY = torch.ones(1)
TABLE = torch.tensor([[0, 1], [3, 2]], dtype=torch.int32)

REJECTED = [
    (fused, {"input_layout": "BSDN"}, "input_layout must be"),
    (fused, {"input_layout": "BSND_"}, "input_layout must be"),
    (fused, {"input_layout": "BSND_TND"}, "input_layout must be"),
    (fused, {"input_layout": "BSH"}, "a BSH query has 3 dimensions"),
    (fused, {"num_heads": 0}, "num_heads must be positive"),
    (fused, {"num_heads": 6}, "the query has 4 heads, 6 were declared"),
    (fused, {"num_key_value_heads": 3}, "num_key_value_heads must divide 4"),
    (fused, {"num_key_value_heads": -2}, "num_key_value_heads must divide 4"),
    (fused, {"num_key_value_heads": 1}, "key must have 1 heads"),
    (fused, {"input_layout": "BSH", "query": torch.randn(2, 3, 30)}, "H must be a multiple of 4"),
    (
        fused,
        {"input_layout": "BSH", "query": torch.randn(2, 3, 32), "key": torch.randn(2, 5, 15)},
        "H of key must be a multiple of 2",
    ),
    (fused, {"key": torch.randn(2)}, "a BSND key has 4 dimensions"),
    (packed, {"key": torch.randn(())}, "a TND key has 3 dimensions"),
    (fused, {"key": torch.randn(2, 5, 16)}, "a BSND key has 4 dimensions"),
    (fused, {"key": torch.randn(2, 5, 2, 7)}, "key heads must be 8 wide"),
    (fused, {"value": torch.randn(2, 6, 2, 8)}, "value must have 2 heads and the key's rows"),
    (fused, {"key": torch.randn(3, 5, 2, 8), "value": torch.randn(3, 5, 2, 8)}, "key has batch 3, query 2"),
    (fused, {"key": torch.randn(2, 5, 2, 8).half()}, "tensors must share one floating dtype"),
    (fused, {"actual_seq_lengths": [3, 4]}, "actual_seq_lengths must lie in 0 to 3"),
    (fused, {"actual_seq_lengths": []}, "actual_seq_lengths must have one value or at least 2"),
    (fused, {"actual_seq_lengths_kv": [6]}, "actual_seq_lengths_kv must lie in 0 to 5"),
    (fused, {"actual_seq_lengths_kv": [5, -1]}, "actual_seq_lengths_kv must lie in 0 to 5"),
    (fused, {"query_rope": torch.randn(2, 3, 4, 2)}, "query_rope and key_rope go together"),
    (
        fused,
        {"query_rope": torch.randn(2, 3, 4, 3), "key_rope": torch.randn(2, 5, 2, 2)},
        "query_rope must have shape",
    ),
    (
        fused,
        {"query_rope": torch.randn(2, 3, 4, 2), "key_rope": torch.randn(2, 4, 2, 2)},
        "key_rope must have 2 heads and the key's rows",
    ),
    (fused, {"sparse_mode": 5}, "sparse_mode must be 0, 1, 2, 3 or 4"),
    (fused, {"sparse_mode": 1}, "sparse_mode=1 needs an atten_mask"),
    (fused, {"sparse_mode": 3}, "sparse_mode=3 needs the compressed atten_mask"),
    (fused, {"sparse_mode": 2, "atten_mask": torch.ones(3, 5).bool()}, "sparse_mode=2 needs the compressed"),
    (fused, {"atten_mask": torch.ones(3, 5)}, "atten_mask must be bool, int8 or uint8"),
    (fused, {"atten_mask": torch.ones(3, 4).bool()}, "atten_mask must fit"),
    (fused, {"atten_mask": torch.ones(2, 5).bool()}, "atten_mask must fit"),
    (fused, {"atten_mask": torch.ones(3, 3, 5).bool()}, "atten_mask must fit"),
    (fused, {"atten_mask": torch.ones(2, 4, 3, 5).bool()}, "atten_mask must fit"),
    (fused, {"atten_mask": torch.ones(5).bool()}, "atten_mask must fit"),
    (fused, {"pse_shift": torch.ones(2, 3, 3, 5)}, "pse_shift must fit"),
    (fused, {"out": [torch.full((2, 3, 4, 8), 9.0)]}, "out must have 2 tensors"),
    (fused, {"out": [torch.full((2, 3, 4, 7), 9.0), torch.full((2, 4, 3, 1), 9.0)]}, r"out\[0\] must have shape"),
    (fused, {"out": [torch.full((2, 3, 4, 8), 9.0), torch.full((2, 3, 4, 1), 9.0)]}, r"out\[1\] must have shape"),
    (fused, {"out": [torch.full((2, 3, 4, 8), 9), torch.full((2, 4, 3, 1), 9.0)]}, r"out\[0\] must be torch.float32"),
    (fused, {"workspace": torch.empty(600, dtype=torch.uint8)}, "workspace must have at least"),
    (packed, {"actual_seq_lengths": None}, "layout TND needs actual_seq_lengths"),
    (packed, {"actual_seq_lengths": []}, "actual_seq_lengths must have at least one value"),
    (packed, {"actual_seq_lengths": [3, 2]}, "actual_seq_lengths must be cumulative"),
    (packed, {"actual_seq_lengths": [-1, 5]}, "actual_seq_lengths must be cumulative"),
    (packed, {"actual_seq_lengths": [3, 4]}, "actual_seq_lengths must end at T, the 5 tokens"),
    (packed, {"actual_seq_lengths_kv": None}, "layout TND needs actual_seq_lengths_kv"),
    (packed, {"actual_seq_lengths_kv": [5, 10]}, "ends at 10, the key has 9 tokens"),
    (packed, {"actual_seq_lengths_kv": [5, 7, 9]}, "actual_seq_lengths_kv must have 2 values"),
    (packed, {"value": torch.randn(9, 4, 2, 8)}, "a TND value has 3 dimensions"),
    (cached, {"block_size": 0}, "a block_table needs a positive block_size"),
    (cached, {"block_size": 4}, "block_size is 4, the key cache has blocks of 3"),
    (cached, {"block_table": TABLE[:1]}, r"block_table must be \[2, blocks\]"),
    (cached, {"block_table": TABLE[0]}, r"block_table must be \[2, blocks\]"),
    (cached, {"block_table": TABLE.long()}, "block_table must be torch.int32"),
    (cached, {"block_table": TABLE + 1}, "block ids must lie in 0 to 3"),
    (cached, {"block_table": TABLE - 1}, "block ids must lie in 0 to 3"),
    (cached, {"actual_seq_lengths_kv": None}, "a block_table needs actual_seq_lengths_kv"),
    (cached, {"actual_seq_lengths_kv": [5, 7]}, "actual_seq_lengths_kv must lie in 0 to 6"),
    (cached, {"key": torch.randn(4, 3)}, "a key cache has three or four dimensions"),
    (cached, {"value": torch.randn(4, 3)}, "a value cache has three or four dimensions"),
    (cached, {"key": torch.randn(4, 3, 15)}, "H of the key cache must be a multiple of 2"),
    (paged, {"num_kv_heads": 3}, "num_kv_heads must divide 4"),
    (paged, {"num_kv_heads": 0}, "num_kv_heads must divide 4"),
    (paged, {"num_heads": 2}, "the query has 4 heads, 2 were declared"),
    (paged, {"query": torch.randn(2, 32)}, "query, caches, table, lengths have"),
    (paged, {"query": torch.randn(2, 4, 8).double()}, "tensors must share one floating dtype"),
    (paged, {"key_cache": torch.full((4, 2, 2, 8), 9.0)}, "caches must have shapes"),
    (paged, {"context_lens": torch.tensor([5, 3])}, "context_lens must be int32 on the host"),
    (paged, {"context_lens": torch.tensor([5], dtype=torch.int32)}, "context_lens must have 2 values"),
    (paged, {"context_lens": torch.tensor([5, -1], dtype=torch.int32)}, "context_lens must not be negative"),
    (paged, {"context_lens": torch.tensor([5, 7], dtype=torch.int32)}, "the block table has 2 columns"),
    (paged, {"block_table": TABLE[:1]}, "block_table must have 2 rows"),
    (paged, {"block_table": TABLE.long()}, "block_table must be torch.int32"),
    (paged, {"block_table": TABLE + 1}, "block ids must lie in 0 to 3"),
    (paged, {"out": torch.full((2, 4, 7), 9.0)}, "out must have shape"),
    (paged, {"out": torch.full((2, 4, 8), 9.0).half()}, "out must be torch.float32"),
    (paged, {"workspace": torch.empty(512, dtype=torch.uint8)}, "workspace must have at least"),
    (cache, {"slot_indices": torch.tensor([0.0, 1.0, 2.0])}, "slot_indices must be int32 or int64"),
    (cache, {"slot_indices": torch.tensor([0, 1])}, r"slot_indices must have shape \[3\]"),
    (cache, {"slot_indices": torch.tensor([0, 1, 12])}, "slots must be below 12"),
    (cache, {"value": torch.randn(2, 2, 8)}, "one for each row of value"),
    (cache, {"value": torch.randn(3, 2, 8).half()}, "value is torch.float16, its cache torch.float32"),
    (cache, {"value": torch.randn(3, 2, 7)}, "rows of value are"),
    (scatter, {"slot_mapping": torch.tensor([0, 1])}, r"slot_mapping must have shape \[3\]"),
    (scatter, {"slot_mapping": torch.tensor([0, 1, 12])}, "slots must be below 12"),
    (latent, {"kv_headnum": 3}, "kv_headnum must divide 4"),
    (latent, {"q_rope": torch.randn(3, 8)}, "queries, caches, table have"),
    (latent, {"q_rope": torch.randn(3, 4, 3)}, "k_rope must have shape"),
    (latent, {"q_headnum": 2}, "q_nope must have shape"),
    (latent, {"ctkv": torch.randn(4, 3, 2, 8).half()}, "tensors must share one floating dtype"),
    (latent, {"block_tables": TABLE[:0], "context_lens": []}, "block_tables must have a row"),
    (latent, {"block_tables": TABLE.long()}, "block_tables must be torch.int32"),
    (latent, {"block_tables": TABLE + 1}, "block ids must lie in 0 to 3"),
    (latent, {"context_lens": [5]}, "context_lens must have 2 values"),
    (latent, {"context_lens": [5, 7]}, "context_lens must lie in 0 to 6"),
    (latent, {"qseqlen": None}, "qseqlen must add up to the 3 tokens"),
    (latent, {"qseqlen": [2, 2]}, "qseqlen must add up to the 3 tokens"),
    (latent, {"mask": torch.ones(1, 1, 2, 5)}, "mask must have two or three dimensions"),
    (latent, {"mask": torch.ones(2, 4)}, "mask must fit"),
    (latent, {"output": torch.full((3, 4, 7), 9.0)}, "output must have shape"),
    (latent, {"lse": torch.full((3, 4), 9.0)}, "lse must have shape"),
    (latent, {"lse": torch.full((3, 4, 1), 9)}, "lse must be torch.float32"),
    (latent, {"workspace": torch.empty(512, dtype=torch.uint8)}, "workspace must have at least"),
]

NOT_COVERED = [
    (fused, {"input_layout": "NSD"}, "input_layout='NSD'"),
    (fused, {"quant_scale2": ANY}, "the argument 'quant_scale2'"),
    (fused, {"key_shared_prefix": ANY}, "the argument 'key_shared_prefix'"),
    (fused, {"actual_shared_prefix_len": [1]}, "the argument 'actual_shared_prefix_len'"),
    (fused, {"kv_padding_size": ANY}, "the argument 'kv_padding_size'"),
    (fused, {"query": torch.ones(2, 3, 4, 8, dtype=torch.int8)}, "a query of torch.int8"),
    (fused, {"sparse_mode": 9}, "sparse_mode=9"),
    (cached, {"key": torch.randn(4, 2, 1, 3, 16)}, "a key cache of five dimensions"),
    (cached, {"value": torch.randn(4, 2, 1, 3, 16)}, "a value cache of five dimensions"),
    (scatter, {"cache_mode": "PA_NZ"}, "cache_mode='PA_NZ'"),
    (scatter, {"compress_lens": ANY}, "the argument 'compress_lens'"),
    (latent, {"qk_descale": ANY}, "the argument 'qk_descale'"),
    (latent, {"pv_descale": ANY}, "the argument 'pv_descale'"),
    (latent, {"calc_type": "calc_type_first_ring"}, "calc_type='calc_type_first_ring'"),
    (latent, {"cache_mode": "int8_nzcache"}, "cache_mode='int8_nzcache'"),
    (latent, {"mask_type": "mask_type_triu"}, "mask_type='mask_type_triu'"),
]


def named(case):
    make, changes, sentence = case
    return f"{make.__name__}-{','.join(changes)}-{sentence}"


def refused(error: type[Exception], make: Any, changes: dict[str, Any], sentence: str) -> None:
    """Assert that the call raises `error` with this sentence, and leaves everything it may write as it was."""
    arguments = make(**changes)
    written = [
        tensor
        for name in WRITTEN
        if name in arguments
        for tensor in (arguments[name] if isinstance(arguments[name], list) else [arguments[name]])
    ]
    before = [tensor.clone() for tensor in written]
    with pytest.raises(error, match=sentence):
        OPERATORS[make]()(**arguments)
    torch.testing.assert_close(written, before, rtol=0, atol=0)


@pytest.mark.parametrize("make", list(OPERATORS), ids=lambda make: make.__name__)
def test_the_unchanged_call_is_taken(make):
    """What the cases below change is a call that the operator takes, and that writes."""
    arguments = make()
    OPERATORS[make]()(**arguments)
    written = next(arguments[name] for name in ("out", "output", "key_cache") if name in arguments)
    first = written[0] if isinstance(written, list) else written
    assert not (first == 9.0).all()


@pytest.mark.parametrize("case", REJECTED, ids=named)
def test_what_the_device_would_refuse_is_rejected(case):
    """Arguments that do not fit are rejected by a sentence that says what fits, before anything is written."""
    refused(OperatorRejected, *case)


@pytest.mark.parametrize("case", NOT_COVERED, ids=named)
def test_what_is_not_covered_is_named(case):
    """An argument that the kernel does not cover is named, before anything is written."""
    refused(NotSimulated, *case)


@pytest.mark.parametrize("name", ["learnable_sink", "quant_scale_out", "dequant_scale_query"])
def test_the_second_version_names_its_own_arguments(name):
    """The second version refuses under its own argument names, in operator and helper alike."""
    row = torch.randn(1, 2, 4)
    with pytest.raises(NotSimulated, match=f"the argument '{name}'"):
        NPU.npu_fused_infer_attention_score_v2(row, row, row, **{name: ANY})
    with pytest.raises(NotSimulated, match=f"the argument '{name}'"):
        NPU._npu_fused_infer_attention_score_v2_get_max_workspace(row, row, row, **{name: ANY})


def test_the_second_version_speaks_of_its_own_lengths():
    """A bad length is reported under the name that the caller wrote."""
    row = torch.randn(1, 2, 4)
    with pytest.raises(OperatorRejected, match="actual_seq_kvlen must lie in 0 to 2"):
        NPU.npu_fused_infer_attention_score_v2(row, row, row, actual_seq_kvlen=[3])


def test_a_value_that_has_no_head_size_is_rejected_by_the_helper():
    """The output helper rejects a value whose rank says nothing about its heads."""
    with pytest.raises(OperatorRejected, match="value must have 3 dimensions"):
        NPU._npu_fused_infer_attention_score_infer_output(torch.randn(1, 2, 4), torch.randn(2, 4))


def test_a_value_cache_in_blocks_of_sixteen_is_not_covered_by_the_helper():
    """The output helper names the cache format that it does not cover."""
    query, cache = torch.randn(1, 2, 4), torch.randn(4, 2, 1, 3, 16)
    with pytest.raises(NotSimulated, match="a value cache of five dimensions"):
        NPU._npu_fused_infer_attention_score_infer_output(query, cache, block_table=TABLE)
