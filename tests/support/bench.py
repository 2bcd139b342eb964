"""Where a test runs: a device, and how to make runtimes of it, so that one test serves every kind of device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
import torch

from npugraph_strategies.runtimes import Choices, NpuRuntime, SimulatedDevice, SimulatedRuntime
from npugraph_strategies.runtimes._simulated import StreamEvent

if TYPE_CHECKING:
    from npugraph_strategies.runtimes import GraphRuntime, RuntimeStream

__all__ = ["Bench", "NpuBench", "SimulatedBench"]


class Bench(Protocol):
    """A device, seen by a test. What tests ask of a device's schedule is a wish: only a simulated one can follow it."""

    device: str
    """Where tensors go, for torch."""

    def runtimes(self, count: int, *, seed: int = 0, lazy: bool = False, **choices: Any) -> list[GraphRuntime]:
        """Make several runtimes of one device."""
        ...

    def runtime(self, **schedule: Any) -> GraphRuntime:
        """Make one runtime; `schedule` is what `runtimes` takes."""
        ...

    def tensor(self, data: Any, **options: Any) -> torch.Tensor:
        """Make a tensor on the device."""
        ...

    def join(self, runtime: GraphRuntime, before: RuntimeStream, after: RuntimeStream) -> None:
        """Let what comes later on one stream wait for what came before on another, by an ordinary event."""
        ...


class _Benches:
    """What every bench does in terms of its device and `runtimes`."""

    def runtime(self, **schedule):
        (runtime,) = self.runtimes(1, **schedule)
        return runtime

    def tensor(self, data, **options):
        return torch.tensor(data, **options).to(self.device)


@attrs.frozen
class SimulatedBench(_Benches):
    """A new simulated device each time, on which host tensors are device tensors."""

    device: str = "cpu"

    def runtimes(self, count, *, seed=0, lazy=False, **choices):
        device = SimulatedDevice(seed=seed, lazy=lazy, choices=Choices(**choices))
        return [SimulatedRuntime(device) for _ in range(count)]

    def join(self, runtime, before, after):
        event = StreamEvent(runtime.simulated_device)
        event.record(before)
        event.wait(after)


@attrs.frozen
class NpuBench(_Benches):
    """A device of torch_npu, which follows nobody's wishes."""

    device: str = "npu:0"

    def runtimes(self, count, **schedule):
        del schedule
        return [NpuRuntime(self.device) for _ in range(count)]

    def join(self, runtime, before, after):
        with runtime.device():
            event = torch.npu.Event()
            event.record(before)
            event.wait(after)
