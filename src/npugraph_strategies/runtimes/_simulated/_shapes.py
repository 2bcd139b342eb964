"""What an operator would return, found out without running it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)

from npugraph_strategies._containers import leaves, map_tensors
from npugraph_strategies.errors import NotCapturable
from npugraph_strategies.runtimes._simulated._memory import alias, new_storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

__all__ = ["Shadow"]

_CPU = torch.device("cpu")
_OPAQUE = frozenset({"aten::mkldnn_rnn_layer"})  # torch's fake kernel gives the size of their workspace as 0


class Shadow:
    """One call on fake tensors that mirror the real ones: geometry and which of them share memory.

    Plain meta tensors will not do: they lose the device, and with it what a CPU kernel would have returned.
    """

    def __init__(self, mode: FakeTensorMode) -> None:
        self._mode = mode
        self._real: dict[int, Tensor] = {}
        self._fakes: dict[int, FakeTensor] = {}
        self._fake_storages: dict[int, torch.UntypedStorage] = {}
        self.bases: dict[int, torch.UntypedStorage] = {}
        """The real storage behind each fake one."""
        self.results: list[Any] = []
        self.structure: Any = None

    def call(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Find out what `op` returns.

        Raises:
            NotCapturable: That depends on values, or nothing here can tell it.
            Exception: Whatever the operator raises about its arguments.

        """
        if op.name() in _OPAQUE:
            self._rehearse(op, args, kwargs)
            return
        with torch.inference_mode(False), torch.no_grad():
            fake_args = map_tensors(args, self._fake)
            fake_kwargs = {name: map_tensors(value, self._fake) for name, value in kwargs.items()}
            try:
                with self._mode:
                    self.structure = op(*fake_args, **fake_kwargs)
            except (DataDependentOutputException, DynamicOutputShapeException):
                reason = "what it returns depends on values: it would synchronize with the host inside a capture"
                raise NotCapturable(op.name(), reason) from None
            except (UnsupportedOperatorException, NotImplementedError) as error:
                reason = (
                    f"nothing tells the shapes of its outputs without running it; "
                    f"give it a fake kernel with torch.library.register_fake ({error})"
                )
                raise NotCapturable(op.name(), reason) from error
            except Exception:
                self._on_zeros(op, args, kwargs)  # the kernel says better what is wrong, as it does eagerly
                raise
        self.results = list(leaves(self.structure))

    def reals(self) -> list[Tensor]:
        """Return the tensors that were given."""
        return list(self._real.values())

    def changed(self) -> list[tuple[Tensor, FakeTensor]]:
        """Return the given tensors whose shape the operator changed (``out=`` of another size)."""
        return [(self._real[key], fake) for key, fake in self._fakes.items() if self._real[key].shape != fake.shape]

    def given(self, result: Any) -> Tensor | None:
        """Return the real tensor that this result is, if it is one of those given."""
        for key, fake in self._fakes.items():
            if fake is result:
                return self._real[key]
        return None

    def aliases_only(self) -> bool:
        """Tell whether every result shares memory with a given tensor."""
        found = [r for r in self.results if isinstance(r, FakeTensor)]
        return bool(found) and all(r.untyped_storage()._cdata in self.bases for r in found)  # noqa: SLF001 - identity

    def _rehearse(self, op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run on zeros, and take over the shapes of the results, all of which are fresh."""

        def faked(result: Tensor) -> FakeTensor:
            return FakeTensor(self._mode, alias(result, new_storage(result.untyped_storage().nbytes(), "meta")), _CPU)

        self.structure = map_tensors(self._on_zeros(op, args, kwargs), faked)
        self.results = list(leaves(self.structure))

    @staticmethod
    def _on_zeros(op: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run the operator on copies that are filled with zeros."""

        def zeros(tensor: Tensor) -> Tensor:
            storage = new_storage(tensor.untyped_storage().nbytes())
            torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).zero_()
            return alias(tensor, storage)

        return op(*map_tensors(args, zeros), **{name: map_tensors(value, zeros) for name, value in kwargs.items()})

    def _fake(self, tensor: Tensor) -> FakeTensor:
        """Return the fake of this tensor, the same one each time."""
        key = id(tensor)
        made = self._fakes.get(key)
        if made is None:
            storage = tensor.untyped_storage()
            identity = storage._cdata  # noqa: SLF001 - the identity that weak references use
            mirrored = self._fake_storages.get(identity)
            if mirrored is None:
                mirrored = self._fake_storages[identity] = new_storage(storage.nbytes(), "meta")
                self.bases[mirrored._cdata] = storage  # noqa: SLF001 - as above
            made = FakeTensor(self._mode, alias(tensor, mirrored), _CPU)
            self._fakes[key], self._real[key] = made, tensor
        return made


def misplaced(tensors: Sequence[Any]) -> str:
    """Say why these tensors cannot take part in a capture, or nothing."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            continue
        if tensor.layout is not torch.strided or tensor.is_nested:
            return f"only dense tensors can be captured, not {tensor.layout}"
        if str(tensor.dtype).startswith(("torch.qint", "torch.quint")):
            return "quantized tensors cannot be captured"
        if tensor.device != _CPU:
            return f"a tensor on {tensor.device} is not on this device"
        if tensor._is_zerotensor():  # noqa: SLF001 - no public accessor
            return "a tensor without memory (forward-mode autograd's zero) cannot be captured"
    return ""
