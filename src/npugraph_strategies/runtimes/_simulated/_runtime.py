"""The simulated device behind the runtime protocol."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any, final

import torch
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies.errors import AttachRefused, BadArguments
from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._device import SimulatedDevice
from npugraph_strategies.runtimes._simulated._events import SimulatedEvent
from npugraph_strategies.runtimes._simulated._graph import SimulatedGraph
from npugraph_strategies.runtimes._simulated._groups import TaskGroup, Update
from npugraph_strategies.runtimes._simulated._recorder import Recorder
from npugraph_strategies.runtimes._simulated._shapes import misplaced

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from torch import Tensor

    from npugraph_strategies.runtimes._base import RuntimeGraph, RuntimeLock, RuntimeStream
    from npugraph_strategies.runtimes._simulated._device import Limits
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["SimulatedRuntime"]


@final
class SimulatedRuntime:
    """A `GraphRuntime` on a simulated device: every strided CPU tensor is a device tensor.

    Without `device` it makes its own, from `seed`, `lazy` and `limits`. Several runtimes may share a device: they share
    its limits and its capture lock, and each has its own update stream.

    >>> runtime = SimulatedRuntime()
    >>> runtime.name
    'simulated:0'
    """

    def __init__(
        self,
        device: SimulatedDevice | None = None,
        *,
        seed: int = 0,
        lazy: bool = False,
        limits: Limits | None = None,
    ) -> None:
        self._device = SimulatedDevice(seed=seed, lazy=lazy, limits=limits) if device is None else device
        self._update_lock = threading.RLock()
        self._here = threading.local()
        self._capture_stream: SimulatedStream | None = None
        self._update_stream: SimulatedStream | None = None

    def __repr__(self) -> str:
        return f"<SimulatedRuntime on {self._device!r}>"

    @property
    def name(self) -> str:
        """Return ``simulated:`` and the device's index."""
        return f"simulated:{self._device.index}"

    @property
    def simulated_device(self) -> SimulatedDevice:
        """Return the device, to share it or to look at its counts and its trace."""
        return self._device

    @property
    def capture_lock(self) -> RuntimeLock:
        """Return the device's capture lock; it is reentrant."""
        return self._device.capture_lock

    @property
    def update_lock(self) -> RuntimeLock:
        """Return the reentrant lock of this runtime's update stream."""
        return self._update_lock

    def device(self) -> AbstractContextManager[None]:
        """Do nothing: simulated devices are told apart by their runtimes."""
        return contextlib.nullcontext()

    def current_stream(self) -> SimulatedStream:
        """Return this thread's current stream; at first the default stream."""
        stream: SimulatedStream = getattr(self._here, "stream", self._device.default_stream)
        return stream

    def new_stream(self) -> SimulatedStream:
        """Make a stream (207008 when none is left); it is counted until it dies."""
        return self._device.new_stream()

    def capture_stream(self) -> SimulatedStream:
        """Return this runtime's stream for captures, made when first asked for."""
        with self._device.lock:
            if self._capture_stream is None:
                self._capture_stream = self._device.new_stream("capture stream")
            return self._capture_stream

    def update_stream(self) -> SimulatedStream:
        """Return this runtime's stream for updates, made when first asked for."""
        with self._device.lock:
            if self._update_stream is None:
                self._update_stream = self._device.new_stream("update stream")
            return self._update_stream

    @contextlib.contextmanager
    def stream(self, stream: RuntimeStream) -> Iterator[None]:
        """Make `stream` this thread's current one; if another thread captures it, what is launched is captured too."""
        before, ours = self.current_stream(), self._device.owned(stream)
        capture = ours.capture
        self._here.stream = ours
        try:
            if capture is None or capture.thread == threading.get_ident():
                yield
                return
            recorder = Recorder(capture, self.current_stream)
            recorder.open()
            try:
                yield
            finally:
                recorder.close()
        finally:
            self._here.stream = before

    def is_capturing(self) -> bool:
        """Tell whether this thread's current stream is being captured."""
        return self.current_stream().capture is not None

    def new_event(self, label: str = "") -> SimulatedEvent:
        """Make an external event (207007 when none is left); it is counted until it dies."""
        return SimulatedEvent(self._device, label)

    def new_graph(self, label: str = "") -> SimulatedGraph:
        """Make an empty graph."""
        return SimulatedGraph(self._device, label, self.current_stream)

    def adopt_graph(self, graph: Any, label: str = "") -> SimulatedGraph:  # noqa: ARG002 - it has a label already
        """Return the graph that the caller captures; raises `AttachRefused` for anything but a graph of this device."""
        if not isinstance(graph, SimulatedGraph):
            raise AttachRefused(f"given a {type(graph).__name__}, expected a graph of runtime.new_graph()")
        return graph

    def task_group_begin(self, stream: RuntimeStream) -> None:
        """Open a task group on a capturing stream (else 107029; 107033 when one is open)."""
        doing = "beginning a task group"
        with self._device.lock:
            ours = self._device.owned(stream)
            if ours.capture is None:
                raise device_error(107029, doing)
            if ours.capture.group is not None:
                raise device_error(107033, doing, "a task group is open already")
            ours.capture.group = TaskGroup(ours)

    def task_group_end(self, stream: RuntimeStream) -> TaskGroup:
        """Close the group and return its handle (107033 when none is open; 507903 when the capture has failed)."""
        doing = "ending a task group"
        with self._device.lock:
            ours = self._device.owned(stream)
            capture = ours.capture
            if capture is None or capture.group is None or capture.group.stream is not ours:
                raise device_error(107033, doing, f"no task group is open on stream {ours.stream_id}")
            group, capture.group = capture.group, None
            if capture.failure:
                raise device_error(507903, doing, capture.failure)
            capture.groups.append(group)
            return group

    def task_update_begin(self, stream: RuntimeStream, handle: Any) -> None:
        """Begin to replace the operators of a group by what this thread launches on `stream` until the end.

        Raises:
            DeviceError: The stream is capturing or updating, the handle is being updated (107033) or spent.

        """
        doing = "beginning the update of a task group"
        with self._device.lock:
            ours = self._device.owned(stream)
            if not isinstance(handle, TaskGroup):
                raise device_error(107000, doing, f"{handle!r} is no handle of a task group")
            if ours.capture is not None:
                raise device_error(107033, doing, f"stream {ours.stream_id} is capturing")
            if ours.update is not None:
                raise device_error(107033, doing, f"stream {ours.stream_id} is in the middle of an update")
            if handle.update is not None:
                raise device_error(107033, doing, "the handle is in the middle of an update")
            if handle.spent:
                raise device_error(self._device.choices.spent_graph_code, doing)
            update = Update(ours, handle, self.current_stream)
            ours.update = handle.update = update
        update.open()

    def task_update_end(self, stream: RuntimeStream) -> None:
        """End the replacement; the patch takes effect in the order of `stream`, on a running replay too.

        Raises:
            DeviceError: The stream is not updating (107033), or what was launched does not fit the group (107040); then
                nothing is patched, and stream and handle are free again.

        """
        with self._device.lock:
            ours = self._device.owned(stream)
            update = ours.update
            if update is None:
                raise device_error(107033, "ending an update", f"stream {ours.stream_id} is not updating")
            ours.update = update.group.update = None
            update.close()
            patch = update.patch()
            if patch is not None:
                self._device.submit(ours, patch)

    def is_device_tensor(self, tensor: Tensor) -> bool:
        """Tell whether it is a strided CPU tensor."""
        return tensor.device.type == "cpu" and tensor.layout is torch.strided

    def is_host_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the content is known: all but what the capture that is going on computes."""
        with self._device.lock:
            capture = self.current_stream().capture
            return capture is None or capture.knows(tensor.untyped_storage())

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor over the same memory, with the same geometry, that keeps nothing alive.

        Use it only while that memory lives: as on the device, nothing checks. What is launched with it is checked.

        Raises `BadArguments` for a tensor without memory on this device.
        """
        try:
            with _disable_current_modes(), self._device.lock:
                return self._device.weak_views.make(tensor)
        except RuntimeError as error:
            problem = misplaced([tensor]) or f"a {type(tensor).__name__} without memory of its own"
            raise BadArguments("weak_view", f"{problem}; expected a tensor on {self.name}") from error

    def in_pool(self, graph: RuntimeGraph, tensor: Tensor) -> bool:
        """Tell whether the memory was allocated by a capture into this graph's pool (weak views are accepted).

        Graphs that share a pool share the answer.
        """
        with self._device.lock:
            pool = graph.pool()
            storage = tensor.untyped_storage()
            return bool(pool.holds(self._device.weak_views.origin(storage)))

    def synchronize(self, stream: RuntimeStream | None = None) -> None:
        """Work until the stream, or the device, has nothing left to do; `DeviceHang` when that cannot be."""
        self._device.synchronize(None if stream is None else self._device.owned(stream))
