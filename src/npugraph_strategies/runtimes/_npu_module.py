"""What this package uses of torch_npu, as types, and the one place that asks what an installed version offers.

The names and signatures are those of torch_npu 2.13 (``torch_npu/npu/{graphs,streams,memory,utils}.py``). A stand-in
for tests implements these protocols and is given to `NpuRuntime(torch_npu=...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, cast

import attrs

from npugraph_strategies.runtimes._base import RuntimeStream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from torch import Tensor

__all__ = ["Features", "NativeEvent", "NativeGraph", "NativeStream", "NpuNamespace", "TorchNpu"]


class NativeStream(RuntimeStream, Protocol):
    """``torch_npu.npu.Stream`` or ``SyncLaunchStream``: it is a `RuntimeStream` as it stands."""

    device_index: int
    device_type: int

    def synchronize(self) -> None:
        """Wait on the host."""
        ...


class NativeEvent(Protocol):
    """``torch_npu.npu.ExternalEvent``."""

    def wait(self, stream: Any) -> None:
        """Wait in stream order."""
        ...

    def reset(self, stream: Any) -> None:
        """Clear in stream order."""
        ...

    def record(self, stream: Any) -> None:
        """Signal in stream order."""
        ...


class NativeGraph(Protocol):
    """``torch_npu.npu.NPUGraph``."""

    def capture_begin(self, pool: Any = ..., capture_error_mode: str = ...) -> None:
        """Begin to capture the current stream."""
        ...

    def capture_end(self) -> None:
        """End the capture."""
        ...

    def replay(self) -> None:
        """Launch the graph."""
        ...

    def reset(self) -> None:
        """Destroy the graph."""
        ...

    def pool(self) -> Any:
        """Return the pool's token."""
        ...


class NpuNamespace(Protocol):
    """``torch_npu.npu``, which is ``torch.npu``."""

    Stream: Callable[..., NativeStream]
    ExternalEvent: Callable[[], NativeEvent]
    NPUGraph: type[NativeGraph]
    is_available: Callable[[], bool]
    device_count: Callable[[], int]
    current_device: Callable[[], int]
    device: Callable[[int], AbstractContextManager[Any]]
    current_stream: Callable[[int], NativeStream]
    synchronize: Callable[[], None]
    empty_cache: Callable[[], None]
    is_current_stream_capturing: Callable[[], bool]
    memory_snapshot: Callable[[], Sequence[Mapping[str, Any]]]
    caching_allocator_alloc: Callable[[int], int]
    caching_allocator_delete: Callable[[int], None]
    graph_task_group_begin: Callable[[Any], None]
    graph_task_group_end: Callable[[Any], Any]
    graph_task_update_begin: Callable[[Any, Any], None]
    graph_task_update_end: Callable[[Any], None]


class NpuBinding(Protocol):
    """``torch_npu._C``."""

    _npu_getDeviceWithoutSet: Callable[[], int]  # noqa: N815 - torch_npu's name
    _npu_getCurrentStream: Callable[[int], tuple[int, int, int]]  # noqa: N815 - torch_npu's name
    _npu_setStream: Callable[..., None]  # noqa: N815 - torch_npu's name
    _weak_ref_tensor: Callable[[Tensor], Tensor]


class TorchNpu(Protocol):
    """The module ``torch_npu``."""

    @property
    def npu(self) -> NpuNamespace:
        """Return the namespace of the public functions."""
        ...

    @property
    def _C(self) -> NpuBinding:  # noqa: N802 - torch_npu's name
        """Return the native binding."""
        ...


@attrs.frozen
class Features:
    """What differs between the versions of torch_npu that are supported (2.7.1 and later)."""

    update_stream: Callable[..., NativeStream]
    """`SyncLaunchStream` where it exists: it needs no task queue, so an update costs a tenth; else `Stream`."""
    host_empty_cache: Callable[[], None] | None
    """Gives cached pinned memory back; ``torch.npu.graph`` calls it before a capture where it exists."""
    collects_garbage: Callable[[], bool]
    """Tells whether ``torch.npu.graph`` collects garbage before a capture; older versions always did."""

    @staticmethod
    def dispatches_by_itself(graph: NativeGraph) -> bool:
        """Tell whether torch_npu records updatable operators for this graph; old versions never do.

        ``torch.npu.graph`` sets the flag when it is made, and the graph keeps it.
        """
        return bool(getattr(graph, "auto_dispatch_capture", False))

    @classmethod
    def of(cls, torch_npu: TorchNpu) -> Features:
        """Ask a torch_npu module; nowhere else is an attribute of it taken as optional."""
        npu = torch_npu.npu
        config = getattr(getattr(torch_npu, "_compiler", None), "_config", None)
        return cls(
            update_stream=cast("Callable[..., NativeStream]", getattr(npu, "SyncLaunchStream", npu.Stream)),
            host_empty_cache=getattr(npu, "host_empty_cache", None),
            # Read at each capture: it is a setting that users change at run time.
            collects_garbage=lambda: bool(getattr(config, "force_npugraph_gc", True)),
        )
