"""One NPU: how a thread enters it, calls on it, and learns what it refused."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import attrs

from npugraph_strategies.runtimes._device_errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from npugraph_strategies.runtimes._base import RuntimeLock, RuntimeStream
    from npugraph_strategies.runtimes._npu_module import NativeStream, NpuBinding, NpuNamespace, TorchNpu

__all__ = ["NpuDevice", "OnDevice", "OnStream", "capture_lock_of"]

T = TypeVar("T")

# The one mutable object at module level. A capture under way bars others on the same *device*, whoever made the
# runtime, and a device exists once per process: no value that users hold could carry the lock to all of them. Entries
# are only ever added, by index, so nothing here has to be reset between tests.
_CAPTURE_LOCKS: Final[dict[int, RuntimeLock]] = {}


def capture_lock_of(index: int) -> RuntimeLock:
    """Return the reentrant lock of a device index: the same one for every caller in this process."""
    # setdefault is atomic, unlike a cached function, which two threads may both run.
    return _CAPTURE_LOCKS.setdefault(index, threading.RLock())


@final
@attrs.frozen(eq=False)
class NpuDevice:
    """A device index with the module that drives it."""

    torch_npu: TorchNpu = attrs.field(repr=False)
    index: int
    npu: NpuNamespace = attrs.field(init=False, repr=False)
    """Kept at hand, as `binding` is: both are used in every primitive."""
    binding: NpuBinding = attrs.field(init=False, repr=False)

    @npu.default
    def _find_npu(self) -> NpuNamespace:
        return self.torch_npu.npu

    @binding.default
    def _find_binding(self) -> NpuBinding:
        return self.torch_npu._C  # noqa: SLF001 - nothing public sets a raw stream or makes a weak view

    @property
    def name(self) -> str:
        """Return the name for people, ``npu:0``."""
        return f"npu:{self.index}"

    def is_current(self) -> bool:
        """Tell whether this thread is on the device, without putting it on any (a new thread is on none)."""
        return self.binding._npu_getDeviceWithoutSet() == self.index  # noqa: SLF001 - current_device() would set one

    def raw_stream(self) -> tuple[int, int, int]:
        """Return this thread's current stream of the device as (stream id, device index, device type)."""
        return self.binding._npu_getCurrentStream(self.index)  # noqa: SLF001 - current_stream() makes an object

    def call(self, what: str, label: str, fn: Callable[..., T], /, *args: Any) -> T:
        """Call `fn` on the device; switch only if this thread is on another one.

        Raises `DeviceError` where the text of a RuntimeError has a code, from the original error.
        """
        try:
            if self.is_current():
                return fn(*args)
            with self.npu.device(self.index):
                return fn(*args)
        except RuntimeError as error:
            known = classify(error, doing=f"{what} of {label!r} on {self.name}" if label else f"{what} on {self.name}")
            if known is None or known is error:
                raise
            raise known from error


@final
@attrs.define(eq=False)
class OnDevice:
    """Make a device the current one in this thread for a while; entered once."""

    device: NpuDevice
    _entered: AbstractContextManager[Any] | None = attrs.field(default=None, init=False)

    def __enter__(self) -> None:
        """Switch, unless this thread is there already."""
        if not self.device.is_current():
            entering = self.device.npu.device(self.device.index)
            entering.__enter__()
            self._entered = entering

    def __exit__(self, *exc: object) -> None:
        """Go back to the device of before."""
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(None, None, None)


@final
@attrs.define(eq=False)
class OnStream:
    """Make a stream of a device the current one in this thread for a while; entered once.

    Sets the raw stream, which costs a twentieth of ``torch.npu.stream``.
    """

    device: NpuDevice
    stream: NativeStream
    _entered: OnDevice | None = attrs.field(default=None, init=False)
    _previous: tuple[int, int, int] = attrs.field(default=(0, 0, 0), init=False)

    def __enter__(self) -> RuntimeStream:
        """Enter the device and switch to the stream; on failure neither is left changed."""
        if not self.device.is_current():
            entering = OnDevice(self.device)
            entering.__enter__()
            self._entered = entering
        try:
            self.device.call("stream", "", self._switch)
        except BaseException:
            self._leave_device()
            raise
        return self.stream

    def __exit__(self, *exc: object) -> None:
        """Switch back to the stream of before, then to the device of before."""
        try:
            self._set(*self._previous)
        finally:
            self._leave_device()

    def _switch(self) -> None:
        self._previous = self.device.raw_stream()
        self._set(self.stream.stream_id, self.stream.device_index, self.stream.device_type)

    def _set(self, stream_id: int, device_index: int, device_type: int) -> None:
        self.device.binding._npu_setStream(  # noqa: SLF001 - see the class
            stream_id=stream_id, device_index=device_index, device_type=device_type
        )

    def _leave_device(self) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__()
