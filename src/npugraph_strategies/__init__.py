"""Strategy objects for NPU graph operator handlers, held in injected registries.

A `HandlerRegistry` of frozen handlers says how operators are captured and updated; a `GraphCaptureSession` gets it
injected, with a runtime, and owns the one skeleton that captures, updates and replays.
"""

from npugraph_strategies import errors
from npugraph_strategies._calls import OpCall
from npugraph_strategies._check import CheckReport, Finding
from npugraph_strategies._graph import CapturedGraph, MemoryReport
from npugraph_strategies._handlers import OpHandler, OutVariant, UpdateParams
from npugraph_strategies._orders import ReplayThenUpdate, UpdateOrder, UpdateThenReplay
from npugraph_strategies._records import Record
from npugraph_strategies._registry import HandlerRegistry
from npugraph_strategies._routing import KEEP, by_label, each
from npugraph_strategies._session import GraphCaptureSession

__all__ = [
    "KEEP",
    "CapturedGraph",
    "CheckReport",
    "Finding",
    "GraphCaptureSession",
    "HandlerRegistry",
    "MemoryReport",
    "OpCall",
    "OpHandler",
    "OutVariant",
    "Record",
    "ReplayThenUpdate",
    "UpdateOrder",
    "UpdateParams",
    "UpdateThenReplay",
    "by_label",
    "each",
    "errors",
]
