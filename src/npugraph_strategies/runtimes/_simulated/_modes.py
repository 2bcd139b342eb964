"""Dispatch modes that can be closed in any order, from any thread."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

__all__ = ["ClosableMode"]


class ClosableMode(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """A dispatch mode of the device itself.

    It is no infra mode on purpose: compiled code would call its kernels directly and nothing would be captured, so
    compiled modules run eagerly under it. torch pops whatever mode is on top; this one takes out itself.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.closed = False

    def open(self) -> None:
        """Push this mode on the thread's stack, and take out those that were closed by other threads."""
        for mode in _get_current_dispatch_mode_stack():
            if isinstance(mode, ClosableMode) and mode.closed:
                mode._take_out()  # noqa: SLF001 - one of our own
        self.__enter__()  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def close(self) -> None:
        """Stop intercepting, and leave the stack if this is the thread that pushed it."""
        self.closed = True
        self._take_out()

    def _take_out(self) -> None:
        """Remove this mode from the stack, keeping the ones above it."""
        stack = _get_current_dispatch_mode_stack()
        if not any(mode is self for mode in stack):
            return
        above = []
        while (top := stack.pop()) is not self:
            TorchDispatchMode.__exit__(top, None, None, None)  # type: ignore[no-untyped-call]  # torch leaves it untyped
            above.append(top)
        self.__exit__(None, None, None)  # type: ignore[no-untyped-call]  # torch leaves it untyped
        for mode in reversed(above):
            TorchDispatchMode.__enter__(mode)  # type: ignore[no-untyped-call]  # torch leaves it untyped
