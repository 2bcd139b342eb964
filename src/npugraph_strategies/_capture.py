"""The one place where the skeleton of a captured, updatable call stands.

For every handled operator: prepare (outside the group, so that a failure leaves nothing behind), wait for the
record's external event and reset it, open a task group, launch the operator, close the group, keep a record.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from npugraph_strategies._bindings import Binding
from npugraph_strategies._calls import OpCall
from npugraph_strategies._check import first_use_problem
from npugraph_strategies._containers import tensors
from npugraph_strategies._dispatch import on_subclass
from npugraph_strategies._handlers import OutVariant
from npugraph_strategies._pairing import Paired
from npugraph_strategies._records import RecordState, Task
from npugraph_strategies.errors import CaptureError, HostValueExpected, OutputsNotFixed, RegistryMismatch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from npugraph_strategies._handlers import OpHandler
    from npugraph_strategies._labels import Labeller
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeGraph

__all__ = ["CaptureMode", "Recorder", "recording_here"]


class Recorder:
    """Makes records while a capture is on."""

    def __init__(self, runtime: GraphRuntime, labeller: Labeller) -> None:
        self._runtime = runtime
        self._labeller = labeller
        self._lock = threading.Lock()  # a backward pass runs on a thread of its own
        self._views: list[tuple[RecordState, str, Binding, Tensor]] = []
        self._checked: set[tuple[OpHandler, str]] = set()
        self.tasks: list[Task] = []
        self.failure: Exception | None = None
        self.launched = 0

    def capture(self, handler: OpHandler, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Any:
        """Capture one call that has a handler, unless it declines, and return what the model gets back.

        A failure is raised here and remembered: code that swallows it must not get a graph with a hole.
        """
        try:
            call = OpCall.bind(op, args, kwargs)
            return self._capture(handler, call) if handler.should_handle(call) else call()
        except Exception as error:
            self.failure = self.failure or error
            raise

    def _capture(self, handler: OpHandler, call: OpCall) -> Any:
        runtime = self._runtime
        _refuse_device_tensors(handler, call, runtime)
        prepared = handler.prepare_capture(call, runtime)
        self._check(handler, prepared)
        kept = prepared.map(lambda name, value: handler.record_wrap_kwarg(prepared, name, value, runtime))
        # The operator gets the snapshots of host values that the record keeps, never the caller's own.
        issued = prepared.replace(**{name: kept.arguments[name] for name in handler.params if name in kept.arguments})
        with self._lock:
            label = self._labeller.next(call)
        stream = runtime.current_stream()
        event = runtime.new_event(label)
        event.wait(stream)
        event.reset(stream)
        with Paired(lambda: runtime.task_group_begin(stream), lambda: runtime.task_group_end(stream)) as group:
            result = issued()
        _refuse_new_memory(handler, prepared, result, label)
        with self._lock:
            record = RecordState(len(self.tasks), label, handler, kept, stream.stream_id)
            self.tasks.append(Task(record, event, group.result))
            self._views += [(record, n, b, runtime.weak_view(t)) for n, b, t in self._operands(record, call)]
        return handler.postprocess_result(prepared, result)

    def _check(self, handler: OpHandler, prepared: OpCall) -> None:
        """Raise `RegistryMismatch` when names of the handler do not fit the overload; once for each of them."""
        if (handler, prepared.name) not in self._checked:
            problem = first_use_problem(handler, prepared.signature)
            if problem is not None:
                raise RegistryMismatch((problem,))
            self._checked.add((handler, prepared.name))

    def _operands(self, record: RecordState, call: OpCall) -> Iterator[tuple[str, Binding, Tensor]]:
        """Yield what the caller passed in. What the handler made was allocated under capture: it is the graph's."""
        for name, tensor in call.tensors():
            if name not in record.handler.params and self._runtime.is_device_tensor(tensor):
                yield name, Binding.of(tensor, record=record.label, op=call.name, argument=name), tensor

    def raise_swallowed(self, name: str) -> None:
        """Raise `CaptureError` when a handled call failed and the capturing code went on."""
        if self.failure is not None:
            problem = f"{name}: a handled operator failed and the block went on; nothing was captured"
            raise CaptureError(problem) from self.failure

    def forget(self) -> None:
        """Let go of everything, so that the events of a failed capture are free again."""
        self.tasks.clear()
        self._views.clear()
        self.failure = None

    def classify(self, graph: RuntimeGraph) -> None:
        """Keep bindings for operands only: what lies in the graph's pool lives as long as the graph."""
        verdicts: dict[int, bool] = {}
        for record, name, binding, view in self._views:
            if binding.key not in verdicts:
                verdicts[binding.key] = self._runtime.in_pool(graph, view)
            if not verdicts[binding.key]:
                record.bindings.setdefault(name, []).append(binding)
        self._views.clear()


class CaptureMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # untyped in torch
    """Sees every operator of the capturing code; hands those with a handler to the recorder."""

    # Without this, ``torch.cond`` and its kin refuse to run under the mode.
    supports_higher_order_operators = True

    def __init__(self, table: dict[str, OpHandler], recorder: Recorder) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # untyped in torch
        self._table = table
        self._recorder = recorder

    @classmethod
    def is_infra_mode(cls) -> bool:
        """Return True: without it a compiled module under this mode would silently run eagerly."""
        return True

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Pass an operator on, or capture it."""
        if on_subclass(types):
            return NotImplemented
        handler = self._table.get(func.name())
        self._recorder.launched += 1
        if handler is None:
            return func(*args, **kwargs) if kwargs else func(*args)
        return self._recorder.capture(handler, func, args, kwargs)


def recording_here() -> bool:
    """Tell whether a session records in this thread."""
    return any(isinstance(mode, CaptureMode) for mode in _get_current_dispatch_mode_stack())


def _refuse_device_tensors(handler: OpHandler, call: OpCall, runtime: GraphRuntime) -> None:
    """Raise when a host parameter is a tensor whose content the host does not know now."""
    for name, tensor in call.tensors():
        if name in handler.params and not runtime.is_host_tensor(tensor):
            raise HostValueExpected(call.name, name)


def _refuse_new_memory(handler: OpHandler, call: OpCall, result: Any, label: str) -> None:
    """Raise unless the operator's results lie in its arguments: an update computes into the arguments only.

    An out overload that the handler declares may return a placeholder of its own for a result that was not asked for.
    """
    given = {tensor.untyped_storage()._cdata for _, tensor in call.tensors()}  # noqa: SLF001 - a storage's identity
    fixed = [t.untyped_storage()._cdata in given for t in tensors(result) if t.nbytes]  # noqa: SLF001 - as above
    declared = isinstance(handler, OutVariant) and call.name in dict(handler.variants).values()
    if not (any(fixed) or not fixed if declared else all(fixed)):
        raise OutputsNotFixed(call.name, label)
