"""Captured graphs: updated, replayed, closed.

Nothing here waits on the host but `close`, the healing of a graph whose device state is in doubt, and once in 64
times an update of records that were updated already and not replayed since.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, final

import attrs
from torch.nn import Module

from npugraph_strategies._bindings import Binding, WatchedModule
from npugraph_strategies._capture import recording_here
from npugraph_strategies._device_side import DeviceSide
from npugraph_strategies._orders import Halves, UpdateThenReplay
from npugraph_strategies._planning import Planned, Planner, Validation
from npugraph_strategies._records import Record, RecordState, Task
from npugraph_strategies._routing import Rest, Routed, Values, route
from npugraph_strategies.errors import (
    GraphClosed,
    GraphInCapture,
    GraphInvalidated,
    GraphNotArmed,
    GraphNotReady,
    GraphPoisoned,
    StaleBinding,
)

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from typing_extensions import Self

    from npugraph_strategies._orders import UpdateOrder
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeGraph

__all__ = ["CapturedGraph", "MemoryReport"]


class State(enum.Enum):
    """Where a graph is in its life."""

    CAPTURING = "still being captured"
    FAILED = "not captured, because its capture failed"
    READY = "ready"
    INVALIDATED = "invalidated"
    CLOSED = "closed"


@attrs.frozen
class MemoryReport:
    """What a graph's records hold or use, in bytes (each storage counted once).

    >>> import torch
    >>> from npugraph_strategies import GraphCaptureSession, HandlerRegistry, UpdateParams
    >>> from npugraph_strategies.runtimes import SimulatedRuntime
    >>> registry = HandlerRegistry.of(UpdateParams("aten::add.out", "alpha"))
    >>> x, out = torch.ones(2), torch.empty(2)
    >>> with GraphCaptureSession(registry, runtime=SimulatedRuntime()).capture() as graph:
    ...     _ = torch.add(x, x, out=out)
    >>> graph.memory_report()
    MemoryReport(held=0, operands=16)
    """

    held: int
    operands: int


@final
class CapturedGraph:
    """What one capture produced. Made by `GraphCaptureSession.capture` or `attach`.

    All calls are safe from any thread; they return None and do not wait for the device.

    >>> import torch
    >>> from npugraph_strategies import GraphCaptureSession, HandlerRegistry, UpdateParams
    >>> from npugraph_strategies.runtimes import SimulatedRuntime
    >>> registry = HandlerRegistry.of(UpdateParams("aten::add.out", "alpha"))
    >>> x, out = torch.ones(2), torch.empty(2)
    >>> with GraphCaptureSession(registry, runtime=SimulatedRuntime()).capture() as graph:
    ...     _ = torch.add(x, x, alpha=1, out=out)
    >>> graph.update({"alpha": 4})
    >>> graph.replay()
    >>> out
    tensor([5., 5.])
    """

    def __init__(
        self,
        *,
        name: str,
        runtime: GraphRuntime,
        order: UpdateOrder,
        validation: Validation,
        watch: Iterable[Module] | Module = (),
    ) -> None:
        self._name = name
        self._runtime = runtime
        self._order = order
        self._planner = Planner(name, runtime, validation)
        self._watch: tuple[Module, ...] = (watch,) if isinstance(watch, Module) else tuple(watch)
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
        self._device = DeviceSide(self._name, self._runtime, graph, tasks, owned=owned)
        self._states = tuple(task.record for task in tasks)
        self._records = tuple(Record(state) for state in self._states)
        self._watched = tuple(WatchedModule.of(module) for module in self._watch)
        self._watch = ()  # modules are watched weakly from here on
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

    def pool(self) -> Any:
        """Return the token of the graph's memory pool, for another capture to share (``capture(pool=...)``).

        A later capture that shares a pool may reuse memory that this graph computes in: replay one at a time. Raises
        a `GraphStateError` when the graph was closed or is not captured yet.
        """
        return self._usable().pool()

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
                raise StaleBinding(self._name, "", watched.name, tensor, problem)

    def _verify_operands(self, routed: Routed | None = None) -> None:
        """Raise `StaleBinding` for an operand that is gone, unless the values about to be given replace it."""
        bindings: Iterable[Binding] = self.bindings()
        if routed is not None and any(
            name in state.handler.rebind for state, v in zip(self._states, routed, strict=True) for name in v
        ):
            bindings = (
                binding
                for state, given in zip(self._states, routed, strict=True)
                for argument, found in state.bindings.items()
                if argument not in given
                for binding in found
            )
        for binding in bindings:
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
        graph is poisoned until an update that reaches every record succeeds: such an update, or a step, may have to
        wait on the host where it is unknown what the device did.
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
        """Update and replay, in the session's order; the result is the same in either.

        Raises what `update` and `replay` raise. When it fails on the device, none of its values stand.
        """
        with self._runtime.device(), self._runtime.update_lock:
            device = self._usable()
            plan = self._plan(values, rest, device)
            # A poisoned graph is healed first; a record that is armed would let a replay run ahead of these values.
            order = UpdateThenReplay() if device.poison or device.any_signalled else self._order
            halves = Halves(order, update=lambda: self._apply(device, plan), replay=device.launch)
            try:
                halves.run()
            except BaseException:
                device.take_back(plan)
                self._operands = None
                raise
            finally:
                device.abandon()

    def invalidate(self, reason: str) -> None:
        """Refuse every further use but `close`, since what was captured is out of date."""
        with self._runtime.update_lock:
            self._usable()
            self._state, self._reason = State.INVALIDATED, reason

    def close(self) -> None:
        """Wait for the last replay of this graph, then give back what it holds. Closing twice is allowed.

        When that fails, the error is raised, and nothing but another `close` is accepted. Raises
        `GraphInCapture` inside a capture, which a wait on the host would break.
        """
        if self._state is State.CLOSED:
            return
        with self._runtime.device(), self._runtime.update_lock:
            if self._state is State.CAPTURING:
                raise GraphNotReady(self._name, self._state.value)
            self._refuse_inside_capture()
            try:
                if self._device is not None:
                    self._device.close()
            except BaseException as error:
                self._state, self._reason = State.INVALIDATED, f"closing it failed, which can be tried again: {error}"
                raise
            self._state, self._device, self._operands = State.CLOSED, None, ()
            self._planner.forget()
            for state in self._states:
                state.resources.clear()
                state.armed = False

    def __enter__(self) -> Self:
        if self._state is State.CLOSED:
            raise GraphClosed(self._name)
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
        self._refuse_inside_capture()
        self._device.refuse_shared_stream()
        return self._device

    def _refuse_inside_capture(self) -> None:
        """Raise inside a capture, on this device or, by a session, on another: it would record what we do."""
        if self._runtime.is_capturing() or recording_here():
            raise GraphInCapture(self._name)

    def _plan(self, values: Values, rest: Rest, device: DeviceSide) -> list[Planned]:
        """Resolve and validate everything."""
        routed = route(self._records, values, rest)
        self._verify_operands(routed)
        return self._planner.plan(device.tasks, routed, force=bool(device.poison))

    # -- phase two: on the device ------------------------------------------------------------------------------------

    def _apply(self, device: DeviceSide, plan: list[Planned]) -> None:
        device.apply(plan)
        if any(planned.bindings for planned in plan):
            self._operands = None
