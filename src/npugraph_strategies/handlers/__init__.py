"""Ready handlers for the attention operators of torch_npu, as data: names from the schemas, no positions.

`ATTENTION` is the registry of all of them; `BUILTIN` is every handler that this package ships.
"""

from npugraph_strategies._handlers import OpHandler, OutVariant, UpdateParams
from npugraph_strategies._helpers import (
    EmptyLike,
    GrowingWorkspace,
    HelperOutputs,
    MaxWorkspace,
    NoWorkspace,
    OutputPolicy,
    PerHead,
    WorkspacePolicy,
    call_helper,
)
from npugraph_strategies._lengths import AttentionLengths, LengthRule, PagedLengths, TokensPerSequence
from npugraph_strategies._registry import HandlerRegistry
from npugraph_strategies.handlers._fused_infer_attention import FIA_V1, FIA_V2
from npugraph_strategies.handlers._latent_attention import MLA
from npugraph_strategies.handlers._paged_attention import PAGED_ATTENTION

ATTENTION = HandlerRegistry.of(FIA_V1, FIA_V2, PAGED_ATTENTION, MLA)
BUILTIN = ATTENTION

__all__ = [
    "ATTENTION",
    "BUILTIN",
    "FIA_V1",
    "FIA_V2",
    "MLA",
    "PAGED_ATTENTION",
    "AttentionLengths",
    "EmptyLike",
    "GrowingWorkspace",
    "HelperOutputs",
    "LengthRule",
    "MaxWorkspace",
    "NoWorkspace",
    "OpHandler",
    "OutVariant",
    "OutputPolicy",
    "PagedLengths",
    "PerHead",
    "TokensPerSequence",
    "UpdateParams",
    "WorkspacePolicy",
    "call_helper",
]
