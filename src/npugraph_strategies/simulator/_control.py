"""What a process that runs on the simulator can ask of it and change in it while it runs."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING, Final, final

import attrs

from npugraph_strategies.errors import InvalidSetting, RuntimeUnavailable

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

__all__ = ["Control"]

_DRIVER: Final = "libascendcl.so"
_COUNTS: Final = ("steps", "reports", "graphs", "streams", "events", "memory")


@final
@attrs.frozen
class Control:
    """A hold on the simulator that this process runs on; ``docs/reference/cann-simulator.md`` shows it in use."""

    _driver: ctypes.CDLL = attrs.field(repr=False)

    @classmethod
    def current(cls) -> Control:
        """Return a hold on this process's simulator.

        Raises:
            RuntimeUnavailable: The process was not started on the simulator.

        """
        try:
            driver = ctypes.CDLL(_DRIVER)
            driver.npusim_trace_order.restype = ctypes.c_uint64
            driver.npusim_count.restype = ctypes.c_uint64
        except (OSError, AttributeError) as error:
            raise RuntimeUnavailable("the CANN simulator", f"this process does not run on it ({error})") from error
        return cls(driver)

    def seed(self, seed: int | None) -> None:
        """From now on draw the schedule from `seed`; None lets the device run freely.

        Raises:
            InvalidSetting: The seed is negative.

        """
        if seed is not None and seed < 0:
            raise InvalidSetting("seed", "an integer from 0, or None", repr(seed))
        self._driver.npusim_seed(ctypes.c_int64(-1 if seed is None else seed))

    def stall_seconds(self, seconds: float) -> None:
        """Set how long nothing may move before a waiting host is told of a stall (code 507046).

        Raises:
            InvalidSetting: The time is negative.

        """
        if seconds < 0:
            raise InvalidSetting("stall_seconds", "a number from 0", repr(seconds))
        self._driver.npusim_stall_seconds(ctypes.c_double(seconds))

    def strict(self, on: bool) -> None:  # noqa: FBT001 - the one thing that it sets
        """Set whether a missing record of an event, and the use of freed memory, are told or pass in silence."""
        self._driver.npusim_strict(ctypes.c_int32(on))

    def limits(self, *, streams: int, events: int) -> None:
        """Set how many streams and events a device has; what is in use already counts."""
        self._driver.npusim_limits(ctypes.c_int32(streams), ctypes.c_int32(events))

    def count(self, what: str, device: int = 0) -> int:
        """Return a count: ``steps`` done, ``reports`` of misuse, live ``graphs``; ``streams``, ``events``, ``memory``.

        The last three are of one device, in use; memory is in bytes.

        Raises:
            InvalidSetting: There is no such count.

        """
        if what not in _COUNTS:
            raise InvalidSetting("what", f"one of {', '.join(_COUNTS)}", repr(what))
        return int(self._driver.npusim_count(what.encode(), ctypes.c_int32(device)))

    @contextlib.contextmanager
    def trace(self) -> Iterator[Trace]:
        """Keep what the device does inside the block."""
        self._driver.npusim_trace_clear()
        self._driver.npusim_trace_keep(1)
        try:
            yield Trace(self._driver)
        finally:
            self._driver.npusim_trace_keep(0)


@final
@attrs.frozen
class Trace:
    """What the device did since the trace began."""

    _driver: ctypes.CDLL = attrs.field(repr=False)

    def order(self) -> list[str]:
        """Return one line for each step, in order and without times: equal for equal schedules."""
        room = 1 + int(self._driver.npusim_trace_order(None, ctypes.c_uint64(0)))
        text = ctypes.create_string_buffer(room)
        self._driver.npusim_trace_order(text, ctypes.c_uint64(room))
        return text.value.decode().splitlines()

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the steps as a timeline in Chrome's format, which Perfetto shows as well.

        Raises:
            OSError: The file cannot be written.

        """
        if self._driver.npusim_trace_write(str(path).encode()):
            raise OSError(f"the trace could not be written to {path}")
