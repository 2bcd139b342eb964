"""A runtime that keeps every device primitive with its times."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs

from npugraph_strategies.runtimes._wrapped import WrappedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from npugraph_strategies.runtimes._base import RuntimeStream

__all__ = ["Primitive", "RecordingRuntime"]

T = TypeVar("T")


@final
@attrs.frozen
class Primitive:
    """One call that reached the device.

    >>> primitive = Primitive("event.record", "ready", stream_id=2, start_ns=0, duration_ns=100, error=None)
    >>> primitive.row
    'stream 2'
    """

    name: str
    """What was called, such as ``"event.record"`` or ``"task_update_begin"``."""
    label: str
    """Which event or graph, by the label it was made with; empty for the rest."""
    stream_id: int | None
    """The stream addressed, or current where a graph is captured or replayed; None if there is none."""
    start_ns: int
    duration_ns: int
    error: str | None
    """Type and text of what was raised, or None."""

    @property
    def row(self) -> str:
        """Return the name of the timeline row that shows this primitive."""
        return "host" if self.stream_id is None else f"stream {self.stream_id}"


@final
@attrs.define(eq=False)
class RecordingRuntime(WrappedRuntime):
    """Record the primitives of any runtime, in the order in which they return; from any thread.

    `clock` returns nanoseconds. Times are the host's: how long the call took, not the work on the device.

    >>> from npugraph_strategies.runtimes import RecordingRuntime, SimulatedRuntime
    >>> runtime = RecordingRuntime(SimulatedRuntime())
    >>> event = runtime.new_event("ready")
    >>> event.record(runtime.new_stream())
    >>> runtime.names()
    ('new_event', 'new_stream', 'event.record')
    >>> runtime.primitives[-1].label
    'ready'
    """

    clock: Callable[[], int] = attrs.field(default=time.perf_counter_ns, kw_only=True, repr=False)
    _recorded: list[Primitive] = attrs.field(factory=list, init=False, repr=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    def _primitive(
        self, name: str, fn: Callable[..., T], *args: Any, label: str = "", stream: RuntimeStream | None = None
    ) -> T:
        """Call and record, whether it returns or raises."""
        stream_id = None if stream is None else stream.stream_id
        failure: str | None = None
        start = self.clock()
        try:
            return fn(*args)
        except BaseException as error:
            failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            primitive = Primitive(name, label, stream_id, start, self.clock() - start, failure)
            with self._lock:
                self._recorded.append(primitive)

    @property
    def primitives(self) -> tuple[Primitive, ...]:
        """Return what was recorded so far; later calls do not change it."""
        with self._lock:
            return tuple(self._recorded)

    def names(self) -> tuple[str, ...]:
        """Return the names of the primitives, in order."""
        return tuple(primitive.name for primitive in self.primitives)

    def counts(self) -> Counter[str]:
        """Return how often each primitive was called."""
        return Counter(self.names())

    def clear(self) -> None:
        """Forget what was recorded."""
        with self._lock:
            self._recorded.clear()

    def chrome_trace(self) -> dict[str, Any]:
        """Return the timeline as a trace-event object: ``json.dump`` it, and open it in Perfetto or chrome://tracing.

        One row per stream and one for the host, in order of appearance; times in microseconds. The format is the
        Trace Event Format of the Chromium project: complete events ("X") and metadata ("M").
        """
        primitives = self.primitives
        rows = {row: at for at, row in enumerate(dict.fromkeys(primitive.row for primitive in primitives))}
        events: list[dict[str, Any]] = [
            {"name": "process_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": self.name}}
        ]
        events += [
            {"name": "thread_name", "ph": "M", "pid": 0, "tid": at, "args": {"name": row}} for row, at in rows.items()
        ]
        events += [_complete_event(primitive, rows[primitive.row]) for primitive in primitives]
        return {"traceEvents": events, "displayTimeUnit": "ns"}


def _complete_event(primitive: Primitive, row: int) -> dict[str, Any]:
    args = {"label": primitive.label} if primitive.label else {}
    if primitive.error is not None:
        args["error"] = primitive.error
    return {
        "name": primitive.name,
        "cat": "npugraph",
        "ph": "X",
        "pid": 0,
        "tid": row,
        "ts": primitive.start_ns / 1000,
        "dur": primitive.duration_ns / 1000,
        "args": args,
    }
