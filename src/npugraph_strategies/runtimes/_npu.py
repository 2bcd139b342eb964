"""A real NPU, driven through torch_npu.

The only module that imports torch_npu, and it does so when a runtime is made, never when it is imported.
"""

from __future__ import annotations

import importlib
import threading
from typing import TYPE_CHECKING, Any, Final, cast, final

import torch

from npugraph_strategies.errors import AttachRefused, BadArguments, ResourceExhausted, RuntimeUnavailable
from npugraph_strategies.runtimes._npu_device import NpuDevice, OnDevice, OnStream, capture_lock_of
from npugraph_strategies.runtimes._npu_module import Features
from npugraph_strategies.runtimes._npu_objects import NpuEvent, NpuGraph

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from torch import Tensor

    from npugraph_strategies.runtimes._base import RuntimeGraph, RuntimeLock, RuntimeStream
    from npugraph_strategies.runtimes._npu_module import NativeStream, TorchNpu

__all__ = ["NpuRuntime"]

# Streams come round robin from pools of 4 (synchronously launching) and 32; one round more than the largest pool.
_TRIES: Final = 33


def _import_torch_npu() -> TorchNpu:
    try:
        return cast("TorchNpu", importlib.import_module("torch_npu"))
    except Exception as error:  # its import fails in many ways: a missing library, another torch, a blocked import
        raise RuntimeUnavailable("NpuRuntime", f"torch_npu cannot be imported ({error})") from error


def _open(torch_npu: TorchNpu, device: int | str | torch.device | None) -> NpuDevice:
    """Return the device, initialised; raises `RuntimeUnavailable` where there is none."""
    npu = torch_npu.npu
    if not npu.is_available():
        raise RuntimeUnavailable("NpuRuntime", "torch_npu finds no NPU")
    index = npu.current_device() if device is None else _index(device, npu.current_device)
    if not 0 <= index < npu.device_count():
        raise RuntimeUnavailable(
            "NpuRuntime", f"there is no npu:{index}; torch_npu finds {npu.device_count()} device(s)"
        )
    with npu.device(index):  # initialises torch_npu, so that no primitive has to
        return NpuDevice(torch_npu, index)


def _index(device: int | str | torch.device, current: Callable[[], int]) -> int:
    """Return the index in ``1``, ``"npu:1"`` or a torch.device; a device without one is the current one."""
    if isinstance(device, int):
        return device
    kind, _, number = str(device).partition(":")
    if kind != "npu" or not (number.isdecimal() or not number):
        raise BadArguments("NpuRuntime", f"device must be an index, 'npu' or 'npu:<index>'; given {device!r}")
    return int(number) if number else current()


