"""Labels: where in the model a captured call stands.

A label is the path of the innermost module that is running, relative to the outermost one, then ``#n`` for the
n-th handled call there, counted from 0: ``layers.3.self_attn#0``. Outside any module, and in the outermost one,
the path is empty.
"""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from torch.nn import Module
    from torch.utils.hooks import RemovableHandle
    from typing_extensions import Self

    from npugraph_strategies._calls import OpCall

Hook = TypeVar("Hook", bound="Callable[..., None]")

__all__ = ["Labeller", "ModuleTracker", "path_of"]


class ModuleTracker:
    """Knows which module is running in the thread that entered it.

    It uses torch's global forward hooks, so it costs nothing while no capture is on; calls in other threads, and
    modules that a compiler is tracing, are not followed.
    """

    def __init__(self) -> None:
        self._thread = 0
        self._running: list[tuple[int, str]] = []
        self._names: dict[int, str] = {}
        self._handles: list[RemovableHandle] = []
        self._filter: Any = None

    def __enter__(self) -> Self:
        self._thread = threading.get_ident()
        # A compiled module warns about global hooks, which are our own. Not `catch_warnings`: it would take away what
        # others change meanwhile, in this thread or another.
        warnings.filterwarnings("ignore", r"Using `torch\.compile\(module\)` when there are global hooks")
        self._filter = warnings.filters[0]
        self._handles = [
            register_module_forward_pre_hook(_uncompiled_hook(self._entering)),
            register_module_forward_hook(_uncompiled_hook(self._leaving), always_call=True),
        ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._handles:
            self._handles.pop().remove()
        with contextlib.suppress(ValueError):  # others may have reset all filters
            warnings.filters.remove(self._filter)  # type: ignore[attr-defined]  # a list, where it can be changed

    @property
    def path(self) -> str:
        """Return the path of the innermost running module, relative to the outermost."""
        return self._running[-1][1] if self._running else ""

    def _entering(self, module: Module, args: Any) -> None:  # noqa: ARG002 - a hook
        if threading.get_ident() != self._thread:
            return
        if not self._running:
            self._names = {id(child): _uncompiled(name) for name, child in module.named_modules()}
        self._running.append((id(module), self._path_below(module)))

    def _path_below(self, module: Module) -> str:
        """Return the registered path, or for a module that is not registered, its class below where we are."""
        if id(module) in self._names:
            return self._names[id(module)]
        name = type(module).__name__
        return f"{self.path}.{name}" if self.path else name

    def _leaving(self, module: Module, args: Any, output: Any) -> None:  # noqa: ARG002 - a hook
        if threading.get_ident() != self._thread:
            return
        if all(running != id(module) for running, _ in self._running):
            return  # it was running before the capture began, or another hook raised before ours was called
        while self._running.pop()[0] != id(module):
            pass  # an exception in another hook has left inner modules behind


def _uncompiled_hook(hook: Hook) -> Hook:
    """Return a hook that a compiler does not trace; not a decorator, which would load the compiler on import."""
    return torch.compiler.disable(hook)  # type: ignore[no-any-return, no-untyped-call]  # untyped in torch


def _uncompiled(path: str) -> str:
    """Return a module path without the wrappers that `torch.compile` puts in, so that labels do not depend on it."""
    return ".".join(part for part in path.split(".") if part != "_orig_mod")


class Labeller:
    """Gives each handled call its label."""

    def __init__(self, tracker: ModuleTracker, label: Callable[[OpCall], str] | None) -> None:
        self._tracker = tracker
        self._label = label
        self._seen: Counter[str] = Counter()

    def next(self, call: OpCall) -> str:
        """Return the label of the next handled call."""
        path = self._tracker.path if self._label is None else self._label(call)
        if not isinstance(path, str):
            raise TypeError(f"label must return a string for every call; it returned {path!r} for {call!r}")
        number = self._seen[path]
        self._seen[path] += 1
        return f"{path}#{number}"


def path_of(label: str) -> str:
    """Return a label without its number.

    >>> path_of("layers.0.self_attn#1")
    'layers.0.self_attn'
    """
    return label.rpartition("#")[0]
