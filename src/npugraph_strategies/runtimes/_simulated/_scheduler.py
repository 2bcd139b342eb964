"""Who runs next: streams as queues of tasks, under a seeded scheduler."""

from __future__ import annotations

import contextlib
import random
from collections import deque
from typing import TYPE_CHECKING

import attrs
import torch
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies.errors import DeviceError
from npugraph_strategies.runtimes._codes import device_error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableSet, Sequence

    from torch import UntypedStorage

    from npugraph_strategies.runtimes._simulated._steps import Marker, Step
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["Cursor", "Scheduler", "Task", "quiet"]


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Run device work unseen by the caller's dispatch modes, autograd (version counters included) and autocast."""
    below_autograd = torch._C._AutoDispatchBelowADInplaceOrView()  # noqa: SLF001 - no public way
    with _disable_current_modes(), torch.no_grad(), torch._C._DisableAutocast(), below_autograd:  # noqa: SLF001 - as above
        yield


@attrs.define(eq=False)
class Cursor:
    """A place in a sequence of steps."""

    steps: Sequence[Step]
    at: int = 0

    @property
    def finished(self) -> bool:
        """Tell whether every step has run."""
        return self.at >= len(self.steps)


@attrs.define(eq=False)
class Task:
    """One entry of a stream: a single step, or one run of a graph with a cursor for each captured stream."""

    cursors: list[Cursor]
    done: MutableSet[Marker]
    where: str = ""
    launches: deque[Task] | None = None
    """The runs of one graph in order of launch: the next begins when the one before has finished."""
    hold: Callable[[], list[UntypedStorage]] = list
    """Return the memory that the run uses, or raise because it is not where it was."""
    held: list[UntypedStorage] = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.held = self.hold()

    @property
    def finished(self) -> bool:
        """Tell whether every step has run."""
        return all(cursor.finished for cursor in self.cursors)

    @property
    def first(self) -> bool:
        """Tell whether no earlier run of the same graph is left."""
        return self.launches is None or self.launches[0] is self

    def ready(self) -> list[Cursor]:
        """Return the cursors that can go on."""
        if not self.first:
            return []
        return [c for c in self.cursors if not c.finished and c.steps[c.at].ready(self.done)]

    def waits(self) -> list[str]:
        """Say what each cursor waits for."""
        if not self.first:
            return [f"{self.where}for an earlier replay of the same graph"]
        return [f"{self.where}{c.steps[c.at].lacks}" for c in self.cursors if not c.finished]


class Scheduler:
    """Pick the next step by a seeded generator: the same seed and the same calls give the same order."""

    def __init__(self, *, seed: int, lazy: bool, most_lazy_steps: int, failed_code: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - reproducible on purpose
        self._lazy = lazy
        self._most_lazy_steps = most_lazy_steps
        self._failed_code = failed_code
        self._busy: dict[int, SimulatedStream] = {}
        self.trace: deque[tuple[int, str]] = deque(maxlen=4096)

    def enqueue(self, stream: SimulatedStream, task: Task) -> None:
        """Put a task at the end of a stream."""
        if task.finished:
            return
        stream.tasks.append(task)
        if task.launches is not None:
            task.launches.append(task)
        self._busy[stream.stream_id] = stream

    def poke(self) -> None:
        """Let the device work after a primitive: to the end, or a few steps when lazy."""
        if not self._busy:
            return
        if self._lazy:
            self._run(limit=self._random.randint(0, self._most_lazy_steps))
        else:
            self._run()

    def drain(self, stream: SimulatedStream | None) -> bool:
        """Work until the stream, or every stream, is empty; False when that cannot be reached."""
        if self._busy:
            self._run(until=stream)
        return not (self._busy if stream is None else stream.tasks)

    def waits(self, stream: SimulatedStream | None) -> list[str]:
        """Say what the stuck streams wait for, the given one first."""
        order = sorted(self._busy.values(), key=lambda s: (s is not stream, s.stream_id))
        names = {s: f"stream {s.stream_id}" + (f" (a runtime's {s.role})" if s.role else "") for s in order}
        return [f"{names[s]} waits {wait}" for s in order for wait in s.tasks[0].waits()]

    def _run(self, *, limit: int | None = None, until: SimulatedStream | None = None) -> None:
        """Take steps until nothing can run, the limit is reached or the stream is empty."""
        sound: set[Task] = set()  # meanwhile the host does nothing that could move their memory
        with quiet():
            while limit is None or limit > 0:
                moves = [(s, c) for s in self._busy.values() for c in s.tasks[0].ready()]
                if not moves or (until is not None and not until.tasks):
                    return
                alone = len(moves) == 1
                stream, cursor = moves[0] if alone else self._random.choice(moves)
                if stream.tasks[0] not in sound:
                    sound.add(self._check(stream))
                self._advance(stream, cursor, on=alone and limit is None)
                if limit is not None:
                    limit -= 1

    def _check(self, stream: SimulatedStream) -> Task:
        """Return the stream's first task, or drop it because its memory is not where it was."""
        try:
            stream.tasks[0].hold()
        except DeviceError:
            self._drop(stream)
            raise
        return stream.tasks[0]

    def _advance(self, stream: SimulatedStream, cursor: Cursor, *, on: bool) -> None:
        """Take one step and, if `on`, the steps after it that concern nobody else."""
        task = stream.tasks[0]
        steps, done, trace, number = cursor.steps, task.done, self.trace, stream.stream_id
        try:
            while True:
                step = steps[cursor.at]
                step.run(done)
                trace.append((number, str(step)))
                cursor.at += 1
                if not on or cursor.at == len(steps) or not steps[cursor.at].free:
                    break
        except Exception as error:
            self._drop(stream)
            problem = f"{step} raised {type(error).__name__}: {error}"
            raise device_error(self._failed_code, f"work on stream {number} {task.where}".rstrip(), problem) from error
        if cursor.at == len(steps) and task.finished:
            self._drop(stream)

    def _drop(self, stream: SimulatedStream) -> None:
        """Take the first task off the stream."""
        task = stream.tasks.popleft()
        if task.launches is not None:
            task.launches.remove(task)
        if not stream.tasks:
            del self._busy[stream.stream_id]
