"""Where probes run: a runtime, and the little that the runtime protocol has no words for."""

from __future__ import annotations

import contextlib
import importlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast, final

import attrs
import torch

from npugraph_strategies.errors import DeviceHang, RuntimeUnavailable
from npugraph_strategies.runtimes import NpuRuntime, SimulatedRuntime, StreamEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from npugraph_strategies.runtimes import GraphRuntime, RuntimeGraph, RuntimeStream
    from npugraph_strategies.runtimes._npu_objects import NpuGraph

__all__ = ["LABS", "Lab", "NpuLab", "SimulatedLab", "StreamMark", "elsewhere", "open_lab"]

T = TypeVar("T")

_PATIENCE: Final = 1.0  # seconds until a stream that has not finished is said to be waiting
_POLL: Final = 0.002


class StreamMark(Protocol):
    """An ordinary event, which orders streams and joins them to a capture."""

    def record(self, stream: Any) -> None:
        """Mark this place of the stream."""
        ...

    def wait(self, stream: Any) -> None:
        """Make later work on the stream wait for the mark."""
        ...


class Lab(Protocol):
    """What a probe works with."""

    @property
    def kind(self) -> str:
        """Return the kind of runtime: a key of `LABS`."""
        ...

    @property
    def runtime(self) -> GraphRuntime:
        """Return the runtime."""
        ...

    @property
    def npu(self) -> Any:
        """Return ``torch_npu.npu``, for probes of that kind only."""
        ...

    def tensor(self, *values: float) -> Tensor:
        """Return a tensor on the device that is complete, whatever stream will use it."""
        ...

    def mark(self) -> StreamMark:
        """Make an ordinary event."""
        ...

    def direct_stream(self) -> RuntimeStream:
        """Make a stream without a task queue, so that a launch that the driver refuses raises with its own code."""
        ...

    def begin(self, graph: RuntimeGraph, mode: str = "global") -> None:
        """Begin a capture as it is, without the preparations of the runtime, which synchronise."""
        ...

    def settle(self, stream: RuntimeStream) -> None:
        """Return when what was launched on `stream` has reached the driver, which may refuse only then."""
        ...

    def finished(self, stream: RuntimeStream) -> bool:
        """Tell whether `stream` comes to its end within a second or so; it goes on in either case."""
        ...


@final
@attrs.frozen(eq=False)
class SimulatedLab:
    """A simulated device of its own."""

    runtime: SimulatedRuntime = attrs.field(factory=SimulatedRuntime)
    kind: str = attrs.field(default="simulated", init=False)

    @property
    def npu(self) -> Any:
        """Refuse: there is no torch_npu here."""
        raise RuntimeUnavailable("SimulatedLab", "a probe that needs torch_npu was run on the simulated device")

    def tensor(self, *values: float) -> Tensor:
        """Return a host tensor, which is what this device works on."""
        return torch.tensor(values, device="cpu")

    def mark(self) -> StreamEvent:
        """Make an ordinary event of this device."""
        return StreamEvent(self.runtime.simulated_device)

    def direct_stream(self) -> RuntimeStream:
        """Make a stream; none has a task queue here."""
        return self.runtime.new_stream()

    def begin(self, graph: RuntimeGraph, mode: str = "global") -> None:
        """Begin a capture; this runtime prepares nothing."""
        graph.capture_begin(capture_error_mode=mode)

    def settle(self, stream: RuntimeStream) -> None:
        """Do nothing: every call goes to the device at once."""

    def finished(self, stream: RuntimeStream) -> bool:
        """Work until the stream ends, or until it has to wait."""
        try:
            self.runtime.synchronize(stream)
        except DeviceHang:
            return False
        return True


def _torch_npu() -> Any:
    return importlib.import_module("torch_npu").npu


@final
@attrs.frozen(eq=False)
class NpuLab:
    """The current device of torch_npu."""

    runtime: NpuRuntime = attrs.field(factory=NpuRuntime)
    npu: Any = attrs.field(factory=_torch_npu, repr=False)
    """``torch_npu.npu``; stand-ins are for tests."""
    kind: str = attrs.field(default="npu", init=False)

    def tensor(self, *values: float) -> Tensor:
        """Copy to the device, and wait: other streams than the current one will use it."""
        made = torch.tensor(values).to(self.runtime.name)
        self.runtime.synchronize(self.runtime.current_stream())
        return made

    def mark(self) -> StreamMark:
        """Make an event of torch_npu."""
        return cast("StreamMark", self.npu.Event())

    def direct_stream(self) -> RuntimeStream:
        """Take a synchronously launching stream where torch_npu has them."""
        make = getattr(self.npu, "SyncLaunchStream", self.npu.Stream)
        return cast("RuntimeStream", make())

    def begin(self, graph: RuntimeGraph, mode: str = "global") -> None:
        """Call torch_npu."""
        cast("NpuGraph", graph).native.capture_begin(capture_error_mode=mode)

    def settle(self, stream: RuntimeStream) -> None:
        """Ask for the raw stream, which waits for the task queue."""
        _ = cast("Any", stream).npu_stream

    def finished(self, stream: RuntimeStream) -> bool:
        """Ask the stream again and again; synchronising could not be given up."""
        self.settle(stream)
        until = time.monotonic() + _PATIENCE
        while not (done := bool(cast("Any", stream).query())) and time.monotonic() < until:
            time.sleep(_POLL)
        return done


LABS: Final[tuple[str, ...]] = ("simulated", "npu")


def open_lab(kind: str) -> Lab:
    """Make a lab of one of the `LABS`; raises `RuntimeUnavailable`."""
    return NpuLab() if kind == "npu" else SimulatedLab()


def elsewhere(fn: Callable[[], T]) -> T:
    """Call `fn` in a new thread, and wait for it."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(fn).result()


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Put away what a misuse left behind; what that raises was already observed, or is no finding."""
    with contextlib.suppress(Exception):
        yield
