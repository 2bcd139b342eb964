"""Who owns which memory: pools, operands that are held weakly, weak views, poison.

On the simulated device every tensor is a CPU tensor, and a storage stands for a block of device memory.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import attrs
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from npugraph_strategies.runtimes._codes import device_error

if TYPE_CHECKING:
    from torch import Tensor, UntypedStorage

__all__ = ["Operand", "Pool", "WeakViews", "alias", "new_storage", "poison", "unowned", "weak"]

_FLOAT_POISON = 0xFF  # all ones is a NaN in every IEEE-like format, float8_e4m3fn and float8_e8m0fnu included
_FNUZ_POISON = 0x80  # the one NaN of the formats without negative zero
_BOOL_POISON = 0x01
_INT_POISON = 0xA5


def poison(storage: UntypedStorage, dtype: torch.dtype) -> None:
    """Fill the storage with NaN, or with an odd pattern for integers: what is read before the first replay shows."""
    if dtype.is_floating_point or dtype.is_complex:
        byte = _FNUZ_POISON if "fnuz" in str(dtype) else _FLOAT_POISON
    else:
        byte = _BOOL_POISON if dtype is torch.bool else _INT_POISON
    torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).fill_(byte)


def alias(tensor: Tensor, storage: UntypedStorage) -> Tensor:
    """Return a tensor over `storage` with the dtype, sizes, strides, offset, conj and neg bits of `tensor`."""
    made = torch.empty(0, dtype=tensor.dtype, device=storage.device)
    made.set_(storage, tensor.storage_offset(), tensor.size(), tensor.stride())
    if tensor.is_conj():
        torch._C._set_conj(made, True)  # noqa: SLF001 - torch has no public way to mirror the bit
    if tensor.is_neg():
        torch._C._set_neg(made, True)  # noqa: SLF001 - as above
    return made


def new_storage(nbytes: int, device: str = "cpu") -> UntypedStorage:
    """Return fresh memory."""
    return torch.UntypedStorage(nbytes, device=device)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def weak(storage: UntypedStorage) -> StorageWeakRef:
    """Return a weak reference; its `cdata` identifies the storage for as long as the reference lives."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]  # torch leaves it untyped


def unowned(storage: UntypedStorage) -> UntypedStorage:
    """Return a storage over the same memory that keeps nothing alive and cannot be resized."""
    made: Any = torch._C._construct_storage_from_data_pointer(  # noqa: SLF001 - what torch's own graph trees use
        storage.data_ptr(), storage.device, storage.nbytes()
    )
    return cast("UntypedStorage", made)


def _strong(ref: StorageWeakRef) -> UntypedStorage | None:
    """Return the storage if it is alive."""
    return torch.UntypedStorage._new_with_weak_ptr(ref.cdata)  # noqa: SLF001 - what StorageWeakRef is for


def _alive(ref: StorageWeakRef) -> bool:
    """Tell whether the storage is alive."""
    return not ref.expired()  # type: ignore[no-untyped-call]  # torch leaves it untyped


@attrs.frozen
class Operand:
    """Memory that a captured operator uses: a storage held weakly, with its address and size."""

    ref: StorageWeakRef
    address: int
    nbytes: int
    op: str
    argument: str
    """Empty for a fresh output."""

    @classmethod
    def of(cls, storage: UntypedStorage, ref: StorageWeakRef, op: str, argument: str) -> Operand:
        """Note where `storage` lies now; `ref` is the storage whose life counts."""
        return cls(ref=ref, address=storage.data_ptr(), nbytes=storage.nbytes(), op=op, argument=argument)

    def peek(self) -> UntypedStorage | None:
        """Return the storage if it is alive."""
        return _strong(self.ref)

    def hold(self, code: int) -> UntypedStorage:
        """Return the storage, alive and where it was; a real device would read garbage, this one says so."""
        storage = self.peek()
        if storage is None:
            problem = "was freed after the capture"
        elif storage.nbytes() < self.nbytes:
            problem = f"was resized from {self.nbytes} to {storage.nbytes()} bytes after the capture"
        elif self.nbytes and storage.data_ptr() != self.address:
            problem = "was moved to another address after the capture"
        else:
            return storage
        what = f"argument {self.argument!r}" if self.argument else "an output"
        raise device_error(code, "a replay", f"{what} of {self.op} {problem}")


class WeakViews:
    """The weak views that were made, and the storage that each was made from.

    Keyed by the view's storage, so slices of a weak view are known too. A weak reference to a storage keeps its
    identity from being used again, so an entry can never be mistaken for a later storage.
    """

    def __init__(self) -> None:
        self._origins: dict[int, tuple[StorageWeakRef, StorageWeakRef]] = {}
        self._prune_at = 64

    def __len__(self) -> int:
        return len(self._origins)

    def make(self, tensor: Tensor) -> Tensor:
        """Return a weak view of `tensor` (which may be one itself)."""
        storage = tensor.untyped_storage()
        view_storage = unowned(storage)
        view = weak(view_storage)
        self._origins[view.cdata] = (view, self.origin(storage))
        if len(self._origins) > self._prune_at:
            self._origins = {key: pair for key, pair in self._origins.items() if _alive(pair[0])}
            self._prune_at = 2 * len(self._origins) + 64
        return alias(tensor, view_storage)

    def origin(self, storage: UntypedStorage) -> StorageWeakRef:
        """Return the storage that `storage` is a weak view of, or itself."""
        ref = weak(storage)
        found = self._origins.get(ref.cdata)
        return ref if found is None else found[1]


class Pool:
    """The memory pool of one graph, or of several that share it. The object itself is the token."""

    def __init__(self) -> None:
        self._refs: dict[int, StorageWeakRef] = {}

    def adopt(self, storage: UntypedStorage) -> None:
        """Note that `storage` was allocated in this pool; the graph's tape keeps it alive."""
        ref = weak(storage)
        self._refs[ref.cdata] = ref

    def holds(self, ref: StorageWeakRef) -> bool:
        """Tell whether the storage was allocated in this pool."""
        return ref.cdata in self._refs

    def prune(self) -> None:
        """Forget storages that are gone."""
        self._refs = {key: ref for key, ref in self._refs.items() if _alive(ref)}
