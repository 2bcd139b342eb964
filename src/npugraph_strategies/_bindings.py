"""What a captured graph uses by address without owning it, and how to notice that it is gone.

A graph replays addresses. An operand (weights, KV cache, block table) belongs to the caller: the graph must not
keep it alive, and must not use it after its death. So a binding keeps a weak reference to the *storage* (a slice of
a living tensor is alive) with its address and size, since a storage can also be resized or regrown in place.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, final

import attrs
import torch
from torch.multiprocessing.reductions import StorageWeakRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor
    from torch.nn import Module

__all__ = ["Binding", "WatchedModule"]


@final
@attrs.frozen(eq=False, repr=False)
class Binding:
    """One tensor of the caller's that a graph uses: by whom, as what, and where it was at capture."""

    record: str
    op: str
    argument: str
    address: int
    nbytes: int
    _storage: StorageWeakRef

    @classmethod
    def of(cls, tensor: Tensor, *, record: str, op: str, argument: str) -> Binding:
        """Describe a tensor by its storage, without keeping it alive."""
        storage = tensor.untyped_storage()
        return cls(record, op, argument, storage.data_ptr(), storage.nbytes(), StorageWeakRef(storage))  # type: ignore[no-untyped-call]  # untyped in torch

    @property
    def key(self) -> int:
        """Return a number that is equal for bindings to one storage."""
        return int(self._storage.cdata)

    def is_of(self, tensor: Tensor) -> bool:
        """Tell whether a tensor uses the storage that was bound."""
        other = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # untyped in torch
        return int(other.cdata) == self.key

    def problem(self) -> str | None:
        """Return what is wrong with the tensor now, or None: of a tensor without bytes nothing is ever read."""
        if self.nbytes == 0:
            return None
        storage: Any = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)  # noqa: SLF001 - the only way to ask
        if storage is None:
            return "was freed after the capture"
        if storage.nbytes() < self.nbytes:
            return f"was resized from {self.nbytes} to {storage.nbytes()} bytes"
        if storage.data_ptr() != self.address:
            return f"has moved from {self.address:#x} to {storage.data_ptr():#x}"
        return None

    def __repr__(self) -> str:
        return f"Binding({self.argument!r} of {self.op}, record {self.record!r}, {self.nbytes} bytes)"


@final
@attrs.frozen(eq=False)
class WatchedModule:
    """A module whose parameters and buffers are to stay where they were at capture; it is not kept alive."""

    name: str
    bindings: dict[str, Binding]
    _module: weakref.ref[Module]

    @classmethod
    def of(cls, module: Module) -> WatchedModule:
        """Note where every parameter and buffer is, shared ones under each of their names."""
        name = type(module).__name__
        bindings = {
            argument: Binding.of(tensor, record="", op=name, argument=argument)
            for argument, tensor in _tensors_of(module)
        }
        return cls(name, bindings, weakref.ref(module))

    @property
    def module(self) -> Module | None:
        """Return the module if it is alive."""
        return self._module()

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each tensor that is no longer where it was, and what is wrong."""
        module = self.module
        now = None if module is None else dict(_tensors_of(module))
        for name, binding in self.bindings.items():
            if now is not None and name not in now:
                yield name, "is no longer in its module"
            elif now is not None and not binding.is_of(now[name]):
                yield name, "was exchanged for another tensor after the capture"
            else:
                problem = binding.problem()
                if problem is not None:
                    yield name, problem


def _tensors_of(module: Module) -> Iterator[tuple[str, Tensor]]:
    yield from module.named_parameters(remove_duplicate=False)
    yield from module.named_buffers(remove_duplicate=False)
