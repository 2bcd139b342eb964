"""A deterministic model of the device, in Python: anybody's CI can capture, update and replay."""

from __future__ import annotations

from npugraph_strategies.runtimes._simulated._choices import Choices
from npugraph_strategies.runtimes._simulated._device import Limits, SimulatedDevice
from npugraph_strategies.runtimes._simulated._events import StreamEvent
from npugraph_strategies.runtimes._simulated._runtime import SimulatedRuntime

__all__ = ["Choices", "Limits", "SimulatedDevice", "SimulatedRuntime", "StreamEvent"]
