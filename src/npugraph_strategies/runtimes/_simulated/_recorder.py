"""The dispatch mode that turns operators into steps of a graph."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies._containers import leaves, map_tensors, tensors
from npugraph_strategies._dispatch import on_subclass
from npugraph_strategies.errors import NotCapturable
from npugraph_strategies.runtimes._simulated._memory import alias, new_storage, poison
from npugraph_strategies.runtimes._simulated._modes import ClosableMode
from npugraph_strategies.runtimes._simulated._operators import (
    Kind,
    bind,
    kind_of,
    qualified,
    refusal,
)
from npugraph_strategies.runtimes._simulated._reads import HostReads
from npugraph_strategies.runtimes._simulated._shapes import Shadow, misplaced
from npugraph_strategies.runtimes._simulated._steps import Launch, Restore

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from npugraph_strategies.runtimes._simulated._capture import Capture
    from npugraph_strategies.runtimes._simulated._memory import Operand
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["Recorder"]


class Recorder(ClosableMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Capture what is launched on the streams of one capture; what is launched elsewhere runs as ever."""

    def __init__(self, capture: Capture, current_stream: Callable[[], SimulatedStream]) -> None:
        super().__init__()
        self._capture = capture
        self._current_stream = current_stream
        self._shapes = FakeTensorMode()
        self._kinds: dict[Any, Kind] = {}
        self._reads = HostReads(capture)

    def open(self) -> None:
        """Intercept what this thread launches, and what it reads."""
        super().open()
        self._reads.open()

    def close(self) -> None:
        """Stop intercepting."""
        self._reads.close()
        super().close()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Capture one operator; a refusal spoils the capture."""
        kwargs = kwargs or {}
        stream = self._stream()
        if self.closed or stream.capture is not self._capture:
            return func(*args, **kwargs)
        if on_subclass(types):
            return NotImplemented
        try:
            with _disable_current_modes():
                return self._record(stream, func, args, kwargs)
        except NotCapturable as refused:
            self._capture.note(refused)
            raise

    def _stream(self) -> SimulatedStream:
        """Return where this thread launches; autograd's own threads work for the stream that is captured."""
        stream = self._current_stream()
        if stream.capture is not self._capture and threading.get_ident() != self._capture.thread:
            return self._capture.origin
        return stream

    def _record(self, stream: SimulatedStream, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Do with the operator what its kind asks for."""
        kind = self._kinds.get(op)
        if kind is None:
            kind = self._kinds[op] = kind_of(op, self._capture.device.choices.runs_at_capture)
        if kind is Kind.REFUSED:
            raise NotCapturable(qualified(op), refusal(op))
        if kind is Kind.NOW:
            return op(*args, **kwargs)
        problem = misplaced([*tensors(args), *tensors(list(kwargs.values()))])
        if problem:
            raise NotCapturable(op.name(), problem)
        if kind in {Kind.HELPER, Kind.ALLOCATION}:
            return self._run_now(op, args, kwargs)
        if kind is Kind.CONSTANT:
            return self._constant(stream, op, args, kwargs)
        shadow = Shadow(self._shapes)
        shadow.call(op, args, kwargs)
        problem = misplaced(shadow.results)
        if problem:
            raise NotCapturable(op.name(), problem)
        if kind is Kind.VIEW and shadow.aliases_only():
            return self._view(stream, shadow, op, args, kwargs)
        return self._launch(stream, shadow, op, args, kwargs)

    def _run_now(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator, and let the graph own what it made, poisoned: it allocates, it computes no values."""
        result = op(*args, **kwargs)
        given = {t.untyped_storage()._cdata for t in tensors([*args, *kwargs.values()])}  # noqa: SLF001 - identity
        made = list(tensors(result))
        problem = misplaced(made)
        if problem:
            raise NotCapturable(op.name(), problem)
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in given:  # noqa: SLF001 - identity
                self._capture.allocate(0, tensor.dtype, storage)
        return result

    def _constant(self, stream: SimulatedStream, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Take a value of the host (``torch.tensor``) into memory of the graph; the host's own is left alone."""

        def taken(tensor: Tensor) -> Tensor:
            storage = new_storage(tensor.untyped_storage().nbytes()).copy_(tensor.untyped_storage())
            made = alias(tensor, self._capture.adopt(storage))
            mine, _ = self._capture.refer(op.name(), "", made)
            with self._capture.device.lock:
                self._capture.append(stream, Restore(mine, mine.clone()))
            return made

        return map_tensors(op(*args, **kwargs), taken)

    def _view(
        self, stream: SimulatedStream, shadow: Shadow, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Make the view; where the kernel copies after all, what it copied becomes the output of a task."""
        result = op(*args, **kwargs)
        given = {storage._cdata for storage in shadow.bases.values()}  # noqa: SLF001 - identity
        copied = [t for t in tensors(result) if t.untyped_storage()._cdata not in given]  # noqa: SLF001 - identity
        if copied:
            for tensor in copied:
                self._capture.allocate(0, tensor.dtype, tensor.untyped_storage())
            self._append(stream, op, args, kwargs, list(leaves(result)))
        return result

    def _launch(
        self, stream: SimulatedStream, shadow: Shadow, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Allocate the outputs, and put the operator on the tape."""
        for real, fake in shadow.changed():
            self._resize(real, fake.shape)
        real_of: dict[int, Tensor] = {}
        outputs = [self._output(shadow, result, real_of) for result in shadow.results]
        self._append(stream, op, args, kwargs, outputs)
        return map_tensors(shadow.structure, lambda fake: real_of[id(fake)])

    @staticmethod
    def _resize(out: Tensor, shape: torch.Size) -> None:
        """Give ``out=`` its shape; memory that it did not have before is poisoned."""
        storage = out.untyped_storage()
        before = storage.nbytes()
        out.resize_(shape)
        if storage.nbytes() > before:
            poison(storage, out.dtype)

    def _output(self, shadow: Shadow, fake: Any, real_of: dict[int, Tensor]) -> Tensor | None:
        """Return the real tensor for one fake result."""
        if not isinstance(fake, FakeTensor):
            return None
        real = shadow.given(fake)
        if real is None:
            storage = fake.untyped_storage()
            identity = storage._cdata  # noqa: SLF001 - the identity that weak references use
            base = shadow.bases.get(identity)
            if base is None:
                base = shadow.bases[identity] = self._capture.allocate(storage.nbytes(), fake.dtype)
            real = alias(fake, base)
        real_of[id(fake)] = real
        return real

    def _append(
        self, stream: SimulatedStream, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outputs: list[Any]
    ) -> None:
        """Put the operator on the tape, with aliases in place of the caller's tensors."""
        given = {id(t) for t in tensors([*args, *kwargs.values()])}
        operands: list[Operand] = []

        def keep(argument: str, tensor: Tensor) -> Tensor:
            made, operand = self._capture.refer(op.name(), argument, tensor)
            if operand is not None:
                operands.append(operand)
            return made

        bound_args, bound_kwargs = bind(op, args, kwargs, keep)
        launch = Launch(
            op=op,
            args=bound_args,
            kwargs=bound_kwargs,
            copies=tuple(
                (index, keep("", out)) for index, out in enumerate(outputs) if out is not None and id(out) not in given
            ),
            operands=tuple(operands),
            grad=torch.is_grad_enabled(),
            dead_code=self._capture.device.choices.operator_failed_code,
        )
        with self._capture.device.lock:
            self._capture.append(stream, launch)
