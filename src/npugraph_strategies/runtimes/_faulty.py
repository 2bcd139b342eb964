"""A runtime that fails once, at a primitive of your choice."""

from __future__ import annotations

import difflib
import threading
from typing import TYPE_CHECKING, Any, TypeVar, final

import attrs

from npugraph_strategies.runtimes._wrapped import PRIMITIVES, WrappedRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from npugraph_strategies.runtimes._base import RuntimeStream

__all__ = ["FaultyRuntime", "InjectedFault"]

T = TypeVar("T")


@final
@attrs.frozen
class InjectedFault(RuntimeError):
    """What `FaultyRuntime` raises: a RuntimeError, as a device's would be, and no error of this package.

    >>> raise InjectedFault("event.record", 3)
    Traceback (most recent call last):
        ...
    npugraph_strategies.runtimes._faulty.InjectedFault: injected fault at event.record (number 3)
    """

    primitive: str
    index: int

    def __str__(self) -> str:
        """Return the sentence."""
        return f"injected fault at {self.primitive} (number {self.index})"


def _known(names: Iterable[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset([names] if isinstance(names, str) else names)


def _check_names(_: object, __: attrs.Attribute[frozenset[str] | None], names: frozenset[str] | None) -> None:
    for name in sorted((names or frozenset()) - frozenset(PRIMITIVES)):
        close = difflib.get_close_matches(name, PRIMITIVES, n=1)
        hint = f" (did you mean {close[0]!r}?)" if close else ""
        raise ValueError(f"{name!r} is not a primitive{hint}; there are {', '.join(PRIMITIVES)}")


def _check_fail_at(_: object, __: attrs.Attribute[int | None], fail_at: int | None) -> None:
    if fail_at is not None and fail_at < 0:
        raise ValueError(f"fail_at counts primitives from 0; given {fail_at}")


@final
@attrs.define(eq=False)
class FaultyRuntime(WrappedRuntime):
    """Raise at the primitive number `fail_at`, once: earlier and later ones pass, so that clean-up can be tested.

    Primitives are counted from 0, those named in `names` or all of them; None never fails and only counts. The error
    is ``error(name, number)``. It is raised instead of the call, or with ``after=True`` once the call has returned: it
    took effect, and what it returned is lost. To try every failure of a program, run it with ``fail_at=None``, read
    `count`, and run it again for each number below.

    Raises ValueError for a negative number or a name that is not a primitive.

    >>> from npugraph_strategies.runtimes import FaultyRuntime, SimulatedRuntime
    >>> runtime = FaultyRuntime(SimulatedRuntime(), fail_at=1, names=["new_event"])
    >>> first = runtime.new_event()
    >>> second = runtime.new_event()
    Traceback (most recent call last):
        ...
    npugraph_strategies.runtimes._faulty.InjectedFault: injected fault at new_event (number 1)
    >>> third = runtime.new_event()
    >>> runtime.count
    3
    """

    fail_at: int | None = attrs.field(kw_only=True, validator=_check_fail_at)
    error: Callable[[str, int], BaseException] = attrs.field(default=InjectedFault, kw_only=True)
    names: frozenset[str] | None = attrs.field(default=None, kw_only=True, converter=_known, validator=_check_names)
    after: bool = attrs.field(default=False, kw_only=True)
    _count: int = attrs.field(default=0, init=False)
    _lock: threading.Lock = attrs.field(factory=threading.Lock, init=False, repr=False)

    @property
    def count(self) -> int:
        """Return how many primitives were asked for so far (of those named), the failed one included."""
        return self._count

    @property
    def failed(self) -> bool:
        """Tell whether the fault was raised (or, with ``after=True``, is about to be)."""
        return self.fail_at is not None and self._count > self.fail_at

    def _primitive(
        self, name: str, fn: Callable[..., T], *args: Any, label: str = "", stream: RuntimeStream | None = None
    ) -> T:
        """Call, raise, or do both."""
        del label, stream  # a fault is placed by number and name
        number = self._number(name)
        if number is None or number != self.fail_at:
            return fn(*args)
        if self.after:
            fn(*args)
        raise self.error(name, number)

    def _number(self, name: str) -> int | None:
        if self.names is not None and name not in self.names:
            return None
        with self._lock:
            self._count += 1
            return self._count - 1
