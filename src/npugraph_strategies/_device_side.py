"""The device's part of a captured graph: what is signalled, what is fenced, what a failure leaves in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from npugraph_strategies._pairing import Paired, add_note
from npugraph_strategies.errors import SharedStream

if TYPE_CHECKING:
    from npugraph_strategies._planning import Planned
    from npugraph_strategies._records import Task
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeEvent, RuntimeGraph, RuntimeStream

__all__ = ["DeviceSide"]

_MOST_OLD_GATES = 64


class DeviceSide:
    """The device's part of a captured graph: its signals, its order, its replays.

    Three rules keep replays and updates in order without the host.

    - Each record's event is signalled once per replay (`RecordState.armed`).
    - The end of each replay sets a fence, for which the update stream waits before the next patch. The fence is
      recorded right behind the replay, on its stream, so that nothing of another graph comes between; and it is
      waited for before the next replay is launched without its signals, so that at most one is outstanding.
    - Where a record is patched although it is signalled already, the next replay waits for a gate behind the patches.

    Nothing is ever left waiting: a replay whose update fails gets the missing signals at once, so that it ends, with
    a result that is declared garbage, and holds up nobody else.
    """

    def __init__(
        self, name: str, runtime: GraphRuntime, graph: RuntimeGraph, tasks: tuple[Task, ...], *, owned: bool
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._graph = graph
        self.tasks = tasks
        self._owned = owned
        self._fence = self._new_fence()
        self._fenced = False  # the fence is recorded behind the last replay, and not yet waited for
        self._gate: RuntimeEvent | None = None  # recorded behind late patches, and not yet waited for
        self._old_gates: list[RuntimeEvent] = []  # the device may still use them
        self._waiting = False  # a replay was launched whose records are not all signalled
        self._ahead = False  # the update stream has patches that no replay waits for
        self._streams: dict[int, RuntimeStream] = {}  # where replays may still run
        self._doubtful = False  # a primitive failed that may have taken effect: flags on the device are unknown
        self.poison = ""

    def _new_fence(self) -> RuntimeEvent | None:
        return self._runtime.new_event(f"{self._name}: end of replay") if self.tasks else None

    def pool(self) -> Any:
        """Return the token of the graph's memory pool."""
        return self._graph.pool()

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

    # -- replay ------------------------------------------------------------------------------------------------------

    def launch(self) -> None:
        """Replay on the current stream and set the fence behind it."""
        stream = self._runtime.current_stream()
        waiting = not all(task.record.armed for task in self.tasks)
        try:
            if waiting:
                self._pass_fence(self._runtime.update_stream())
            self._pass_gate(stream)
            self._streams[stream.stream_id] = stream
            self._waiting = waiting
            self._graph.replay()
            if self._fence is not None:
                self._fence.record(stream)
                self._fenced = True
            self._disarm()
            self._ahead = False
        except BaseException as error:
            if self.tasks:
                self._doubtful = True
                self._fail(f"a launch failed: {error}", error)
            raise

    def _pass_gate(self, stream: RuntimeStream) -> None:
        """Let a replay wait for late patches."""
        if self._gate is not None:
            self._gate.wait(stream)
            self._gate.reset(stream)
            self._old_gates.append(self._gate)
            self._gate = None

    def abandon(self) -> None:
        """Let a replay end that was launched in a step and got no update."""
        if self._waiting:
            self._fail("a replay was launched without its update")

    def _fail(self, reason: str, error: BaseException | None = None) -> None:
        """Poison the graph, and give a replay that still waits the signals that are missing."""
        self.poison = reason
        if not self._waiting:
            return
        if error is not None:
            add_note(error, f"a replay of {self._name} was launched that got no update; it computes garbage")
        stream = self._runtime.update_stream()
        try:
            for task in self.tasks:
                if self._doubtful or not task.record.armed:
                    task.event.record(stream)
        except Exception:  # noqa: BLE001 - the first error is the one to see; this one leaves the flags in doubt
            self._doubtful = True
        else:
            self._waiting = False
            self._disarm()

    def _disarm(self) -> None:
        for task in self.tasks:
            task.record.armed = False

    # -- update ------------------------------------------------------------------------------------------------------

    def apply(self, plan: list[Planned]) -> None:
        """Patch and signal every record. When it fails, the graph is poisoned and nothing is left open."""
        stream = self._runtime.update_stream()
        try:
            # What was captured in inference mode may be written to in inference mode only; the rest in either.
            with self._runtime.stream(stream), torch.inference_mode():
                self._apply(plan, stream)
        except BaseException as error:
            self._fail(f"an update failed: {error}", error)
            raise
        for planned in plan:
            planned.task.record.call = planned.call
            if planned.bindings:
                planned.task.record.bindings = {**planned.task.record.bindings, **planned.bindings}
        self.poison = ""
        if self._waiting:  # the replay that waited for this update has had its signals
            self._waiting, self._ahead = False, False
            self._disarm()

    def take_back(self, plan: list[Planned]) -> None:
        """Let the values of a step that failed not stand: they may be the reason, and healing may repeat them."""
        for planned in plan:
            planned.task.record.call, planned.task.record.bindings = planned.before

    def _apply(self, plan: list[Planned], stream: RuntimeStream) -> None:
        if not self._waiting:
            self._pass_fence(stream)
        self._ahead = True
        late = any(planned.changed and planned.task.record.armed for planned in plan)
        for planned in plan:
            if planned.changed:
                self._patch(planned, stream)
            if not planned.task.record.armed:
                self._signal(planned.task, stream)
        if self._doubtful:
            self._make_certain(stream)
        elif late:
            self._set_gate(stream)

    def _pass_fence(self, stream: RuntimeStream) -> None:
        """Let the update stream wait for the end of the last replay."""
        if self._fence is not None and self._fenced and not self._doubtful:
            try:
                self._fence.wait(stream)
                self._fence.reset(stream)
            except BaseException:
                self._doubtful = True
                raise
            self._fenced = False

    def _patch(self, planned: Planned, stream: RuntimeStream) -> None:
        runtime, handle = self._runtime, planned.task.handle
        planned.task.record.resources += planned.resources  # before: a patch that fails may have taken effect
        with Paired(lambda: runtime.task_update_begin(stream, handle), lambda: runtime.task_update_end(stream)):
            planned.call()

    def _signal(self, task: Task, stream: RuntimeStream) -> None:
        try:
            task.event.record(stream)
        except BaseException:
            self._doubtful = True
            raise
        task.record.armed = True

    def _set_gate(self, stream: RuntimeStream) -> None:
        """Let the next replay wait for the patches just issued, because a signal ahead of them would let it pass.

        Every gate is a new event. Recorded twice, it would open at the first record already, and waited for on two
        streams, either wait could take the other's record. Old ones are dropped when the host knows that they are
        done with, which it has to wait for once in a long while.
        """
        try:
            if len(self._old_gates) >= _MOST_OLD_GATES:
                self._runtime.synchronize(stream)
                self._wait_for_replays()
                self._old_gates.clear()
            if self._gate is not None:
                self._old_gates.append(self._gate)
            self._gate = self._runtime.new_event(f"{self._name}: late patches")
            self._gate.record(stream)
        except BaseException:
            self._doubtful = True
            raise

    def _make_certain(self, stream: RuntimeStream) -> None:
        """Bring the device to a known state after a failure that may have taken effect.

        Every record has just been patched, and signalled unless it was known to be. Signal all again, in case a
        signal was lost, and wait on the host until a replay that may be running has ended. What is signalled now
        and what is not is unknown, so signal all for the next replay, and wait again: were these signals still to
        come when it is launched, it could consume an old one, and the late one would let a further replay pass.
        """
        self._signal_all(stream)
        self._wait_for_replays()
        self._signal_all(stream)
        self._fence, self._fenced, self._waiting = self._new_fence(), False, False
        self._gate, self._old_gates = None, []
        self._doubtful = False

    def _signal_all(self, stream: RuntimeStream) -> None:
        for task in self.tasks:
            task.event.record(stream)
            task.record.armed = True
        self._runtime.synchronize(stream)

    def _wait_for_replays(self) -> None:
        for stream in self._streams.values():
            self._runtime.synchronize(stream)
        self._streams.clear()

    # -- end ---------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait on the host for this graph's replays and patches, then give it back, unless it is the caller's own."""
        try:
            if self._waiting or self._doubtful:
                for task in self.tasks:
                    task.event.record(self._runtime.update_stream())
            self._wait_for_replays()
            if self._ahead:
                self._runtime.synchronize(self._runtime.update_stream())
            if self._owned:
                self._graph.reset()
        except BaseException:
            self._doubtful = True
            raise
