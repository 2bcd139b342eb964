"""Registration of the reference kernels under the operators' real names."""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any, Final

import torch
from torch.library import Library, fallthrough_kernel, register_fake

from npugraph_strategies.reference import _fused, _latent, _paged
from npugraph_strategies.reference._schemas import SCHEMAS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from npugraph_strategies.reference._kernels import Kernel

__all__ = ["install", "installed", "schemas"]

_KERNELS: Final[Mapping[str, Kernel]] = {**_fused.KERNELS, **_paged.KERNELS, **_latent.KERNELS}

# The one module-level mutable object of the package, by necessity. What is registered with the dispatcher is global
# to the process whatever we do, and calling an operator whose Library was collected crashes the process: so the
# libraries live here, by namespace, until the process ends. Not empty means installed.
_LIBRARIES: Final[dict[str, Library]] = {}
_LOCK: Final = threading.Lock()


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

    Imports torch_npu first. If that works, kernels are added to its operators where they have none; nothing of it is
    replaced. If not, the operators are defined here with torch_npu's schemas, and a later import of torch_npu in this
    process is refused with an ImportError, because it would abort the process. Calling it again does nothing; threads
    may call it at the same time. There is no way back: operators stay for the life of the process.

    Results never require grad: the operators are for inference.

    >>> import torch
    >>> from npugraph_strategies import reference
    >>> reference.install()
    >>> row = torch.ones(1, 1, 4)
    >>> torch.ops.npu.npu_fused_infer_attention_score(row, row, row)[0]
    tensor([[[1., 1., 1., 1.]]])
    """
    with _LOCK:
        if _LIBRARIES:
            return
        present = _import_torch_npu()
        libraries = {name.partition("::")[0]: None for name in SCHEMAS}
        for namespace in libraries:
            _LIBRARIES[namespace] = Library(namespace, "FRAGMENT")  # type: ignore[no-untyped-call]  # torch's
        for name, schema in SCHEMAS.items():
            _register(_LIBRARIES[name.partition("::")[0]], name, schema, _KERNELS[name])
        if not present:
            sys.meta_path.insert(0, _TorchNpuRefused())


def installed() -> bool:
    """Tell whether `install()` has run in this process."""
    return bool(_LIBRARIES)


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


def _register(library: Library, name: str, schema: str, kernel: Kernel) -> None:
    """Give one operator what it lacks: a definition, a CPU kernel, a shape-only kernel."""
    # Autograd falls through for operators that are ours: otherwise every result, `out` included, gets a grad_fn that
    # can only warn. An operator of torch_npu keeps what torch_npu decided.
    if not _defined(name):
        library.define(schema.partition("::")[2])  # type: ignore[no-untyped-call]  # torch's
        library.impl(name, fallthrough_kernel, "Autograd")  # type: ignore[no-untyped-call]  # torch's
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
