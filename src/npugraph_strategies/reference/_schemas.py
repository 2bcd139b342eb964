"""Schemas of the operators that have a reference kernel, as torch_npu 2.13 registers them.

A schema is an interface: argument names, their order, defaults and alias annotations have to be torch_npu's to the
letter, or a call captured here would not be the call captured there. The `out` of the fused operators carries no
alias annotation there, so it carries none here. Arguments shared by overloads and helpers are written once.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

__all__ = ["SCHEMAS"]

_QKV: Final = "Tensor query, Tensor key, Tensor value"

_OUT: Final = "Tensor? workspace=None, Tensor[] out"

_V1: Final = (
    f"{_QKV}, *, Tensor? pse_shift=None, Tensor? atten_mask=None, SymInt[]? actual_seq_lengths=None, "
    "SymInt[]? actual_seq_lengths_kv=None, Tensor? dequant_scale1=None, Tensor? quant_scale1=None, "
    "Tensor? dequant_scale2=None, Tensor? quant_scale2=None, Tensor? quant_offset2=None, "
    "Tensor? antiquant_scale=None, Tensor? antiquant_offset=None, Tensor? key_antiquant_scale=None, "
    "Tensor? key_antiquant_offset=None, Tensor? value_antiquant_scale=None, Tensor? value_antiquant_offset=None, "
    "Tensor? block_table=None, Tensor? query_padding_size=None, Tensor? kv_padding_size=None, "
    "Tensor? key_shared_prefix=None, Tensor? value_shared_prefix=None, SymInt[]? actual_shared_prefix_len=None, "
    "Tensor? query_rope=None, Tensor? key_rope=None, Tensor? key_rope_antiquant_scale=None, int num_heads=1, "
    'float scale=1., int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout="BSH", '
    "int num_key_value_heads=0, int sparse_mode=0, int inner_precise=0, int block_size=0, int antiquant_mode=0, "
    "int key_antiquant_mode=0, int value_antiquant_mode=0, bool softmax_lse_flag=False"
)

_V2: Final = (
    f"{_QKV}, *, Tensor? query_rope=None, Tensor? key_rope=None, Tensor? pse_shift=None, Tensor? atten_mask=None, "
    "SymInt[]? actual_seq_qlen=None, SymInt[]? actual_seq_kvlen=None, Tensor? block_table=None, "
    "Tensor? dequant_scale_query=None, Tensor? dequant_scale_key=None, Tensor? dequant_offset_key=None, "
    "Tensor? dequant_scale_value=None, Tensor? dequant_offset_value=None, Tensor? dequant_scale_key_rope=None, "
    "Tensor? quant_scale_out=None, Tensor? quant_offset_out=None, Tensor? quant_scale_p=None, "
    "Tensor? learnable_sink=None, int num_query_heads=1, int num_key_value_heads=0, float softmax_scale=1., "
    'int pre_tokens=2147483647, int next_tokens=2147483647, str input_layout="BSH", int sparse_mode=0, '
    "int block_size=0, int query_quant_mode=0, int key_quant_mode=0, int value_quant_mode=0, int inner_precise=0, "
    "bool return_softmax_lse=False, int? query_dtype=None, int? key_dtype=None, int? value_dtype=None, "
    "int? query_rope_dtype=None, int? key_rope_dtype=None, int? key_shared_prefix_dtype=None, "
    "int? value_shared_prefix_dtype=None, int? dequant_scale_query_dtype=None, int? dequant_scale_key_dtype=None, "
    "int? dequant_scale_value_dtype=None, int? dequant_scale_key_rope_dtype=None, int? out_dtype=None"
)

_V1_INFER: Final = (
    'Tensor query, Tensor value, *, str input_layout="BSH", Tensor? quant_scale2=None, Tensor? block_table=None, '
    "int num_heads=1, int num_key_value_heads=0, bool softmax_lse_flag=False, Tensor? query_rope=None"
)

_V2_INFER: Final = (
    'Tensor query, Tensor value, *, int? query_dtype=None, int? value_dtype=None, str input_layout="BSH", '
    "Tensor? quant_scale_out=None, Tensor? block_table=None, int num_query_heads=1, int num_key_value_heads=0, "
    "bool return_softmax_lse=False, Tensor? query_rope=None, int? out_dtype=None"
)

_PAGED: Final = (
    "Tensor query, Tensor key_cache, Tensor value_cache, int num_kv_heads, int num_heads, float scale_value, "
    "Tensor block_table, Tensor context_lens, Tensor(a!) out"
)

_LATENT: Final = (
    "Tensor q_nope, Tensor q_rope, Tensor ctkv, Tensor k_rope, Tensor block_tables, SymInt[] context_lens, "
    "int q_headnum, float qk_scale, int kv_headnum"
)

_LATENT_OPTIONS: Final = (
    "*, Tensor? mask=None, SymInt[]? qseqlen=None, Tensor? qk_descale=None, Tensor? pv_descale=None, "
    "str? mask_type=None, str? calc_type=None, str? cache_mode=None"
)

_LATENT_LSE: Final = f"{_LATENT}, bool return_lse, {_LATENT_OPTIONS}"

_V1_NAME: Final = "npu::npu_fused_infer_attention_score"
_V1_HELPER: Final = "npu::_npu_fused_infer_attention_score"
_V2_NAME: Final = "npu::npu_fused_infer_attention_score_v2"
_V2_HELPER: Final = "npu::_npu_fused_infer_attention_score_v2"
_LATENT_NAME: Final = "atb::npu_multi_head_latent_attention"
_LATENT_HELPER: Final = "atb::_npu_multi_head_latent_attention"

_SIGNATURES: Final = {
    _V1_NAME: f"({_V1}) -> (Tensor, Tensor)",
    f"{_V1_NAME}.out": f"({_V1}, {_OUT}) -> (Tensor, Tensor)",
    f"{_V1_HELPER}_get_max_workspace": f"({_V1}) -> Tensor",
    f"{_V1_HELPER}_infer_output": f"({_V1_INFER}) -> (Tensor, Tensor)",
    _V2_NAME: f"({_V2}) -> (Tensor, Tensor)",
    f"{_V2_NAME}.out": f"({_V2}, {_OUT}) -> (Tensor, Tensor)",
    f"{_V2_HELPER}_get_max_workspace": f"({_V2}) -> Tensor",
    f"{_V2_HELPER}_infer_output": f"({_V2_INFER}) -> (Tensor, Tensor)",
    "atb::_npu_paged_attention": f"({_PAGED}, *, Tensor? workspace=None) -> ()",
    "atb::_npu_paged_attention_get_workspace": f"({_PAGED}) -> Tensor",
    "atb::_npu_reshape_and_cache": (
        "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_indices) -> ()"
    ),
    _LATENT_NAME: f"({_LATENT}, {_LATENT_OPTIONS}) -> Tensor",
    f"{_LATENT_NAME}.out": f"({_LATENT}, {_LATENT_OPTIONS}, Tensor(a!) output) -> Tensor(a!)",
    f"{_LATENT_NAME}.lse": f"({_LATENT_LSE}, Tensor? workspace=None) -> (Tensor, Tensor)",
    f"{_LATENT_NAME}.lse_out": (
        f"({_LATENT_LSE}, Tensor? workspace=None, Tensor(a!) output, Tensor(b!) lse) -> (Tensor(a!), Tensor(b!))"
    ),
    f"{_LATENT_HELPER}_get_workspace.lse": f"({_LATENT_LSE}) -> Tensor",
    "npu::npu_rms_norm": "(Tensor input, Tensor gamma, float epsilon=9.9999999999999995e-07) -> (Tensor, Tensor)",
    "npu::npu_scatter_pa_kv_cache": (
        "(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) value_cache, Tensor slot_mapping, *, "
        "Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, "
        'str? cache_mode="PA_NZ") -> ()'
    ),
}

# Qualified overload ("npu::name", or "npu::name.overload") to its whole schema; a read-only view.
SCHEMAS: Final = MappingProxyType({name: name + signature for name, signature in _SIGNATURES.items()})
