"""The checks every kernel makes before it computes, so that what the device would refuse touches nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npugraph_strategies.errors import OperatorRejected

if TYPE_CHECKING:
    import torch

__all__ = ["nbytes", "require", "require_floating", "require_output", "require_workspace"]


def require(fact: bool, op: str, problem: str) -> None:  # noqa: FBT001 - the fact is the subject of the sentence
    """Raise `OperatorRejected` naming `op` and `problem` unless `fact` holds."""
    if not fact:
        raise OperatorRejected(op, problem)


def require_floating(op: str, **tensors: torch.Tensor | None) -> None:
    """Raise `OperatorRejected` unless all tensors that are given share one floating dtype."""
    given = {name: tensor.dtype for name, tensor in tensors.items() if tensor is not None}
    first = next(iter(given.values()))
    require(
        first.is_floating_point and set(given.values()) == {first},
        op,
        "tensors must share one floating dtype; given " + ", ".join(f"{name} {kind}" for name, kind in given.items()),
    )


def require_output(op: str, name: str, tensor: torch.Tensor, shape: tuple[int, ...], *dtypes: torch.dtype) -> None:
    """Raise `OperatorRejected` unless an output that the caller gave has this shape and one of these dtypes."""
    require(tuple(tensor.shape) == shape, op, f"{name} must have shape {list(shape)}; given {list(tensor.shape)}")
    expected = " or ".join(str(kind) for kind in dtypes)
    require(tensor.dtype in dtypes, op, f"{name} must be {expected}; given {tensor.dtype}")


def require_workspace(op: str, workspace: torch.Tensor | None, needed: int) -> None:
    """Raise `OperatorRejected` when a workspace is given and holds fewer than `needed` bytes."""
    if workspace is not None:
        given = nbytes(workspace)
        require(given >= needed, op, f"workspace must have at least {needed} bytes; given {given}")


def nbytes(tensor: torch.Tensor) -> int:
    """Return the bytes that the elements of `tensor` take."""
    return tensor.numel() * tensor.element_size()