@final
class NpuRuntime:
    """One NPU and the streams that its owner updates and captures on.

    `device` is an index, ``"npu:1"``, a ``torch.device``, or None for the current one. `update_stream` is for callers
    that have a stream of their own for updates; otherwise the runtime makes one when it is first asked for, a
    synchronously launching one where torch_npu has them. Two owners make two runtimes. `torch_npu` is for stand-ins.

    Every call enters the device, from any thread, and raises `DeviceError` (`ResourceExhausted`, `DeviceHang`) where
    torch_npu raises RuntimeError with a code. Raises `RuntimeUnavailable` if torch_npu cannot be imported or finds no
    such device.

    >>> from npugraph_strategies.errors import RuntimeUnavailable
    >>> try:
    ...     name = NpuRuntime(0).name
    ... except RuntimeUnavailable:
    ...     name = "npu:0"  # so that this example runs on any machine
    >>> name
    'npu:0'
    """

    __slots__ = (
        "_capture_stream",
        "_device",
        "_features",
        "_last_stream",
        "_making",
        "_update_lock",
        "_update_stream",
    )

    def __init__(
        self,
        device: int | str | torch.device | None = None,
        update_stream: RuntimeStream | None = None,
        *,
        torch_npu: TorchNpu | None = None,
    ) -> None:
        module = _import_torch_npu() if torch_npu is None else torch_npu
        self._device = _open(module, device)
        self._features = Features.of(module)
        self._update_stream: RuntimeStream | None = update_stream
        self._capture_stream: RuntimeStream | None = None
        # One tuple, replaced as a whole, so that threads never see half of it.
        self._last_stream: tuple[tuple[int, int, int], RuntimeStream] = self._current()
        self._update_lock: RuntimeLock = threading.RLock()
        # Not the update lock: its owner may ask for a stream while another thread holds it through a whole step.
        self._making = threading.Lock()

    def __repr__(self) -> str:
        return f"NpuRuntime({self._device.index})"

    @property
    def name(self) -> str:
        """Return ``npu:<index>``."""
        return self._device.name

    @property
    def capture_lock(self) -> RuntimeLock:
        """Return the reentrant lock of the device, shared by every runtime of it in this process."""
        return capture_lock_of(self._device.index)

    @property
    def update_lock(self) -> RuntimeLock:
        """Return the reentrant lock that guards this runtime's update stream."""
        return self._update_lock

    def device(self) -> AbstractContextManager[Any]:
        """Make the device the current one in this thread; costs a comparison if it is already."""
        return OnDevice(self._device)

    # -- streams -----------------------------------------------------------------------------------------------------

    def current_stream(self) -> RuntimeStream:
        """Return this thread's current stream on the device.

        The last answer is kept: making a stream object costs more than a whole primitive, and it seldom changes.
        """
        last = self._last_stream
        if last[0] != self._device.raw_stream():  # another thread may be on another stream
            last = self._last_stream = self._current()
        return last[1]

    def _current(self) -> tuple[tuple[int, int, int], RuntimeStream]:
        stream = self._device.call("current_stream", "", self._device.npu.current_stream, self._device.index)
        return (stream.stream_id, stream.device_index, stream.device_type), stream

    def new_stream(self) -> RuntimeStream:
        """Take a stream from torch_npu's pool of 32; two of them can be the same, see `RuntimeStream`."""
        return self._device.call("new_stream", "", self._device.npu.Stream)

    def capture_stream(self) -> RuntimeStream:
        """Return the stream for captures, made when first asked for; never the update stream."""
        with self._making:
            if self._capture_stream is None:
                taken = set() if self._update_stream is None else {self._update_stream.stream_id}
                self._capture_stream = self._own_stream("capture stream", self._device.npu.Stream, taken)
            return self._capture_stream

    def update_stream(self) -> RuntimeStream:
        """Return the stream for updates, made when first asked for; never the capture or the then current stream."""
        with self._making:
            if self._update_stream is None:
                # The current stream is most likely the one that will replay.
                taken = {self.current_stream().stream_id}
                if self._capture_stream is not None:
                    taken.add(self._capture_stream.stream_id)
                self._update_stream = self._own_stream("update stream", self._features.update_stream, taken)
            return self._update_stream

    def _own_stream(self, what: str, make: Callable[..., NativeStream], taken: set[int]) -> RuntimeStream:
        for _ in range(_TRIES):
            stream = self._device.call(f"making the {what}", "", make)
            if stream.stream_id not in taken:
                return stream
        raise ResourceExhausted(
            207008,
            f"making the {what} on {self.name}",
            f"{_TRIES} streams in a row were streams in use ({sorted(taken)}); give NpuRuntime an update_stream=",
        )

    def stream(self, stream: RuntimeStream) -> AbstractContextManager[Any]:
        """Make `stream` the current one in this thread."""
        return OnStream(self._device, cast("NativeStream", stream))

    def is_capturing(self) -> bool:
        """Tell whether this thread's current stream on the device is being captured."""
        return self._device.call("is_capturing", "", self._device.npu.is_current_stream_capturing)

    def synchronize(self, stream: RuntimeStream | None = None) -> None:
        """Wait on the host for a stream, or for the whole device."""
        wait = self._device.npu.synchronize if stream is None else cast("NativeStream", stream).synchronize
        self._device.call("synchronize", "", wait)

    # -- events and graphs -------------------------------------------------------------------------------------------

    def new_event(self, label: str = "") -> NpuEvent:
        """Make an external event; the driver allocates it at its first use."""
        return NpuEvent(self._device, self._device.call("new_event", label, self._device.npu.ExternalEvent), label)

    def new_graph(self, label: str = "") -> NpuGraph:
        """Make an empty graph."""
        native = self._device.call("new_graph", label, self._device.npu.NPUGraph)
        return NpuGraph(self._device, native, self._features, label)

    def adopt_graph(self, graph: Any, label: str = "") -> NpuGraph:
        """Return a graph of this runtime around a ``torch.npu.NPUGraph`` that the caller captures.

        A graph of `new_graph` on this device is returned as it is. Raises `AttachRefused` if it is something else, or
        if torch_npu dispatches for it (``auto_dispatch_capture``): both would record the same calls.
        ``torch.npu.graph`` sets that flag, so adopt inside its ``with`` block.
        """
        if isinstance(graph, NpuGraph) and graph.device.index == self._device.index:
            return graph
        if not isinstance(graph, self._device.npu.NPUGraph):
            raise AttachRefused(f"given a {type(graph).__name__}, expected a torch.npu.NPUGraph")
        if self._features.dispatches_by_itself(graph):
            raise AttachRefused(
                "torch_npu dispatches for this graph by itself, so both would record; "
                "use torch.npu.graph(..., auto_dispatch_capture=False)"
            )
        return NpuGraph(self._device, graph, self._features, label)

    # -- task groups and updates -------------------------------------------------------------------------------------

    def task_group_begin(self, stream: RuntimeStream) -> None:
        """Open a task group on a capturing stream."""
        self._device.call("task_group_begin", "", self._device.npu.graph_task_group_begin, stream)

    def task_group_end(self, stream: RuntimeStream) -> Any:
        """Close the group and return its handle."""
        return self._device.call("task_group_end", "", self._device.npu.graph_task_group_end, stream)

    def task_update_begin(self, stream: RuntimeStream, handle: Any) -> None:
        """Begin to replace the tasks of `handle`."""
        self._device.call("task_update_begin", "", self._device.npu.graph_task_update_begin, stream, handle)

    def task_update_end(self, stream: RuntimeStream) -> None:
        """End the replacement."""
        self._device.call("task_update_end", "", self._device.npu.graph_task_update_end, stream)

    # -- tensors -----------------------------------------------------------------------------------------------------

    def is_device_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the tensor lies on this runtime's device."""
        return tensor.device.type == "npu" and tensor.device.index == self._device.index

    def is_host_tensor(self, tensor: Tensor) -> bool:
        """Tell whether the tensor lies in the host's memory."""
        return tensor.device.type == "cpu"

    def weak_view(self, tensor: Tensor) -> Tensor:
        """Return a tensor of the same geometry that holds no storage alive; nothing tells when the memory is gone.

        Raises `BadArguments` for a tensor of another device: torch_npu would crash the process.
        """
        if not self.is_device_tensor(tensor):
            raise BadArguments("weak_view", f"the tensor lies on {tensor.device}, expected {self.name}")
        view = self._memory_of(tensor)
        # Bits of the tensor, not of its memory; torch_npu drops them.
        view = view.conj() if tensor.is_conj() else view
        return torch._neg_view(view) if tensor.is_neg() else view  # noqa: SLF001 - nothing else sets it

    def _memory_of(self, tensor: Tensor) -> Tensor:
        """Return an unowned tensor over the same memory in the same geometry."""
        weak = self._device.binding._weak_ref_tensor  # noqa: SLF001 - torch_npu has no public name for it
        view = weak(tensor)
        if (
            view.storage_offset() == tensor.storage_offset()
            and view.stride() == tensor.stride()
            and view.size() == tensor.size()
        ):
            return view
        # torch_npu 2.7.1 to 2.8 lose the offset: take the whole storage weakly, then cut the same piece out of it.
        items = tensor.untyped_storage().nbytes() // tensor.element_size()
        whole = weak(tensor.as_strided((items,), (1,), 0))
        return whole.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())

    def in_pool(self, graph: RuntimeGraph, tensor: Tensor) -> bool:
        """Tell whether the tensor's memory lies in the graph's pool (and so in that of graphs that share the pool).

        The address of the storage is looked up in the allocator's snapshot, which is taken once per captured graph.
        Raises `RuntimeUnavailable` if this torch_npu's snapshot does not name pools.
        """
        if not self.is_device_tensor(tensor):
            return False
        # The storage's address, because an empty slice has none of its own.
        address = tensor.untyped_storage().data_ptr()
        return cast("NpuGraph", graph).holds(address)
