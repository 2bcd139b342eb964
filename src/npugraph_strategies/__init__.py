"""Strategy objects for NPU graph operator handlers, held in injected registries.

A `HandlerRegistry` of frozen handlers says how operators are captured and updated; a `GraphCaptureSession` gets it
injected, with a runtime, and owns the one skeleton that captures, updates and replays.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from npugraph_strategies import errors

if TYPE_CHECKING:
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

# Loaded when first asked for: torch loads torch_npu where that is installed, and that fails on a machine without an NPU
# until the simulator's launcher, which is a part of this package, has prepared for it.
_HOMES: Final = {
    "CapturedGraph": "_graph",
    "CheckReport": "_check",
    "Finding": "_check",
    "GraphCaptureSession": "_session",
    "HandlerRegistry": "_registry",
    "KEEP": "_routing",
    "MemoryReport": "_graph",
    "OpCall": "_calls",
    "OpHandler": "_handlers",
    "OutVariant": "_handlers",
    "Record": "_records",
    "ReplayThenUpdate": "_orders",
    "UpdateOrder": "_orders",
    "UpdateParams": "_handlers",
    "UpdateThenReplay": "_orders",
    "by_label": "_routing",
    "each": "_routing",
}


def __getattr__(name: str) -> Any:
    """Load a public name."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """List the public names as well, loaded or not."""
    return sorted({*globals(), *__all__})
