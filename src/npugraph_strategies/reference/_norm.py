"""Kernel of `npu_rms_norm`, which models run next to attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch

from npugraph_strategies.reference._attention import wide
from npugraph_strategies.reference._checks import require, require_floating
from npugraph_strategies.reference._kernels import Kernel

if TYPE_CHECKING:
    from npugraph_strategies.reference._attention import Attended

__all__ = ["KERNELS"]

_OP: Final = "npu::npu_rms_norm"
_EPSILON: Final = 1e-6


def _rms_norm(input: torch.Tensor, gamma: torch.Tensor, epsilon: float = _EPSILON) -> Attended:  # noqa: A002 - schema
    """Return `input / rms(input) * gamma` and `1 / rms(input)`, over the trailing dimensions that `gamma` has.

    The second result is float32, with size 1 in the dimensions that were normalised.
    """
    out, rstd = _outputs(input, gamma, epsilon)
    require_floating(_OP, input=input)
    axes = tuple(range(-gamma.dim(), 0))
    inverse = torch.rsqrt(wide(input).square().mean(axes, keepdim=True) + epsilon)
    return out.copy_(wide(input) * inverse * wide(gamma)), rstd.copy_(inverse)


def _outputs(input: torch.Tensor, gamma: torch.Tensor, _epsilon: float = _EPSILON) -> Attended:  # noqa: A002 - schema
    """Return uninitialised results; raises `OperatorRejected` if `gamma` is not the input's trailing shape."""
    kept = input.dim() - gamma.dim()
    fits = gamma.dim() > 0 and kept >= 0 and input.shape[kept:] == gamma.shape
    require(fits, _OP, f"gamma must have the trailing shape of {list(input.shape)}; given {list(gamma.shape)}")
    rstd = torch.empty(*input.shape[:kept], *[1] * gamma.dim(), dtype=torch.float32, device=input.device)
    return torch.empty_like(input, memory_format=torch.contiguous_format), rstd


KERNELS: Final = {_OP: Kernel(run=_rms_norm, fake=_outputs)}
