"""Sessions: the injected configuration, and the way into a capture."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, final, get_args

import attrs

from npugraph_strategies._capture import CaptureMode, Recorder, recording_here
from npugraph_strategies._graph import CapturedGraph
from npugraph_strategies._labels import Labeller, ModuleTracker
from npugraph_strategies._orders import UpdateOrder, UpdateThenReplay
from npugraph_strategies._pairing import Paired
from npugraph_strategies._planning import Validation
from npugraph_strategies._registry import HandlerRegistry
from npugraph_strategies.errors import AttachRefused, EmptyCapture, NestedCapture, SharedStream

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from torch.nn import Module

    from npugraph_strategies._calls import OpCall
    from npugraph_strategies.runtimes._base import GraphRuntime, RuntimeGraph, RuntimeStream

__all__ = ["GraphCaptureSession"]

_ERROR_MODES = ("global", "thread_local", "relaxed")
_VALIDATIONS = get_args(Validation)


def _a_registry(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if not isinstance(value, HandlerRegistry):
        raise TypeError(
            f"{attribute.name} must be a HandlerRegistry, as HandlerRegistry.of(handler) makes; given {value!r}"
        )


def _a_validation(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value not in _VALIDATIONS:
        raise ValueError(f"{attribute.name} must be one of {', '.join(map(repr, _VALIDATIONS))}; given {value!r}")


def _instance_with(method: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator for a protocol: an instance, not its class, that has the method."""

    def check(_: Any, attribute: attrs.Attribute[Any], value: Any) -> None:
        if isinstance(value, type) or not callable(getattr(value, method, None)):
            raise TypeError(f"{attribute.name} must be an object with a method {method}(); given {value!r}")

    return check


