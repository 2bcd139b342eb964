"""Graphs of the simulated device."""

from __future__ import annotations

import functools
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._capture import Capture
from npugraph_strategies.runtimes._simulated._memory import Pool
from npugraph_strategies.runtimes._simulated._recorder import Recorder
from npugraph_strategies.runtimes._simulated._scheduler import Cursor, Task
from npugraph_strategies.runtimes._simulated._steps import Launch

if TYPE_CHECKING:
    import weakref
    from collections.abc import Callable

    from torch import UntypedStorage

    from npugraph_strategies.runtimes._simulated._device import SimulatedDevice
    from npugraph_strategies.runtimes._simulated._groups import TaskGroup
    from npugraph_strategies.runtimes._simulated._memory import Operand
    from npugraph_strategies.runtimes._simulated._steps import Step
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["SimulatedGraph", "Tape"]

_MODES = ("global", "thread_local", "relaxed")


@attrs.frozen(eq=False)
class Tape:
    """What a capture produced: one sequence of steps for each stream, and the memory that they own and use."""

    lanes: tuple[tuple[Step, ...], ...]
    owned: tuple[UntypedStorage, ...]
    fixed: tuple[Operand, ...]
    grouped: tuple[Launch, ...]
    groups: tuple[TaskGroup, ...]
    task_count: int

    @classmethod
    def of(cls, capture: Capture) -> Tape:
        """Freeze a capture."""
        launches = [s for lane in capture.lanes.values() for s in lane.steps if isinstance(s, Launch)]
        operands = [o for launch in launches if not launch.checked for o in launch.operands]
        fixed = {(o.ref.cdata, o.address, o.nbytes): o for o in reversed(capture.settle() + operands)}
        return cls(
            lanes=tuple(tuple(lane.steps) for lane in capture.lanes.values()),
            owned=tuple(capture.owned.values()),
            fixed=tuple(fixed.values()),
            grouped=tuple(launch for launch in launches if launch.checked),
            groups=tuple(capture.groups),
            task_count=len(launches),
        )

    def hold(self, code: int) -> list[UntypedStorage]:
        """Return the memory that a run uses, to be kept until the run is over.

        What a task group uses may be replaced before it runs, so it is kept if alive and checked when it runs.

        Raises:
            DeviceError: A captured tensor is gone, or was resized.

        """
        held = [operand.hold(code) for operand in self.fixed]
        alive = (operand.peek() for launch in self.grouped for operand in launch.operands)
        return held + [storage for storage in alive if storage is not None]


