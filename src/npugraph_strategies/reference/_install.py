"""Registration of the reference kernels under the operators' real names."""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, Final

import attrs
import torch
from torch.library import Library, fallthrough_kernel, register_fake

from npugraph_strategies.reference import _fused, _latent, _norm, _paged, _slots
from npugraph_strategies.reference._schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from npugraph_strategies.reference._kernels import Kernel

__all__ = ["install", "installed", "schemas"]

_KERNELS: Final[Mapping[str, Kernel]] = {
    **_fused.KERNELS,
    **_paged.KERNELS,
    **_latent.KERNELS,
    **_slots.KERNELS,
    **_norm.KERNELS,
}


@attrs.define(eq=False)
class _Process:
    """What this process has registered. A failed installation leaves its libraries, and the next call goes on."""

    lock: threading.Lock = attrs.field(factory=threading.Lock)
    libraries: dict[str, Library] = attrs.field(factory=dict)
    complete: bool = False

    def library(self, name: str) -> Library:
        """Return the library of an operator's namespace."""
        namespace = name.partition("::")[0]
        if namespace not in self.libraries:
            self.libraries[namespace] = Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]  # torch
        return self.libraries[namespace]


# The one module-level mutable object of the package, by necessity: what is registered with the dispatcher is global
# to the process whatever we do, and calling an operator whose Library was collected crashes the process.
_PROCESS: Final = _Process()


class _TorchNpuRefused(MetaPathFinder):
    """Refuse the import of torch_npu, which would define operators that exist by now and abort the process.

    Where no torch_npu can be found it says nothing, so that probing with `importlib.util.find_spec` still works.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ImportError for a torch_npu that another finder would find."""
        if fullname != "torch_npu":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        if all(finder.find_spec(fullname, path, target) is None for finder in others):
            return None
        raise ImportError(
            "torch_npu cannot be imported any more: npugraph_strategies.reference.install() has defined its operators "
            "in this process, and defining them twice aborts it. Import torch_npu before calling install()",
            name=fullname,
        )


def install() -> None:
    """Register the reference kernels for CPU tensors, and shape-only kernels for fake and meta tensors.

    Imports torch_npu first. If that works, kernels are added to the operators that it has, where they have none;
    nothing of it is replaced. If not, the operators are defined here with torch_npu's schemas, and a later import of
    torch_npu in this process is refused with an ImportError, because it would abort the process.

    Calling it again does nothing; threads may call it at the same time. There is no way back: operators stay for the
    life of the process.

    Results never require grad: the operators are for inference.

    >>> import torch
    >>> from npugraph_strategies import reference
    >>> reference.install()
    >>> row = torch.ones(1, 1, 4)
    >>> torch.ops.npu.npu_fused_infer_attention_score(row, row, row)[0]
    tensor([[[1., 1., 1., 1.]]])
    """
    with _PROCESS.lock:
        if _PROCESS.complete:
            return
        if _import_torch_npu():
            present = [name for name in SCHEMAS if _defined(name)]
        else:
            # Refuse first: from the first definition on, an import would abort the process.
            sys.meta_path.insert(0, _TorchNpuRefused())
            present = list(SCHEMAS)
            for name in SCHEMAS:
                _define(name)
        for name in present:
            _implement(name, _KERNELS[name])
        _PROCESS.complete = True


def installed() -> bool:
    """Tell whether `install()` has run in this process.

    >>> from npugraph_strategies import reference
    >>> reference.install()
    >>> reference.installed()
    True
    """
    return _PROCESS.complete


def schemas() -> Mapping[str, str]:
    """Return the schemas of the operators that have a reference kernel, by qualified overload.

    The default overload has no suffix.

    >>> from npugraph_strategies import reference
    >>> reference.schemas()["atb::_npu_reshape_and_cache"].partition("(")[0]
    'atb::_npu_reshape_and_cache'
    """
    return SCHEMAS


def _import_torch_npu() -> bool:
    """Import torch_npu; False if it is not there, or is there without the driver libraries that it needs."""
    try:
        importlib.import_module("torch_npu")
    except (ImportError, OSError, RuntimeError):
        return False
    return True


def _define(name: str) -> None:
    """Define one operator, unless a torch_npu that broke halfway through its import has done it."""
    if _defined(name):
        return
    library = _PROCESS.library(name)
    library.define(SCHEMAS[name].partition("::")[2])  # type: ignore[no-untyped-call]  # torch's
    # Autograd falls through: otherwise every result, `out` included, gets a grad_fn that can only warn.
    library.impl(name, fallthrough_kernel, "Autograd")  # type: ignore[no-untyped-call]  # torch's


def _implement(name: str, kernel: Kernel) -> None:
    """Give one operator the kernels that it lacks: a second registration would replace the first, with a warning."""
    library = _PROCESS.library(name)
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CPU"):  # noqa: SLF001 - there is no public question
        library.impl(name, _without_grad(kernel.run), "CPU")  # type: ignore[no-untyped-call]  # torch's
    if not torch._C._dispatch_has_kernel_for_dispatch_key(name, "Meta"):  # noqa: SLF001 - there is no public question
        register_fake(name, kernel.fake, lib=library)


def _defined(name: str) -> bool:
    """Tell whether this very overload exists."""
    base, _, overload = name.partition(".")
    found = torch._C._jit_get_schemas_for_operator(base)  # noqa: SLF001 - it resolves nothing and never raises
    return any(schema.overload_name == overload for schema in found)


def _without_grad(run: Any) -> Any:
    """Return `run` under no_grad, so that neither new nor given outputs get a grad_fn."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return run(*args, **kwargs)

    return kernel
