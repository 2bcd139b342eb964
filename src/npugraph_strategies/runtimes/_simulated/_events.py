"""Events: external ones, which graphs wait for, and ordinary ones, which join streams."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._steps import AwaitFlag, AwaitMark, ClearFlag, Flag, Mark, Marker, SetFlag

if TYPE_CHECKING:
    from npugraph_strategies.runtimes._base import RuntimeStream
    from npugraph_strategies.runtimes._simulated._device import SimulatedDevice
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["SimulatedEvent", "StreamEvent"]


@final
class SimulatedEvent:
    """An external event: a level-triggered flag that a wait consumes; recording first is legal, records collapse."""

    def __init__(self, device: SimulatedDevice, label: str) -> None:
        with device.lock:
            device.events.take(self)
        self._device = device
        self._flag = Flag(label)

    def __repr__(self) -> str:
        return f"<SimulatedEvent {self._flag.label!r}>"

    @property
    def label(self) -> str:
        """Return the name used in messages."""
        return self._flag.label

    def wait(self, stream: RuntimeStream) -> None:
        """Make later work on `stream` wait for one record, and consume it; captured on a capturing stream."""
        step = AwaitFlag(self._flag, self._device.choices.wait_consumes)
        self._device.submit(self._device.owned(stream), step)

    def reset(self, stream: RuntimeStream) -> None:
        """Clear the flag in stream order; nothing where a wait consumes it already (torch_npu 2.13)."""
        ours = self._device.owned(stream)
        if not self._device.choices.wait_consumes:
            self._device.submit(ours, ClearFlag(self._flag))

    def record(self, stream: RuntimeStream) -> None:
        """Set the flag when `stream` gets here."""
        self._device.submit(self._device.owned(stream), SetFlag(self._flag))


@final
class StreamEvent:
    """An ordinary event: `wait` waits for the last `record` before it, inside one capture or outside any.

    >>> from npugraph_strategies.runtimes import SimulatedDevice
    >>> device = SimulatedDevice()
    >>> first, second, event = device.new_stream(), device.new_stream(), StreamEvent(device, "halfway")
    >>> event.record(first)
    >>> event.wait(second)  # what comes later on the second stream runs after what came before on the first
    >>> device.synchronize(None)
    """

    def __init__(self, device: SimulatedDevice, label: str = "") -> None:
        with device.lock:
            device.events.take(self)
        self._device = device
        self._label = label
        self._marker: Marker | None = None

    def record(self, stream: RuntimeStream) -> None:
        """Mark this place of `stream`."""
        ours = self._device.owned(stream)
        with self._device.lock:
            marker = Marker(self._label, ours.capture)
            self._device.submit(ours, Mark(marker))
            self._marker = marker

    def wait(self, stream: RuntimeStream) -> None:
        """Make later work on `stream` wait for the mark; an event never recorded holds nobody up.

        Inside a capture the waiting stream joins it.

        Raises:
            DeviceError: Event and stream are not of the same capture (107024, 107032).

        """
        ours = self._device.owned(stream)
        with self._device.lock:
            if self._marker is None:
                return
            self._join(ours, self._marker.captured_in)
            self._device.submit(ours, AwaitMark(self._marker))

    def _join(self, stream: SimulatedStream, captured_in: object | None) -> None:
        """Bring the stream into the event's capture, or say why not."""
        if captured_in is stream.capture:
            return
        doing = f"waiting for stream event {self._label!r}"
        if captured_in is None:
            if stream.capture is not None:
                stream.capture.invalidate("a captured stream waited for an event that was not captured")
            raise device_error(107024, doing)
        for capture in self._device.captures:
            if capture is captured_in:
                if stream.capture is not None:
                    stream.capture.invalidate("a captured stream waited for an event of another capture")
                    raise device_error(107032, doing)
                capture.join(stream)
                return
        if stream.capture is not None:
            raise device_error(107032, doing)
        raise device_error(self._device.choices.foreign_event_code, doing, "it was recorded inside a capture")