@final
class SimulatedGraph:
    """A graph: captured once, replayed often."""

    def __init__(self, device: SimulatedDevice, label: str, current_stream: Callable[[], SimulatedStream]) -> None:
        self._device = device
        self._label = label or "unnamed"
        self._current_stream = current_stream
        self._pool = Pool()
        self._capture: Capture | None = None
        self._recorder: Recorder | None = None
        self._tape: Tape | None = None
        self._launches: deque[Task] = deque()
        self._spent = False
        self._counted: weakref.finalize[..., Any] | None = None

    def __repr__(self) -> str:
        return f"<SimulatedGraph {self._label!r}>"

    @property
    def task_count(self) -> int | None:
        """Return how many operators were captured (views and allocations are no tasks); None before the end."""
        return None if self._tape is None else self._tape.task_count

    def pool(self) -> Pool:
        """Return the token of the memory pool; give it to another graph's capture to share the pool."""
        return self._pool

    def capture_begin(self, *, pool: Any = None, capture_error_mode: str = "global") -> None:
        """Begin to capture the current stream: what is launched from now on is stored, not run.

        Raises:
            DeviceError: The default stream (107031), a stream that is capturing (107027) or updating (107033), a graph
                that has captured already.
            ResourceExhausted: No stream is left for the graph (207008).
            ValueError: Unknown mode.
            TypeError: `pool` is not what `pool()` of a graph returned.

        """
        if capture_error_mode not in _MODES:
            message = f"capture_error_mode must be one of {_MODES}; given {capture_error_mode!r}"
            raise ValueError(message)
        if pool is not None and not isinstance(pool, Pool):
            message = f"pool must be what pool() of a graph returned; given {type(pool).__name__}"
            raise TypeError(message)
        doing = f"beginning the capture of graph {self._label!r}"
        with self._device.lock:
            stream = self._current_stream()
            if stream.stream_id == 0:
                raise device_error(107031, doing)
            if stream.capture is not None:
                raise device_error(107027, doing)
            if stream.update is not None:
                raise device_error(107033, doing, f"stream {stream.stream_id} is updating a task group")
            if self._capture is not None or self._tape is not None or self._spent:
                raise device_error(self._device.choices.recapture_code, doing, "the graph has captured already")
            self._counted = self._device.streams.take(self)
            self._pool = self._pool if pool is None else pool
            self._capture = Capture(self._device, stream, capture_error_mode, self._label, self._pool)
            self._device.captures.append(self._capture)
            self._recorder = Recorder(self._capture, self._current_stream)
        self._recorder.open()

    def capture_end(self) -> None:
        """End the capture on the stream where it began. The stream is free afterwards, whatever the outcome.

        Raises:
            DeviceError: The stream is not capturing (107029) or not the origin (107036), another thread began (107038):
                nothing is ended. A task group is open (107033), a stream is not joined (107025), something illegal
                happened before (507903): the capture is lost.

        """
        doing = f"ending the capture of graph {self._label!r}"
        with self._device.lock:
            capture = self._check_end(doing)
            try:
                if capture.failure:
                    raise device_error(507903, doing, capture.failure)
                if capture.group is not None:
                    raise device_error(107033, doing, "a task group is open")
                unjoined = capture.unjoined()
                if unjoined:
                    raise device_error(107025, doing, f"stream(s) {unjoined} joined and were not joined back")
                self._tape = Tape.of(capture)
            finally:
                self._finish(capture)

    def replay(self) -> None:
        """Launch the graph on the current stream.

        Raises:
            DeviceError: The stream is capturing (107026), the graph holds no capture, or a captured tensor is gone
                or was resized.

        """
        doing = f"replay of graph {self._label!r}"
        with self._device.lock:
            stream = self._current_stream()
            if stream.capture is not None:
                raise device_error(107026, doing)
            if self._tape is None:
                raise device_error(self._device.choices.spent_graph_code, doing)
            task = Task(
                cursors=[Cursor(steps) for steps in self._tape.lanes],
                done=set(),
                where=f"in a replay of graph {self._label!r} ",
                launches=self._launches,
                hold=functools.partial(self._tape.hold, self._device.choices.operator_failed_code),
            )
            self._device.launch(stream, task)

    def reset(self) -> None:
        """Give back the graph's memory and stream; its group handles are spent.

        Raises:
            DeviceError: A replay is going on (107037), or the capture is (107027).

        """
        doing = f"destroying graph {self._label!r}"
        with self._device.lock:
            if self._launches:
                raise device_error(107037, doing)
            if self._capture is not None:
                raise device_error(107027, doing)
            self._release()

    def _check_end(self, doing: str) -> Capture:
        """Return the capture that may end here, on this thread."""
        stream, capture = self._current_stream(), self._capture
        if capture is None or stream.capture is not capture:
            raise device_error(107029, doing)
        if stream is not capture.origin:
            raise device_error(107036, doing)
        if capture.mode != "relaxed" and threading.get_ident() != capture.thread:
            raise device_error(107038, doing)
        return capture

    def _finish(self, capture: Capture) -> None:
        """Free the streams and stop recording; a graph whose capture failed is spent."""
        if self._recorder is not None:
            self._recorder.close()
        self._device.captures.remove(capture)
        capture.leave()
        self._capture = self._recorder = None
        if self._tape is None:
            for group in capture.groups:
                group.spend()
            self._release()

    def _release(self) -> None:
        """Drop everything that the graph holds."""
        for group in () if self._tape is None else self._tape.groups:
            group.spend()
        self._tape, self._spent = None, True
        if self._counted is not None:
            self._counted()
        self._pool.prune()
