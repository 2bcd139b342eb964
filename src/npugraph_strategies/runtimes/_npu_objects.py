"""Events and graphs of an NPU: torch_npu's objects, made to enter their device and to raise classified errors."""

from __future__ import annotations

import gc
from bisect import bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies.errors import RuntimeUnavailable
from npugraph_strategies.runtimes._codes import device_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from npugraph_strategies.runtimes._base import RuntimeStream
    from npugraph_strategies.runtimes._npu_device import NpuDevice
    from npugraph_strategies.runtimes._npu_module import Features, NativeEvent, NativeGraph

__all__ = ["NpuEvent", "NpuGraph", "Segments"]


@final
@attrs.frozen(eq=False)
class NpuEvent:
    """An external event of one device."""

    device: NpuDevice = attrs.field(repr=False)
    native: NativeEvent = attrs.field(repr=False)
    label: str = ""

    def wait(self, stream: RuntimeStream) -> None:
        """Make later work on `stream` wait for one `record`."""
        self.device.call("event.wait", self.label, self.native.wait, stream)

    def reset(self, stream: RuntimeStream) -> None:
        """Clear the flag in stream order."""
        self.device.call("event.reset", self.label, self.native.reset, stream)

    def record(self, stream: RuntimeStream) -> None:
        """Set the flag when `stream` gets here."""
        self.device.call("event.record", self.label, self.native.record, stream)


@final
@attrs.frozen
class Segments:
    """The allocator's address ranges with their pools, sorted, so that a look-up is a bisection."""

    starts: tuple[int, ...]
    ends: tuple[int, ...]
    pools: tuple[Any, ...]

    @classmethod
    def of(cls, snapshot: Iterable[Mapping[str, Any]]) -> Segments:
        """Read a ``memory_snapshot()``; raises `RuntimeUnavailable` if it does not say whose a segment is."""
        found = sorted(snapshot, key=itemgetter("address"))
        if not all("segment_pool_id" in segment for segment in found):
            raise RuntimeUnavailable(
                "NpuRuntime.in_pool", "memory_snapshot() of this torch_npu has no 'segment_pool_id'; upgrade it"
            )
        return cls(
            tuple(segment["address"] for segment in found),
            tuple(segment["address"] + segment["total_size"] for segment in found),
            tuple(tuple(segment["segment_pool_id"]) for segment in found),
        )

    def pool_of(self, address: int) -> Any:
        """Return the pool that an address lies in, or None if it lies in no segment."""
        at = bisect_right(self.starts, address) - 1
        return self.pools[at] if at >= 0 and address < self.ends[at] else None


@final
@attrs.define(eq=False)
class NpuGraph:
    """A graph of one device."""

    device: NpuDevice = attrs.field(repr=False)
    native: NativeGraph = attrs.field(repr=False)
    features: Features = attrs.field(repr=False)
    label: str = ""
    _captured: bool = attrs.field(default=False, init=False)
    _segments: Segments | None = attrs.field(default=None, init=False, repr=False)

    def capture_begin(self, *, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream, after the preparations that ``torch.npu.graph`` makes.

        Work in flight and cached blocks would otherwise be caught by the capture or add to its pool. torch_npu's own
        dispatch mode is never entered. Raises `DeviceError`.
        """
        self.device.call("graph.capture_begin", self.label, self._begin, pool, capture_error_mode)

    def _begin(self, pool: Any, mode: str) -> None:
        npu, features = self.device.npu, self.features
        if npu.is_current_stream_capturing():  # the preparations would break that capture
            raise device_error(107027, "beginning a capture")
        npu.synchronize()
        if features.collects_garbage():
            gc.collect()
        npu.empty_cache()
        if features.host_empty_cache is not None:
            features.host_empty_cache()
        if pool is None:
            self.native.capture_begin(capture_error_mode=mode)
        else:
            self.native.capture_begin(pool, capture_error_mode=mode)

    def capture_end(self) -> None:
        """End the capture on the same stream; raises `DeviceError`, for example if the capture was invalidated."""
        self.device.call("graph.capture_end", self.label, self._end)
        self._captured = True
        self._segments = None  # the pool may have grown since it was looked at

    def _end(self) -> None:
        if not self.device.npu.is_current_stream_capturing():  # torch_npu closes its books before the driver says so
            raise device_error(107029, "ending a capture")
        self.native.capture_end()

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self.device.call("graph.replay", self.label, self.native.replay)

    def reset(self) -> None:
        """Give back what the graph holds; it cannot be replayed afterwards."""
        self.device.call("graph.reset", self.label, self.native.reset)
        self._segments = None

    def pool(self) -> Any:
        """Return the token of the graph's memory pool."""
        return self.device.call("graph.pool", self.label, self.native.pool)

    @property
    def task_count(self) -> int | None:
        """Return None: torch_npu does not say how many tasks a graph has."""
        return None

    def holds(self, address: int) -> bool:
        """Tell whether an address lies in the graph's pool.

        The allocator is asked once; while the capture goes on, once more for an address that it did not know.
        """
        pool = self.device.call("graph.pool", self.label, self._own_pool)
        return pool is not None and self._pool_of(address) == pool

    def _own_pool(self) -> Any:
        """Return the pool's token; while the capture goes on, when torch_npu does not tell it, by a probe."""
        npu = self.device.npu
        if self._captured or not npu.is_current_stream_capturing():
            return tuple(self.native.pool())
        address = npu.caching_allocator_alloc(1)
        try:
            return self._pool_of(address)
        finally:
            npu.caching_allocator_delete(address)

    def _pool_of(self, address: int) -> Any:
        found = self._segments.pool_of(address) if self._segments is not None else None
        if found is None and not (self._captured and self._segments is not None):
            # All pools are asked for: the argument that names one is newer than the key that is read.
            snapshot = self.device.call("memory_snapshot", self.label, self.device.npu.memory_snapshot)
            # Of this device only: two devices may use the same addresses.
            self._segments = Segments.of(s for s in snapshot if s["device"] == self.device.index)
            found = self._segments.pool_of(address)
        return found
