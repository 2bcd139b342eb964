"""Kernels of the operators that put new keys and values into a paged cache."""

from __future__ import annotations

from typing import Any, Final

import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._cache import check_slots, write_slots
from npugraph_strategies.reference._checks import require
from npugraph_strategies.reference._kernels import Kernel

__all__ = ["KERNELS"]

_RESHAPE: Final = "atb::_npu_reshape_and_cache"
_SCATTER: Final = "npu::npu_scatter_pa_kv_cache"
_NORMAL: Final = "Norm"


def _write(
    op: str,
    caches: dict[str, tuple[torch.Tensor, torch.Tensor]],
    name: str,
    slots: torch.Tensor,
) -> None:
    """Write rows (`[tokens, heads, dim]`) to their slots in caches (`[blocks, block_size, heads, dim]`).

    `caches` holds rows and cache by argument name, `name` is what the operator calls its slots. Negative slots are
    padding. Raises `OperatorRejected` before anything is written.
    """
    require(slots.dtype in (torch.int32, torch.int64), op, f"{name} must be int32 or int64; given {slots.dtype}")
    for argument, (rows, cache) in caches.items():
        expected = (rows.size(0),)
        require(
            tuple(slots.shape) == expected,
            op,
            f"{name} must have shape {list(expected)}, one for each row of {argument}; given {list(slots.shape)}",
        )
        require(rows.dtype == cache.dtype, op, f"{argument} is {rows.dtype}, its cache {cache.dtype}")
        fits = cache.dim() == rows.dim() + 1 and cache.shape[2:] == rows.shape[1:]
        require(fits, op, f"rows of {argument} are {list(rows.shape[1:])}; its cache is {list(cache.shape)}")
        check_slots(op, cache, slots)
    for rows, cache in caches.values():
        write_slots(cache, rows, slots)


def _reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_indices: torch.Tensor,
) -> None:
    """Put a key and a value for each token into the caches."""
    _write(_RESHAPE, {"key": (key, key_cache), "value": (value, value_cache)}, "slot_indices", slot_indices)


def _scatter(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
    *,
    cache_mode: str | None = "PA_NZ",
    **options: Any,
) -> None:
    """Put a key and a value for each token into the caches; only the plain cache format is covered."""
    for name, given in options.items():
        if given is not None:
            raise NotSimulated(_SCATTER, f"the argument {name!r}")
    if cache_mode != _NORMAL:
        raise NotSimulated(_SCATTER, f"cache_mode={cache_mode!r}; pass cache_mode={_NORMAL!r}")
    _write(_SCATTER, {"key": (key, key_cache), "value": (value, value_cache)}, "slot_mapping", slot_mapping)


def _nothing(*_args: Any, **_options: Any) -> None:
    """Return None, as operators do that only write."""


KERNELS: Final = {
    _RESHAPE: Kernel(run=_reshape_and_cache, fake=_nothing),
    _SCATTER: Kernel(run=_scatter, fake=_nothing),
}
