"""What reads a tensor on the host without an operator, so that no dispatch mode sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode

from npugraph_strategies.errors import NotCapturable

if TYPE_CHECKING:
    from npugraph_strategies.runtimes._simulated._capture import Capture

__all__ = ["HostReads"]

_READS: Final = {
    torch.Tensor.__array__: "Tensor.__array__",
    torch.Tensor.numpy: "Tensor.numpy",
    torch.Tensor.tolist: "Tensor.tolist",
}


class HostReads(TorchFunctionMode):
    """Refuse to read on the host what the capture computes: it is not computed yet."""

    def __init__(self, capture: Capture) -> None:
        self._capture = capture

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Pass on everything else."""
        name = _READS.get(func)
        if name is not None and args[0].layout is torch.strided and not self._capture.knows(args[0].untyped_storage()):
            refused = NotCapturable(name, "it would synchronize with the host inside a capture")
            self._capture.note(refused)
            raise refused
        return func(*args, **(kwargs or {}))

    def open(self) -> None:
        """Push this mode on the thread's stack, and take out those whose captures other threads have ended."""
        for mode in _get_current_function_mode_stack():  # type: ignore[no-untyped-call]  # torch leaves it untyped
            if isinstance(mode, HostReads) and not mode._capture.lanes:  # noqa: SLF001 - one of our own
                mode.close()
        self.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def close(self) -> None:
        """Leave the stack, keeping the modes above, if this is the thread that pushed it."""
        stack = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        if not any(mode is self for mode in stack):
            return
        above = []
        while (top := _pop_mode()) is not self:  # type: ignore[no-untyped-call]  # torch leaves it untyped
            above.append(top)
        for mode in reversed(above):
            _push_mode(mode)  # type: ignore[no-untyped-call]  # torch leaves it untyped
