"""One simulated device: what all runtimes on it share."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies.errors import DeviceHang, ResourceExhausted
from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._choices import Choices
from npugraph_strategies.runtimes._simulated._memory import WeakViews
from npugraph_strategies.runtimes._simulated._scheduler import Cursor, Scheduler, Task
from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

if TYPE_CHECKING:
    from collections.abc import MutableSet

    from npugraph_strategies.runtimes._simulated._capture import Capture
    from npugraph_strategies.runtimes._simulated._steps import Marker, Step

__all__ = ["Counter", "Limits", "SimulatedDevice"]


@final
@attrs.frozen(kw_only=True)
class Limits:
    """How much a device has (the defaults are those observed on Ascend devices).

    >>> Limits(events=8)
    Limits(streams=1984, events=8)
    """

    streams: int = 1984
    events: int = 65536


class Counter:
    """How many of one kind are in use. What dies gives its share back, from whatever thread collects it."""

    def __init__(self, kind: str, limit: int, code: int) -> None:
        self._kind, self._limit, self._code = kind, limit, code
        self._taken = 0
        self._returned: deque[None] = deque()

    @property
    def in_use(self) -> int:
        """Return how many are alive."""
        return self._taken - len(self._returned)

    def take(self, owner: Any) -> weakref.finalize[..., Any]:
        """Count one for `owner` until it dies, or until the returned finalizer is called.

        Raises:
            ResourceExhausted: None is left (207007 for events, 207008 for streams).

        """
        if self.in_use >= self._limit:
            error = device_error(
                self._code,
                f"making one of the {self._kind}",
                f"the device has {self._limit} {self._kind}, {self.in_use} are in use, 1 more is needed",
            )
            raise ResourceExhausted(code=error.code, doing=error.doing, problem=error.problem)
        for _ in range(len(self._returned)):  # fold them in; others may come meanwhile
            self._returned.pop()
            self._taken -= 1
        self._taken += 1
        given_back = weakref.finalize(owner, self._returned.append, None)
        given_back.atexit = False
        return given_back


@final
class SimulatedDevice:
    """A deterministic model of one NPU: streams, external events, graphs and task groups, with its limits.

    `seed` fixes the order in which streams run; with `lazy` work is left undone at each primitive (a seeded number of
    steps is taken), so read results after `synchronize` only. Runtimes on one device share its limits and its lock.

    >>> from npugraph_strategies.runtimes import SimulatedRuntime
    >>> device = SimulatedDevice(limits=Limits(events=8))
    >>> ours, theirs = SimulatedRuntime(device), SimulatedRuntime(device)
    >>> events = ours.new_event("ours"), theirs.new_event("theirs")
    >>> device.events.in_use
    2
    """

    def __init__(
        self,
        index: int = 0,
        *,
        seed: int = 0,
        lazy: bool = False,
        limits: Limits | None = None,
        choices: Choices | None = None,
    ) -> None:
        self.index = index
        self.limits = Limits() if limits is None else limits
        self.choices = Choices() if choices is None else choices
        self.capture_lock = threading.RLock()
        self.lock = threading.RLock()
        self._news = threading.Condition(self.lock)
        self.streams = Counter("streams", self.limits.streams, 207008)
        self.events = Counter("events", self.limits.events, 207007)
        self.weak_views = WeakViews()
        self.captures: list[Capture] = []
        self.scheduler = Scheduler(
            seed=seed,
            lazy=lazy,
            most_lazy_steps=self.choices.most_lazy_steps,
            failed_code=self.choices.operator_failed_code,
        )
        self.default_stream = SimulatedStream(self, 0)
        self._ids = itertools.count(1)
        self._done: MutableSet[Marker] = weakref.WeakSet()

    def __repr__(self) -> str:
        return f"<SimulatedDevice {self.index}>"

    @property
    def trace(self) -> tuple[tuple[int, str], ...]:
        """Return the last steps that ran: the stream's number and what it did."""
        with self.lock:
            return tuple(self.scheduler.trace)

    def new_stream(self, role: str = "") -> SimulatedStream:
        """Make a stream; it is counted until it dies."""
        with self.lock:
            stream = SimulatedStream(self, next(self._ids), role)
            self.streams.take(stream)
            return stream

    def owned(self, stream: object) -> SimulatedStream:
        """Return the stream if it is one of this device's (else 107003)."""
        if not isinstance(stream, SimulatedStream) or stream.device is not self:
            raise device_error(107003, "using a stream", f"{stream!r} is not a stream of {self!r}")
        return stream

    def submit(self, stream: SimulatedStream, step: Step) -> None:
        """Do one step in the order of `stream`: capture it if the stream is capturing, else run it."""
        with self.lock:
            if stream.capture is not None:
                stream.capture.append(stream, step)
                return
            self.launch(stream, Task([Cursor([step])], self._done))

    def launch(self, stream: SimulatedStream, task: Task) -> None:
        """Put a task at the end of `stream` and let the device work."""
        with self.lock:
            self.scheduler.enqueue(stream, task)
            self.scheduler.poke()
            self._news.notify_all()

    def synchronize(self, stream: SimulatedStream | None) -> None:
        """Work until the stream, or the device, has nothing left to do.

        Raises:
            DeviceHang: Something waits for what nobody will signal (507046). The work stays queued: signal it and
                synchronize again.
            DeviceError: A capture is going on; it is invalidated.

        """
        with self.lock:
            self._refuse_while_capturing(stream)
            if not self._news.wait_for(lambda: self.scheduler.drain(stream), self.choices.hang_patience):
                error = device_error(507046, "synchronize", "; ".join(self.scheduler.waits(stream)))
                raise DeviceHang(code=error.code, doing=error.doing, problem=error.problem)

    def _refuse_while_capturing(self, stream: SimulatedStream | None) -> None:
        """Raise, and invalidate what is being captured, when the host would wait for it."""
        hit = self.captures if stream is None else [stream.capture] if stream.capture is not None else []
        for capture in hit:
            capture.invalidate("the host synchronized during the capture")
        if hit:
            code = self.choices.sync_device_code if stream is None else self.choices.sync_stream_code
            raise device_error(code, "synchronize")
