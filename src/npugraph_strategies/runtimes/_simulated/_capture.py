"""A capture that is going on."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import attrs

from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._memory import Operand, Pool, alias, new_storage, poison, unowned
from npugraph_strategies.runtimes._simulated._steps import AwaitMark, Launch, Mark, Restore

if TYPE_CHECKING:
    import torch
    from torch import Tensor, UntypedStorage

    from npugraph_strategies.errors import NotCapturable
    from npugraph_strategies.runtimes._simulated._device import SimulatedDevice
    from npugraph_strategies.runtimes._simulated._groups import TaskGroup
    from npugraph_strategies.runtimes._simulated._steps import Marker, Step
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["Capture", "Lane"]


@attrs.define(eq=False)
class Lane:
    """What one stream of the capture does, and how far it has seen the other ones (a vector clock)."""

    steps: list[Step] = attrs.field(factory=list)
    seen: dict[Lane, int] = attrs.field(factory=dict)
    work: int = 0
    """How many steps precede the last one that is not a mark: what a join must cover."""


class Capture:
    """What has been captured so far, on which streams, and who owns the memory."""

    def __init__(self, device: SimulatedDevice, origin: SimulatedStream, mode: str, label: str, pool: Pool) -> None:
        self.device = device
        self.origin = origin
        self.mode = mode
        self.label = label
        self.pool = pool
        self.thread = threading.get_ident()
        self.lanes: dict[SimulatedStream, Lane] = {}
        self.owned: dict[int, UntypedStorage] = {}
        self.group: TaskGroup | None = None
        self.groups: list[TaskGroup] = []
        self.failure = ""
        self._used: dict[int, Operand] = {}
        self._unowned: dict[int, UntypedStorage] = {}
        self._marks: dict[Marker, dict[Lane, int]] = {}
        self.join(origin)

    def join(self, stream: SimulatedStream) -> None:
        """Capture this stream too."""
        self.lanes[stream] = Lane()
        stream.capture = self

    def leave(self) -> None:
        """Release the streams and forget everything: what was captured belongs to the tape, or to nobody."""
        for stream in self.lanes:
            stream.capture = None
        self.lanes, self.owned, self._used, self._unowned, self._marks = {}, {}, {}, {}, {}

    def invalidate(self, reason: str) -> None:
        """Spoil the capture: its end will fail (507903). The first reason is kept."""
        self.failure = self.failure or reason

    def note(self, refused: NotCapturable) -> None:
        """Spoil the capture by what was refused, as the synchronisation it stands for would."""
        if self.device.choices.refusal_invalidates:
            self.invalidate(str(refused))

    def append(self, stream: SimulatedStream, step: Step) -> None:
        """Capture one step.

        Raises:
            DeviceError: A task group is open, on another stream (107034) or for operators only (507009).

        """
        if self.group is not None and not isinstance(step, Restore):  # a value of the host is no launch
            self._append_to_group(self.group, stream, step)
        lane = self.lanes[stream]
        lane.steps.append(step)
        if isinstance(step, Mark):
            self._marks[step.marker] = {**lane.seen, lane: len(lane.steps)}
        elif isinstance(step, AwaitMark):
            for other, place in self._marks[step.marker].items():
                lane.seen[other] = max(place, lane.seen.get(other, 0))
            lane.work = len(lane.steps)
        else:
            lane.work = len(lane.steps)

    def unjoined(self) -> list[int]:
        """Return the streams whose last work the origin stream does not wait for."""
        seen = self.lanes[self.origin].seen
        return [
            stream.stream_id
            for stream, lane in self.lanes.items()
            if stream is not self.origin and seen.get(lane, -1) < lane.work
        ]

    def allocate(self, nbytes: int, dtype: torch.dtype, storage: UntypedStorage | None = None) -> UntypedStorage:
        """Return poisoned memory that belongs to the graph: new, or `storage` adopted."""
        made = new_storage(nbytes) if storage is None else storage
        if made.nbytes():
            poison(made, dtype)
        return self.adopt(made)

    def adopt(self, storage: UntypedStorage) -> UntypedStorage:
        """Let the graph own this storage, contents and all."""
        self.owned[storage._cdata] = storage  # noqa: SLF001 - the identity that weak references use
        self.pool.adopt(storage)
        return storage

    def knows(self, storage: UntypedStorage) -> bool:
        """Tell whether the content is known while capturing: not the graph's own memory, or one of its constants."""
        owned = self.owned.get(self.device.weak_views.origin(storage).cdata)
        steps = (step for lane in self.lanes.values() for step in lane.steps)
        return owned is None or any(
            isinstance(step, Restore) and step.constant.untyped_storage()._cdata == owned._cdata  # noqa: SLF001 - identity
            for step in steps
        )

    def refer(self, op: str, argument: str, tensor: Tensor) -> tuple[Tensor, Operand | None]:
        """Return an alias for the tape, and the operand behind it unless the graph owns that memory."""
        storage = tensor.untyped_storage()
        origin = self.device.weak_views.origin(storage)
        owned = self.owned.get(origin.cdata)
        if owned is not None:
            used = self._used.get(origin.cdata)
            if used is None or used.nbytes < storage.nbytes():
                self._used[origin.cdata] = Operand.of(storage, origin, op, argument)
            return alias(tensor, owned), None
        weak = self._unowned.get(origin.cdata)
        if weak is None or weak.data_ptr() != storage.data_ptr() or weak.nbytes() != storage.nbytes():
            weak = self._unowned[origin.cdata] = unowned(storage)
        return alias(tensor, weak), Operand.of(storage, origin, op, argument)

    def settle(self) -> list[Operand]:
        """Return where the graph's own memory lies at the end; what was shrunk meanwhile is still written to."""
        for used in self._used.values():
            storage = self.owned[used.ref.cdata]
            if storage.nbytes() < used.nbytes:
                storage.resize_(used.nbytes)
        return [
            Operand.of(self.owned[used.ref.cdata], used.ref, used.op, used.argument)
            for used in self._used.values()
            if used.nbytes
        ]

    def _append_to_group(self, group: TaskGroup, stream: SimulatedStream, step: Step) -> None:
        """Put the step into the open group, or refuse it."""
        if stream is not group.stream:
            self.invalidate("another stream launched while a task group was open")
            raise device_error(107034, f"launching {step} on stream {stream.stream_id}")
        if not isinstance(step, Launch):
            self.invalidate("something other than an operator was put into a task group")
            raise device_error(507009, f"putting {step} into a task group")
        step.checked = True
        group.launches.append(step)
