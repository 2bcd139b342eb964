"""Streams of the simulated device."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, final

import attrs

if TYPE_CHECKING:
    from npugraph_strategies.runtimes._simulated._capture import Capture
    from npugraph_strategies.runtimes._simulated._device import SimulatedDevice
    from npugraph_strategies.runtimes._simulated._groups import Update
    from npugraph_strategies.runtimes._simulated._scheduler import Task

__all__ = ["SimulatedStream"]


@final
@attrs.define(eq=False)
class SimulatedStream:
    """A queue of device work, with what is going on on it; `stream_id` 0 is the default stream."""

    device: SimulatedDevice
    stream_id: int
    role: str = ""
    """What a runtime made it for, for messages."""
    tasks: deque[Task] = attrs.field(factory=deque, repr=False)
    capture: Capture | None = attrs.field(default=None, repr=False)
    update: Update | None = attrs.field(default=None, repr=False)

    def __repr__(self) -> str:
        return f"<SimulatedStream {self.stream_id} of device {self.device.index}>"
