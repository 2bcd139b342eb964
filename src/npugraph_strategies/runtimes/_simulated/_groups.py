"""Task groups and their updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies.runtimes._codes import device_error
from npugraph_strategies.runtimes._simulated._memory import Operand, alias
from npugraph_strategies.runtimes._simulated._modes import ClosableMode
from npugraph_strategies.runtimes._simulated._operators import Kind, arguments, bind, is_view, kind_of
from npugraph_strategies.runtimes._simulated._steps import Patch

if TYPE_CHECKING:
    from collections.abc import Callable

    from npugraph_strategies.runtimes._simulated._steps import Launch
    from npugraph_strategies.runtimes._simulated._streams import SimulatedStream

__all__ = ["TaskGroup", "Update"]

_Replacement = tuple[tuple[Any, ...], dict[str, Any], tuple[Operand, ...]]


@final
class TaskGroup:
    """The handle of a task group: the operators that were captured between its begin and its end."""

    def __init__(self, stream: SimulatedStream) -> None:
        self.stream = stream
        self.launches: list[Launch] = []
        self.update: Update | None = None
        self.spent = False

    def __repr__(self) -> str:
        return f"<TaskGroup of {', '.join(map(str, self.launches)) or 'nothing'}>"

    def spend(self) -> None:
        """Forget the operators: the graph was destroyed."""
        self.launches = []
        self.spent = True


class Update(ClosableMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Collect what is launched on one stream as the replacement for a group; what is launched elsewhere runs."""

    def __init__(
        self, stream: SimulatedStream, group: TaskGroup, current_stream: Callable[[], SimulatedStream]
    ) -> None:
        super().__init__()
        self.group = group
        self._stream = stream
        self._current_stream = current_stream
        self._ops: list[Any] = []
        self._replacements: list[_Replacement] = []
        self._kinds: dict[Any, bool] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Take one operator as a replacement, without running it."""
        kwargs = kwargs or {}
        if self.closed or self._current_stream() is not self._stream or not self._is_task(func):
            return func(*args, **kwargs)
        with _disable_current_modes():
            self._ops.append(func)
            self._replacements.append(self._bind(func, args, kwargs))
            return self._results(func, args, kwargs)

    def patch(self) -> Patch | None:
        """Return the step that replaces the group's operators; None when nothing was launched.

        Raises:
            DeviceError: Operators differ from the group's in name or number.

        """
        if not self._ops:
            return None
        old, new = [str(launch) for launch in self.group.launches], [op.name() for op in self._ops]
        if old != new:
            code = self._stream.device.choices.update_mismatch_code
            raise device_error(code, "ending the update of a task group", f"the group holds {old}, launched were {new}")
        return Patch(tuple(self.group.launches), tuple(self._replacements))

    def _is_task(self, op: Any) -> bool:
        """Tell whether the operator would be a task on the device; views and allocations are none."""
        known = self._kinds.get(op)
        if known is None:
            kind = kind_of(op, self._stream.device.choices.runs_at_capture)
            known = self._kinds[op] = kind is Kind.TASK or (kind is Kind.VIEW and not is_view(op))
        return known

    def _bind(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Replacement:
        """Return the arguments for the tape: weak views stay weak, the rest is kept."""
        operands: list[Operand] = []
        views = self._stream.device.weak_views

        def keep(argument: str, tensor: Tensor) -> Tensor:
            if tensor.layout is not torch.strided:
                return tensor
            storage = tensor.untyped_storage()
            operands.append(Operand.of(storage, views.origin(storage), op.name(), argument))
            return alias(tensor, storage)

        bound = bind(op, args, kwargs, keep)
        return (*bound, tuple(operands))

    def _results(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what the launch would: the tensors it writes to, else empty ones (nothing has run)."""
        given = dict(arguments(op, args, kwargs))
        schema = op._schema  # noqa: SLF001 - no public accessor
        written = {
            name: given.get(a.name)
            for a in schema.arguments
            if a.alias_info is not None
            for name in a.alias_info.before_set
        }
        results = [self._result(r, written) for r in schema.returns]
        return None if not results else results[0] if len(results) == 1 else tuple(results)

    @staticmethod
    def _result(returned: Any, written: dict[str, Any]) -> Any:
        """Return a stand-in for one result."""
        if returned.alias_info is not None:
            for name in returned.alias_info.before_set:
                if name in written:
                    return written[name]
        return [] if "[]" in str(returned.type) or "List" in str(returned.type) else torch.empty(0, device="cpu")
