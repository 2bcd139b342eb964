"""ATB paged attention, ``atb::_npu_paged_attention``."""

from npugraph_strategies._handlers import UpdateParams
from npugraph_strategies._helpers import GrowingWorkspace
from npugraph_strategies._lengths import PagedLengths

__all__ = ["PAGED_ATTENTION"]

PAGED_ATTENTION = UpdateParams(
    "atb::_npu_paged_attention.default",
    "context_lens",
    rebind="block_table",
    lengths=PagedLengths(
        "context_lens", block_table="block_table", cache="key_cache", query="query", sequences="query"
    ),
    workspace=GrowingWorkspace("atb::_npu_paged_attention_get_workspace"),
)
