"""Captured graphs: updated, replayed, closed.

Nothing here waits on the host but `close`, and the healing of a graph whose device state is in doubt.
"""

from __future__ import annotations

import enum
import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, final

import attrs

from npugraph_strategies._bindings import Binding, WatchedModule
from npugraph_strategies._containers import leaves
from npugraph_strategies._device_side import DeviceSide, Planned
from npugraph_strategies._orders import UpdateThenReplay
from npugraph_strategies._pairing import add_note
from npugraph_strategies._records import Record, RecordState, Task
from npugraph_strategies._routing import Rest, Values, route
from npugraph_strategies._values import host_value, same_value
from npugraph_strategies.errors import (
    GraphClosed,
    GraphInvalidated,
    GraphNotArmed,
    GraphNotReady,
    GraphPoisoned,
    InvalidValue,
    StaleBinding,
    UpdateError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from types import TracebackType

    from torch import Tensor
    from torch.nn import Module
    from typing_extensions import Self

    from npugraph_strategies._calls import OpCall
    from npugraph_strategies._orders import UpdateOrder
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeGraph

__all__ = ["CapturedGraph", "MemoryReport", "Validation"]

Validation: TypeAlias = Literal["error", "warn", "off"]


class State(enum.Enum):
    """Where a graph is in its life."""

    CAPTURING = "still being captured"
    FAILED = "not captured, because its capture failed"
    READY = "ready"
    INVALIDATED = "invalidated"
    CLOSED = "closed"


@attrs.frozen
class MemoryReport:
    """What a graph's records hold or use, in bytes (each storage counted once)."""

    held: int
    operands: int


@final
class CapturedGraph:
    """What one capture produced. Made by `GraphCaptureSession.capture` or `attach`.

    All calls are safe from any thread; they return None and do not wait for the device.
    """

    def __init__(
        self,
        *,
        name: str,
        runtime: GraphRuntime,
        order: UpdateOrder,
        validation: Validation,
        watch: Iterable[Module] = (),
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._order = order
        self._validation: Validation = validation
        self._watch: tuple[Module, ...] = tuple(watch)
        self._watched: tuple[WatchedModule, ...] = ()
        self._state = State.CAPTURING
        self._reason = ""
        self._states: tuple[RecordState, ...] = ()
        self._records: tuple[Record, ...] = ()
        self._operands: tuple[Binding, ...] | None = None
        self._device: DeviceSide | None = None

    # -- made by the session -----------------------------------------------------------------------------------------

    def _finish(self, graph: RuntimeGraph, tasks: Iterable[Task], *, owned: bool) -> None:
        """Take what the capture produced."""
        tasks = tuple(tasks)
        self._states = tuple(task.record for task in tasks)
        self._records = tuple(Record(state) for state in self._states)
        self._watched = tuple(WatchedModule.of(module) for module in self._watch)
        self._watch = ()  # modules are watched weakly from here on
        self._device = DeviceSide(self._name, self._runtime, graph, tasks, owned=owned)
        self._state = State.READY

    def _fail(self) -> None:
        self._state = State.FAILED

    # -- what one can look at ----------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """Return the graph's name, used in messages."""
        return self._name

    @property
    def records(self) -> tuple[Record, ...]:
        """Return the captured updatable calls, in capture order."""
        return self._records

    @property
    def params(self) -> tuple[str, ...]:
        """Return all names that an update may give, in capture order."""
        return tuple(dict.fromkeys(name for record in self._records for name in record.params))

    @property
    def closed(self) -> bool:
        """Tell whether the graph was closed."""
        return self._state is State.CLOSED

    def bindings(self) -> tuple[Binding, ...]:
        """Return the caller's tensors that the records use by address, each storage once."""
        if self._operands is None:
            unique: dict[int, Binding] = {}
            for state in self._states:
                for bindings in state.bindings.values():
                    for binding in bindings:
                        unique.setdefault(binding.key, binding)
            self._operands = tuple(unique.values())
        return self._operands

    def verify(self) -> None:
        """Raise `StaleBinding` when an operand, or a tensor of a watched module, is gone, moved or resized."""
        self._verify_operands()
        for watched in self._watched:
            for tensor, problem in watched.problems():
                raise StaleBinding(self._name, "watch", watched.name, tensor, problem)

    def _verify_operands(self) -> None:
        for binding in self.bindings():
            problem = binding.problem()
            if problem is not None:
                raise StaleBinding(self._name, binding.record, binding.op, binding.argument, problem)

    def memory_report(self) -> MemoryReport:
        """Return the bytes that records hold strongly, and those of the caller's that they use."""
        storages = [t.untyped_storage() for state in self._states for t in state.resources]
        held = {storage.data_ptr(): storage.nbytes() for storage in storages}
        return MemoryReport(held=sum(held.values()), operands=sum(b.nbytes for b in self.bindings()))

    def __repr__(self) -> str:
        return f"<CapturedGraph {self._name!r} {self._state.value}, {len(self._records)} record(s)>"

    # -- what one can do ---------------------------------------------------------------------------------------------

    def update(self, values: Values, /, *, rest: Rest = None) -> None:
        """Give records new values and arm them for the next replay.

        Everything that can be refused is refused before the device is touched. Raises `UpdateError`s for names,
        labels, counts and values, `GraphStateError`s for the graph's state. When the device fails halfway, the
        graph is poisoned until an update that reaches every record succeeds.
        """
        with self._runtime.device(), self._runtime.update_lock:
            device = self._usable()
            self._apply(device, self._plan(values, rest, device))

    def replay(self) -> None:
        """Launch the graph on the current stream.

        Raises `GraphNotArmed` when a record was not updated since the last replay: it would wait for ever.
        """
        with self._runtime.device(), self._runtime.update_lock:
            device = self._usable()
            if device.poison:
                raise GraphPoisoned(self._name, device.poison)
            unarmed = tuple(state.label for state in self._states if not state.armed)
            if unarmed:
                raise GraphNotArmed(self._name, unarmed)
            self._verify_operands()
            device.launch()

    def step(self, values: Values, /, *, rest: Rest = None) -> None:
        """Update and replay, in the session's order; the result is the same in either."""
        with self._runtime.device(), self._runtime.update_lock:
            device = self._usable()
            plan = self._plan(values, rest, device)
            if device.poison:
                self._apply(device, plan)
            # A record that is armed already would let a replay run ahead of this step's values.
            order = UpdateThenReplay() if device.any_signalled else self._order
            order.run(update=lambda: self._apply(device, plan), replay=device.launch)

    def invalidate(self, reason: str) -> None:
        """Refuse every further use but `close`, since what was captured is out of date."""
        with self._runtime.update_lock:
            self._usable()
            self._state, self._reason = State.INVALIDATED, reason

    def close(self) -> None:
        """Wait for the last replay of this graph, then give back what it holds. Closing twice is allowed.

        When the wait fails, the error is raised and the graph is not closed: `close` can be tried again.
        """
        if self._state is State.CLOSED:
            return
        with self._runtime.device(), self._runtime.update_lock:
            if self._state is State.CAPTURING:
                raise GraphNotReady(self._name, self._state.value)
            device = self._device
            if device is not None:
                device.settle()
            self._state, self._device, self._operands = State.CLOSED, None, ()
            for state in self._states:
                state.resources.clear()
                state.armed = False
            if device is not None:
                device.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- phase one: on the host --------------------------------------------------------------------------------------

    def _usable(self) -> DeviceSide:
        """Raise unless the graph can be updated and replayed now."""
        if self._state is State.CLOSED:
            raise GraphClosed(self._name)
        if self._state is State.INVALIDATED:
            raise GraphInvalidated(self._name, self._reason)
        if self._device is None:
            raise GraphNotReady(self._name, self._state.value)
        if self._runtime.is_capturing():
            raise GraphNotReady(self._name, "used inside a capture")
        self._device.refuse_shared_stream()
        return self._device

    def _plan(self, values: Values, rest: Rest, device: DeviceSide) -> list[Planned]:
        """Resolve and validate everything."""
        routed = route(self._records, values, rest)
        self._verify_operands()
        return [
            self._plan_task(task, given, force=bool(device.poison))
            for task, given in zip(device.tasks, routed, strict=True)
        ]

    def _plan_task(self, task: Task, given: Mapping[str, Any], *, force: bool) -> Planned:
        record = task.record
        handler, call = record.handler, record.call
        if not given:
            return Planned(task, call, force, {}, [])
        host = {n: host_value(call, n, v) for n, v in given.items() if n not in handler.rebind}
        rebinds = {n: given[n] for n in handler.rebind if n in given and given[n] is not call.arguments[n]}
        if not force and not rebinds and all(same_value(v, call.arguments[n]) for n, v in host.items()):
            return Planned(task, call, False, {}, [])
        self._validate(record, {**host, **rebinds})
        kept = {n: handler.record_wrap_kwarg(call, n, v, self._runtime) for n, v in rebinds.items()}
        new = handler.prepare_update(handler.update_args(call, {**host, **kept}), self._runtime)
        bindings = {
            n: [Binding.of(t, record=record.label, op=call.name, argument=n) for t in leaves(v)]
            for n, v in rebinds.items()
        }
        return Planned(task, new, True, bindings, _made_between(call, new, {*host, *kept}))

    def _validate(self, record: RecordState, values: Mapping[str, Any]) -> None:
        """Ask the handler whether the operator would take the values."""
        if self._validation == "off":
            return
        try:
            record.handler.validate_update(record.call, values)
        except UpdateError as error:
            add_note(error, f"in record {record.label!r} of {self._name}")
            if self._validation == "error" or not isinstance(error, InvalidValue):
                raise
            warnings.warn(f"{error} (record {record.label!r} of {self._name})", stacklevel=5)

    # -- phase two: on the device ------------------------------------------------------------------------------------

    def _apply(self, device: DeviceSide, plan: list[Planned]) -> None:
        device.apply(plan)
        if any(planned.bindings for planned in plan):
            self._operands = None


def _made_between(old: OpCall, new: OpCall, given: set[str]) -> list[Tensor]:
    """Return the tensors that a handler made for an update, such as a larger workspace."""
    before = {id(tensor) for _, tensor in old.tensors()}
    return [tensor for name, tensor in new.tensors() if name not in given and id(tensor) not in before]
