"""The devices that a session can drive: a real NPU, a simulated one, or one that watches or disturbs another.

Importing this package does not load torch_npu; making an `NpuRuntime` does.
"""

from __future__ import annotations

from npugraph_strategies.runtimes._base import (
    GraphRuntime,
    RuntimeEvent,
    RuntimeGraph,
    RuntimeLock,
    RuntimeStream,
)
from npugraph_strategies.runtimes._faulty import FaultyRuntime, InjectedFault
from npugraph_strategies.runtimes._npu import NpuRuntime
from npugraph_strategies.runtimes._recording import Primitive, RecordingRuntime
from npugraph_strategies.runtimes._simulated import Choices, Limits, SimulatedDevice, SimulatedRuntime, StreamEvent

__all__ = [
    "Choices",
    "FaultyRuntime",
    "GraphRuntime",
    "InjectedFault",
    "Limits",
    "NpuRuntime",
    "Primitive",
    "RecordingRuntime",
    "RuntimeEvent",
    "RuntimeGraph",
    "RuntimeLock",
    "RuntimeStream",
    "SimulatedDevice",
    "SimulatedRuntime",
    "StreamEvent",
]