@final
@attrs.frozen
class GraphCaptureSession:
    """How graphs are captured and updated: which handlers, on which device, in which order.

    `registry` says which operators are recorded and how; `runtime` is the device; `order` is what `step` does
    first; `validation` is what happens to values that the operator would reject: ``"error"``, ``"warn"`` or
    ``"off"``. A session is a value: make as many as there are models, they never see each other.

    >>> import torch
    >>> from npugraph_strategies import reference
    >>> from npugraph_strategies.handlers import BUILTIN
    >>> from npugraph_strategies.runtimes import SimulatedRuntime
    >>> reference.install()
    >>> query, key, value = torch.zeros(1, 1, 2), torch.zeros(1, 8, 2), torch.arange(16.0).view(1, 8, 2)
    >>> with GraphCaptureSession(BUILTIN, runtime=SimulatedRuntime()).capture() as graph:
    ...     out, _ = torch.ops.npu.npu_fused_infer_attention_score(query, key, value, actual_seq_lengths_kv=[1])
    >>> graph.step({"actual_seq_lengths_kv": [3]})
    >>> torch.allclose(out, value[:, :3].mean(1))  # a query of zeros attends to all values alike
    True
    """

    registry: HandlerRegistry = attrs.field(validator=_a_registry)
    runtime: GraphRuntime = attrs.field(kw_only=True, validator=_instance_with("new_graph"))
    order: UpdateOrder = attrs.field(kw_only=True, factory=UpdateThenReplay, validator=_instance_with("run"))
    validation: Validation = attrs.field(kw_only=True, default="error", validator=_a_validation)

    @contextlib.contextmanager
    def capture(
        self,
        *,
        pool: Any = None,
        stream: RuntimeStream | None = None,
        capture_error_mode: str = "global",
        name: str = "graph",
        label: Callable[[OpCall], str] | None = None,
        watch: Iterable[Module] | Module = (),
    ) -> Iterator[CapturedGraph]:
        """Capture what runs inside the ``with`` block; yield the graph, which can be used after the block.

        `pool` is another graph's pool to share, `stream` the stream to capture on (default: the runtime's),
        `capture_error_mode` is CANN's: ``"global"``, ``"thread_local"`` or ``"relaxed"``. `name` names the graph
        in messages, `label` labels records (default: by module path), `watch` are modules whose tensors
        `CapturedGraph.verify` is to look after.

        Raises `NestedCapture` inside another capture, `EmptyCapture` when the block launched nothing. When the
        block raises, the capture is undone and the error goes on.
        """
        if capture_error_mode not in _ERROR_MODES:
            raise ValueError(f"capture_error_mode must be one of {_ERROR_MODES}; given {capture_error_mode!r}")
        runtime = self.runtime
        graph = self._new_graph(name, watch)
        with runtime.device():
            if runtime.is_capturing() or recording_here():
                raise NestedCapture(name)
            if stream is not None and stream.stream_id == runtime.update_stream().stream_id:
                raise SharedStream(name, str(stream.stream_id))
            with runtime.capture_lock:
                native = runtime.new_graph(name)
                try:
                    with runtime.stream(runtime.capture_stream() if stream is None else stream):
                        recorder = yield from self._captured(graph, native, pool, capture_error_mode, label)
                    _refuse_empty(native, recorder, name)
                    recorder.classify(native)
                    graph._finish(native, recorder.tasks, owned=True)  # noqa: SLF001 - made here
                except BaseException:
                    graph._fail()  # noqa: SLF001
                    with contextlib.suppress(Exception):  # the first error is the one to see
                        native.reset()
                    raise

    def _captured(
        self,
        graph: CapturedGraph,
        native: RuntimeGraph,
        pool: Any,
        capture_error_mode: str,
        label: Callable[[OpCall], str] | None,
    ) -> Generator[CapturedGraph, None, Recorder]:
        """Run the block between the device's begin and end."""

        def begin() -> None:
            native.capture_begin(pool=pool, capture_error_mode=capture_error_mode)

        with Paired(begin, native.capture_end):
            return (yield from self._recorded(graph, label))

    def _recorded(
        self, graph: CapturedGraph, label: Callable[[OpCall], str] | None
    ) -> Generator[CapturedGraph, None, Recorder]:
        """Run the block under the session's mode."""
        with ModuleTracker() as tracker:
            recorder = Recorder(self.runtime, Labeller(tracker, label))
            try:
                with CaptureMode(self.registry.table, recorder):
                    yield graph
                recorder.raise_swallowed(graph.name)
            except BaseException:
                recorder.forget()
                raise
        return recorder

    @contextlib.contextmanager
    def attach(
        self,
        npu_graph: Any,
        *,
        name: str = "graph",
        label: Callable[[OpCall], str] | None = None,
        watch: Iterable[Module] | Module = (),
    ) -> Iterator[CapturedGraph]:
        """Record inside a capture that the caller owns: graph, pool and stream stay the caller's.

        To be used inside ``with torch.npu.graph(npu_graph):``. Updates and replays then go through the graph that
        is yielded, once the caller's capture has ended; closing it does not reset the caller's graph.

        Raises `AttachRefused` outside a capture, inside another session's, or when the caller's graph dispatches
        by itself (``auto_dispatch_capture=True``), because both would record.
        """
        runtime = self.runtime
        with runtime.device():
            if not runtime.is_capturing():
                raise AttachRefused("this thread's stream is not being captured; enter the graph's capture first")
            if recording_here():
                raise AttachRefused("a session is recording already, and both would record")
            native = runtime.adopt_graph(npu_graph, name)
            graph = self._new_graph(name, watch)
            try:
                recorder = yield from self._recorded(graph, label)
                recorder.classify(native)
                graph._finish(native, recorder.tasks, owned=False)  # noqa: SLF001 - made here
            except BaseException:
                graph._fail()  # noqa: SLF001
                raise

    def _new_graph(self, name: str, watch: Iterable[Module] | Module) -> CapturedGraph:
        return CapturedGraph(name=name, runtime=self.runtime, order=self.order, validation=self.validation, watch=watch)


def _refuse_empty(native: RuntimeGraph, recorder: Recorder, name: str) -> None:
    """Raise for a capture without tasks, as far as the device can tell, else without operators."""
    if native.task_count == 0 or recorder.launched == 0:
        raise EmptyCapture(name)
