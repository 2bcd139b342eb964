"""The device, seen through primitives.

A runtime is what a session needs of a device and no more: streams, external events, graphs, task groups, task
updates, weak views. The names are torch_npu's. Everything that the session does to a device goes through these
primitives, which is why wrapping a runtime observes or disturbs all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from torch import Tensor

__all__ = ["GraphRuntime", "RuntimeEvent", "RuntimeGraph", "RuntimeLock", "RuntimeStream"]


class RuntimeStream(Protocol):
    """A queue of device work. Two objects are the same stream when their `stream_id` is equal."""

    @property
    def stream_id(self) -> int:
        """Return the number that tells streams of one device apart."""
        ...


class RuntimeEvent(Protocol):
    """An external event: a level-triggered flag that a captured wait consumes."""

    def wait(self, stream: RuntimeStream) -> None:
        """Make later work on `stream` wait for one `record`; on a capturing stream this becomes a task."""
        ...

    def reset(self, stream: RuntimeStream) -> None:
        """Clear the flag in stream order (does nothing where the wait already consumes it)."""
        ...

    def record(self, stream: RuntimeStream) -> None:
        """Set the flag when `stream` gets here."""
        ...


class RuntimeGraph(Protocol):
    """What one capture produces on the device."""

    def capture_begin(self, *, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream."""
        ...

    def capture_end(self) -> None:
        """End the capture on the same stream."""
        ...

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        ...

    def reset(self) -> None:
        """Give back what the graph holds; it cannot be replayed afterwards."""
        ...

    def pool(self) -> Any:
        """Return the token of the graph's memory pool."""
        ...

    @property
    def task_count(self) -> int | None:
        """Return how many tasks were captured, or None where the device cannot say."""
        ...


class RuntimeLock(Protocol):
    """A lock used as a context manager, and tried without waiting."""

    def acquire(self, blocking: bool = ...) -> bool:  # noqa: FBT001 - the shape of threading.Lock
        """Take the lock."""
        ...

    def release(self) -> None:
        """Give the lock back."""
        ...

    def __enter__(self) -> Any: ...

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None, /
    ) -> Any: ...


class GraphRuntime(Protocol):
    """A device that can capture, update and replay graphs."""

    @property
    def name(self) -> str:
        """Return the runtime's name for people, such as ``npu:0``."""
        ...

    @property
    def capture_lock(self) -> RuntimeLock:
        """Return the reentrant lock that one capture on this *device* holds (shared by all runtimes of the device)."""
        ...

    @property
    def update_lock(self) -> RuntimeLock:
        """Return the reentrant lock that guards this runtime's update stream."""
        ...

    def device(self) -> AbstractContextManager[Any]:
        """Make this runtime's device the current one in this thread."""
        ...

    def current_stream(self) -> RuntimeStream:
        """Return this thread's current stream."""
        ...

    def new_stream(self) -> RuntimeStream:
        """Make a stream."""
        ...

    def capture_stream(self) -> RuntimeStream:
        """Return the stream that captures use when the caller names none (made when first asked for)."""
        ...

    def update_stream(self) -> RuntimeStream:
        """Return the stream that updates use (made when first asked for; owned by this runtime)."""
        ...

    def stream(self, stream: RuntimeStream) -> AbstractContextManager[Any]:
        """Make `stream` the current one in this thread."""
        ...

    def is_capturing(self) -> bool:
        """Tell whether this thread's current stream is being captured."""
        ...

    def new_event(self, label: str = "") -> RuntimeEvent:
        """Make an external event; `label` names it in messages."""
        ...

    def new_graph(self, label: str = "") -> RuntimeGraph:
        """Make an empty graph; `label` names it in messages."""
        ...

    def adopt_graph(self, graph: Any, label: str = "") -> RuntimeGraph:
        """Return a caller's own graph, of the device's native type, as a `RuntimeGraph`.

        Raises `AttachRefused` when the graph records updatable operators by itself.
        """
        ...

    def task_group_begin(self, stream: RuntimeStream) -> None:
        """Open a task group on a capturing stream."""
        ...

    def task_group_end(self, stream: RuntimeStream) -> Any:
        """Close the group and return its handle."""
        ...

    def task_update_begin(self, stream: RuntimeStream, handle: Any) -> None:
        """Begin to replace the tasks of `handle`; what is launched on `stream` until the end replaces them."""
        ...

    def task_update_end(self, stream: RuntimeStream) -> None:
        """End the replacement; the patch takes effect in the order of `stream`."""
        ...

    def is_device_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the tensor lies on this runtime's device."""
        ...

    def is_host_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the host knows the tensor's content now, also inside a capture."""
        ...

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor with the same sizes, strides, offset and dtype that holds no storage alive."""
        ...

    def in_pool(self, graph: RuntimeGraph, tensor: Tensor) -> bool:
        """Tell whether the tensor's memory was allocated by this graph's capture (weak views are accepted)."""
        ...

    def synchronize(self, stream: RuntimeStream | None = None) -> None:
        """Wait on the host for a stream, or for the whole device."""
        ...
