"""The device's part of a captured graph: what is signalled, what is fenced, what a failure leaves in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from npugraph_strategies._pairing import Paired, add_note
from npugraph_strategies.errors import SharedStream

if TYPE_CHECKING:
    from torch import Tensor

    from npugraph_strategies._bindings import Binding
    from npugraph_strategies._calls import OpCall
    from npugraph_strategies._records import Task
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeEvent, RuntimeGraph, RuntimeStream

__all__ = ["DeviceSide", "Planned"]


@attrs.frozen
class Planned:
    """What an update will do to one record: everything that can be refused has been refused."""

    task: Task
    call: OpCall
    changed: bool
    bindings: dict[str, list[Binding]]
    resources: list[Tensor]


class DeviceSide:
    """The device's part of a captured graph: its signals, its order, its replays.

    Three rules keep replays and updates in order without the host. Each record's event is signalled once per replay
    (`RecordState.armed`). And the end of each replay sets a fence, for which the update stream waits before it patches
    anything: the fence is recorded right behind the replay, on its stream, so that nothing of another graph comes
    between. Fences are external events, two in turn; a recorded one is waited for exactly once. Where a record is
    patched again although it is signalled already, the next replay waits for a gate behind the patches.
    """

    def __init__(
        self, name: str, runtime: GraphRuntime, graph: RuntimeGraph, tasks: tuple[Task, ...], *, owned: bool
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._graph = graph
        self.tasks = tasks
        self._owned = owned
        self._fences = self._new_fences()
        self._fence: RuntimeEvent | None = None  # recorded behind the last replay, not yet waited for
        self._hungry: RuntimeEvent | None = None  # the fence of a replay that still waits for its update
        self._gate: RuntimeEvent | None = None  # recorded behind patches that follow an unconsumed signal
        self._replay_stream: RuntimeStream | None = None
        self._doubtful = False  # a primitive failed that may have taken effect: flags on the device are unknown
        self.poison = ""

    def _new_fences(self) -> list[RuntimeEvent]:
        if not self.tasks:
            return []
        return [self._runtime.new_event(f"{self._name}: end of replay ({n})") for n in ("even", "odd")]

    @property
    def any_signalled(self) -> bool:
        """Tell whether a replay launched now could run past some record without waiting."""
        return any(task.record.armed for task in self.tasks)

    def refuse_shared_stream(self) -> None:
        """Raise when the current stream, which replays, is the update stream."""
        if not self.tasks:
            return
        current = self._runtime.current_stream()
        if current.stream_id == self._runtime.update_stream().stream_id:
            raise SharedStream(self._name, str(current.stream_id))

    def launch(self) -> None:
        """Replay on the current stream and set the fence behind it."""
        stream = self._runtime.current_stream()
        fed = all(task.record.armed for task in self.tasks)
        try:
            if self._gate is not None:
                self._gate.wait(stream)
                self._gate.reset(stream)
                self._gate = None
            self._graph.replay()
            self._replay_stream = stream
            if self._fences:
                fence = self._fences[0]
                fence.record(stream)
                self._fences.reverse()
                if fed:
                    self._fence = fence
                    self._disarm()
                else:
                    self._hungry = fence
        except BaseException as error:
            self._replay_stream = stream
            self._doubtful = True
            self.poison = f"the launch failed: {error}"
            raise

    def apply(self, plan: list[Planned]) -> None:
        """Patch and signal every record. When it fails, the graph is poisoned and nothing is left open."""
        stream = self._runtime.update_stream()
        try:
            with self._runtime.stream(stream):
                self._pass_fence(stream)
                late = any(planned.changed and planned.task.record.armed for planned in plan)
                for planned in plan:
                    self._apply_record(planned, stream)
                if self._doubtful:
                    self._make_certain(stream)
                elif late and self._hungry is None:
                    self._set_gate(stream)
        except BaseException as error:
            self._poison(error)
            raise
        self.poison = ""
        if self._hungry is not None:  # the replay that waited for this update has had its signals
            self._fence, self._hungry = self._hungry, None
            self._disarm()

    def _pass_fence(self, stream: RuntimeStream) -> None:
        if self._fence is not None and not self._doubtful:
            try:
                self._fence.wait(stream)
                self._fence.reset(stream)
            except BaseException:
                self._doubtful = True
                raise
        self._fence = None

    def _apply_record(self, planned: Planned, stream: RuntimeStream) -> None:
        task, runtime = planned.task, self._runtime
        record, handle = task.record, task.handle
        if planned.changed:
            with Paired(lambda: runtime.task_update_begin(stream, handle), lambda: runtime.task_update_end(stream)):
                planned.call()
            record.call = planned.call
            record.resources += planned.resources
            record.bindings.update(planned.bindings)
        if not record.armed:
            self._signal(task, stream)

    def _set_gate(self, stream: RuntimeStream) -> None:
        """Let the next replay wait for the patches just issued, because a signal ahead of them would let it pass."""
        try:
            self._gate = self._runtime.new_event(f"{self._name}: late patches")
            self._gate.record(stream)
        except BaseException:
            self._doubtful = True
            raise

    def _signal(self, task: Task, stream: RuntimeStream) -> None:
        try:
            task.event.record(stream)
        except BaseException:
            self._doubtful = True
            raise
        task.record.armed = True

    def _make_certain(self, stream: RuntimeStream) -> None:
        """Bring the device to a known state after a failure that may have taken effect.

        Every record has just been patched, and signalled unless it was known to be. Signal all again, in case a
        signal was lost, and wait on the host until a replay that may be running has ended. What is signalled now
        and what is not is unknown, so signal all for the next replay, and wait again: were these signals still to
        come when it is launched, it could consume an old one, and the late one would let a further replay pass.
        """
        self._signal_all(stream)
        if self._replay_stream is not None:
            self._runtime.synchronize(self._replay_stream)
        self._signal_all(stream)
        self._fences, self._fence, self._hungry, self._gate = self._new_fences(), None, None, None
        self._doubtful = False

    def _signal_all(self, stream: RuntimeStream) -> None:
        for task in self.tasks:
            task.event.record(stream)
            task.record.armed = True
        self._runtime.synchronize(stream)

    def _poison(self, error: BaseException) -> None:
        self.poison = f"an update failed: {error}"
        if self._hungry is not None:
            add_note(error, f"the replay of {self._name} that waits for this update will compute garbage")

    def _disarm(self) -> None:
        for task in self.tasks:
            task.record.armed = False

    def settle(self) -> None:
        """Let a replay that still waits for an update go through, and wait on the host for the last replay."""
        if self._hungry is not None or self._doubtful:
            stream = self._runtime.update_stream()
            for task in self.tasks:
                if self._doubtful or not task.record.armed:
                    self._signal(task, stream)
        if self._replay_stream is not None:
            self._runtime.synchronize(self._replay_stream)

    def release(self) -> None:
        """Give the graph back, unless it is the caller's own."""
        if self._owned:
            self._graph.reset()
