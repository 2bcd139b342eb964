"""ATB multi-head latent attention (MLA), ``atb::npu_multi_head_latent_attention`` in its four overloads."""

from npugraph_strategies._handlers import OutVariant
from npugraph_strategies._helpers import EmptyLike, GrowingWorkspace, PerHead
from npugraph_strategies._lengths import PagedLengths, TokensPerSequence

__all__ = ["MLA"]

_OP = "atb::npu_multi_head_latent_attention"

MLA = OutVariant(
    ((f"{_OP}.default", f"{_OP}.out"), (f"{_OP}.lse", f"{_OP}.lse_out")),
    ("context_lens", "qseqlen"),
    rebind="block_tables",
    lengths=(
        PagedLengths(
            "context_lens", block_table="block_tables", cache="ctkv", query="q_nope", sequences="block_tables"
        ),
        TokensPerSequence("qseqlen", tokens="q_nope", block_table="block_tables"),
    ),
    workspace=GrowingWorkspace("atb::_npu_multi_head_latent_attention_get_workspace.lse"),
    outputs=(
        EmptyLike("output", like="q_nope", dtype="q_rope"),
        PerHead("lse", like="q_nope", heads="q_headnum"),
    ),
)
