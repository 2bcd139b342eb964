"""Begin and end that stay paired, whatever raises, with the first error on top."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Generic, TypeVar

from npugraph_strategies.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from typing_extensions import Self

__all__ = ["Paired", "add_note"]

T = TypeVar("T")

# What a device answers to an end just because the work before it failed: nothing begun, or the capture invalidated.
_CONSEQUENCES = frozenset({107029, 107033, 507903})


def add_note(error: BaseException, note: str) -> None:
    """Attach a note to an error, where Python has notes."""
    if sys.version_info >= (3, 11):
        error.add_note(note)


class Paired(Generic[T]):
    """Call `begin` on entry and `end` on exit, so that the device is left as it was found.

    A primitive that raises may have taken effect all the same, so after a failed `begin` or `end`, `end` is tried
    once more and its answer ignored. An error of `end` never hides an earlier one: it becomes a note on it.
    """

    def __init__(self, begin: Callable[[], object], end: Callable[[], T]) -> None:
        self._begin = begin
        self._end = end
        self._result: list[T] = []

    @property
    def result(self) -> T:
        """Return what `end` returned."""
        return self._result[0]

    def __enter__(self) -> Self:
        try:
            self._begin()
        except BaseException:
            self._try_end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._result.append(self._end())
        except Exception as later:
            self._try_end()
            if error is None:
                raise
            if not (isinstance(later, DeviceError) and later.code in _CONSEQUENCES):
                add_note(error, f"while cleaning up, this failed too: {later}")

    def _try_end(self) -> None:
        with contextlib.suppress(Exception):
            self._end()
