"""A runtime around another runtime, with every device primitive going through one method.

Wrapping observes or disturbs a device without knowing which one it is, and wrappers may be stacked in any order.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from npugraph_strategies.runtimes._base import (
        GraphRuntime,
        RuntimeEvent,
        RuntimeGraph,
        RuntimeLock,
        RuntimeStream,
    )

__all__ = ["PRIMITIVES", "WrappedEvent", "WrappedGraph", "WrappedRuntime"]

T = TypeVar("T")

PRIMITIVES: Final = (
    "event.record",
    "event.reset",
    "event.wait",
    "graph.capture_begin",
    "graph.capture_end",
    "graph.replay",
    "graph.reset",
    "new_event",
    "new_graph",
    "new_stream",
    "synchronize",
    "task_group_begin",
    "task_group_end",
    "task_update_begin",
    "task_update_end",
)
"""The names of everything that reaches the device."""


def _check_inner(_: object, __: attrs.Attribute[GraphRuntime], inner: object) -> None:
    if isinstance(inner, type):
        message = f"wrap a runtime, not the class {inner.__name__}: {inner.__name__}()"
        raise TypeError(message)


@attrs.define(eq=False)
class WrappedRuntime:
    """Forward a whole runtime; subclasses override `_primitive`.

    Queries, locks, the two owned streams, and the context managers for device and stream go straight to `inner`.
    Streams are the inner runtime's own, because nothing on the device is done through them. What a particular inner
    runtime offers beyond the protocol is reached through `inner`.
    """

    inner: GraphRuntime = attrs.field(validator=_check_inner)

    def _primitive(
        self, name: str, fn: Callable[..., T], *args: Any, label: str = "", stream: RuntimeStream | None = None
    ) -> T:
        """Call `fn`, which is one of `PRIMITIVES`; `label` and `stream` say of what and on what."""
        del name, label, stream  # facts for those who override this
        return fn(*args)

    @property
    def name(self) -> str:
        """Return the inner runtime's name."""
        return self.inner.name

    @property
    def capture_lock(self) -> RuntimeLock:
        """Return the device's lock."""
        return self.inner.capture_lock

    @property
    def update_lock(self) -> RuntimeLock:
        """Return the lock of the inner runtime's update stream."""
        return self.inner.update_lock

    def device(self) -> AbstractContextManager[Any]:
        """Make the device the current one in this thread."""
        return self.inner.device()

    def current_stream(self) -> RuntimeStream:
        """Return this thread's current stream."""
        return self.inner.current_stream()

    def new_stream(self) -> RuntimeStream:
        """Make a stream."""
        return self._primitive("new_stream", self.inner.new_stream)

    def capture_stream(self) -> RuntimeStream:
        """Return the inner runtime's capture stream."""
        return self.inner.capture_stream()

    def update_stream(self) -> RuntimeStream:
        """Return the inner runtime's update stream."""
        return self.inner.update_stream()

    def stream(self, stream: RuntimeStream) -> AbstractContextManager[Any]:
        """Make `stream` the current one in this thread."""
        return self.inner.stream(stream)

    def is_capturing(self) -> bool:
        """Tell whether this thread's current stream is being captured."""
        return self.inner.is_capturing()

    def new_event(self, label: str = "") -> RuntimeEvent:
        """Make an event whose calls are primitives of this runtime."""
        return WrappedEvent(self, self._primitive("new_event", self.inner.new_event, label, label=label), label)

    def new_graph(self, label: str = "") -> RuntimeGraph:
        """Make a graph whose calls are primitives of this runtime."""
        return WrappedGraph(self, self._primitive("new_graph", self.inner.new_graph, label, label=label), label)

    def adopt_graph(self, graph: Any, label: str = "") -> RuntimeGraph:
        """Return a caller's own graph as one whose calls are primitives of this runtime."""
        return WrappedGraph(self, self.inner.adopt_graph(_unwrapped(graph), label), label)

    def task_group_begin(self, stream: RuntimeStream) -> None:
        """Open a task group on a capturing stream."""
        self._primitive("task_group_begin", self.inner.task_group_begin, stream, stream=stream)

    def task_group_end(self, stream: RuntimeStream) -> Any:
        """Close the group and return its handle."""
        return self._primitive("task_group_end", self.inner.task_group_end, stream, stream=stream)

    def task_update_begin(self, stream: RuntimeStream, handle: Any) -> None:
        """Begin to replace the tasks of `handle`."""
        self._primitive("task_update_begin", self.inner.task_update_begin, stream, handle, stream=stream)

    def task_update_end(self, stream: RuntimeStream) -> None:
        """End the replacement."""
        self._primitive("task_update_end", self.inner.task_update_end, stream, stream=stream)

    def is_device_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the tensor lies on the device."""
        return self.inner.is_device_tensor(tensor)

    def is_host_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the host knows the tensor's content now."""
        return self.inner.is_host_tensor(tensor)

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the same geometry that holds no storage alive."""
        return self.inner.weak_view(tensor)

    def in_pool(self, graph: RuntimeGraph, tensor: Tensor) -> bool:
        """Tell whether the tensor's memory was allocated by this graph's capture."""
        return self.inner.in_pool(_unwrapped(graph), tensor)

    def synchronize(self, stream: RuntimeStream | None = None) -> None:
        """Wait on the host for a stream, or for the whole device."""
        self._primitive("synchronize", self.inner.synchronize, stream, stream=stream)


@final
@attrs.frozen(eq=False)
class WrappedEvent:
    """An event of a wrapped runtime."""

    runtime: WrappedRuntime = attrs.field(repr=False)
    inner: RuntimeEvent
    label: str

    def _primitive(self, name: str, fn: Callable[[RuntimeStream], None], stream: RuntimeStream) -> None:
        self.runtime._primitive(name, fn, stream, label=self.label, stream=stream)  # noqa: SLF001 - of this module

    def wait(self, stream: RuntimeStream) -> None:
        """Make later work on `stream` wait for one `record`."""
        self._primitive("event.wait", self.inner.wait, stream)

    def reset(self, stream: RuntimeStream) -> None:
        """Clear the flag in stream order."""
        self._primitive("event.reset", self.inner.reset, stream)

    def record(self, stream: RuntimeStream) -> None:
        """Set the flag when `stream` gets here."""
        self._primitive("event.record", self.inner.record, stream)


@final
@attrs.frozen(eq=False)
class WrappedGraph:
    """A graph of a wrapped runtime; its primitives address the then current stream."""

    runtime: WrappedRuntime = attrs.field(repr=False)
    inner: RuntimeGraph
    label: str

    def _primitive(self, name: str, fn: Callable[[], None], stream: RuntimeStream | None) -> None:
        self.runtime._primitive(name, fn, label=self.label, stream=stream)  # noqa: SLF001 - of this module

    def capture_begin(self, *, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream."""
        begin = partial(self.inner.capture_begin, pool=pool, capture_error_mode=capture_error_mode)
        self._primitive("graph.capture_begin", begin, self.runtime.current_stream())

    def capture_end(self) -> None:
        """End the capture on the same stream."""
        self._primitive("graph.capture_end", self.inner.capture_end, self.runtime.current_stream())

    def replay(self) -> None:
        """Launch the graph on the current stream."""
        self._primitive("graph.replay", self.inner.replay, self.runtime.current_stream())

    def reset(self) -> None:
        """Give back what the graph holds."""
        self._primitive("graph.reset", self.inner.reset, None)

    def pool(self) -> Any:
        """Return the token of the graph's memory pool."""
        return self.inner.pool()

    @property
    def task_count(self) -> int | None:
        """Return how many tasks were captured, or None where the device cannot say."""
        return self.inner.task_count


def _unwrapped(graph: Any) -> Any:
    """Return the inner runtime's graph."""
    return graph.inner if isinstance(graph, WrappedGraph) else graph
