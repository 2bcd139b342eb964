"""Fused infer attention, ``npu::npu_fused_infer_attention_score`` and its ``_v2``."""

from npugraph_strategies._handlers import OutVariant
from npugraph_strategies._helpers import HelperOutputs, MaxWorkspace
from npugraph_strategies._lengths import AttentionLengths

__all__ = ["FIA_V1", "FIA_V2"]

FIA_V1 = OutVariant(
    ("npu::npu_fused_infer_attention_score.default", "npu::npu_fused_infer_attention_score.out"),
    ("actual_seq_lengths", "actual_seq_lengths_kv", "actual_shared_prefix_len"),
    rebind=("block_table", "atten_mask"),
    lengths=AttentionLengths(query="actual_seq_lengths", kv="actual_seq_lengths_kv"),
    workspace=MaxWorkspace("npu::_npu_fused_infer_attention_score_get_max_workspace"),
    outputs=(HelperOutputs("npu::_npu_fused_infer_attention_score_infer_output"),),
)

FIA_V2 = OutVariant(
    ("npu::npu_fused_infer_attention_score_v2.default", "npu::npu_fused_infer_attention_score_v2.out"),
    ("actual_seq_qlen", "actual_seq_kvlen"),
    rebind=("block_table", "atten_mask"),
    lengths=AttentionLengths(query="actual_seq_qlen", kv="actual_seq_kvlen"),
    workspace=MaxWorkspace("npu::_npu_fused_infer_attention_score_v2_get_max_workspace"),
    outputs=(HelperOutputs("npu::_npu_fused_infer_attention_score_v2_infer_output"),),
)
