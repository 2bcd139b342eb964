"""What torch's dispatch modes have to know about the operators that reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["on_subclass"]

_PLAIN = torch._C._disabled_torch_dispatch_impl  # noqa: SLF001 - the mark of an ordinary tensor


def on_subclass(types: Iterable[type]) -> bool:
    """Tell whether an operator is called on a tensor subclass, which has to take it apart before a mode looks at it.

    `types` is what ``__torch_dispatch__`` is given; a mode then answers NotImplemented.
    """
    return any(kind.__torch_dispatch__ is not _PLAIN for kind in types)  # type: ignore[attr-defined]  # of tensors
