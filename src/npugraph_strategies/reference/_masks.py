"""Which keys a query may see: `sparse_mode`, explicit masks and bands of the fused operators.

The modes are those of the public documentation of `npu_fused_infer_attention_score`. With `i` the query's position,
`j` the key's, `Sq` and `Sk` the lengths of the sequence, a query sees

    0  what the mask, if there is one, leaves of the band `i - pre_tokens <= j <= i + next_tokens`
    1  what the mask leaves
    2  `j <= i`, the triangle from the top left
    3  `j <= i + Sk - Sq`, the triangle from the bottom right
    4  `i + Sk - Sq - pre_tokens <= j <= i + Sk - Sq + next_tokens`

For modes 2 to 4 the device wants a fixed 2048 x 2048 triangle as the mask; its content says nothing new.
"""

from __future__ import annotations

from typing import Final

import attrs
import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._checks import require

__all__ = ["Sparsity", "check_mask", "fit", "hidden_keys", "outside_band"]

_COMPRESSED: Final = 2048
_EXPLICIT: Final = (0, 1)
_BY_POSITION: Final = (2, 3, 4)
_TREE: Final = 9


@attrs.frozen
class Sparsity:
    """The arguments that say which keys a query may see."""

    mode: int
    before: int
    after: int
    by_row: bool  # False for single-row queries, for which the device ignores mode and band


def check_mask(op: str, mask: torch.Tensor | None, sparsity: Sparsity, batch: int, rows: int, columns: int) -> None:
    """Raise `OperatorRejected` unless `mask` is what `sparsity` wants for `batch` sequences of `rows` x `columns`."""
    mode = sparsity.mode
    if mode == _TREE:
        raise NotSimulated(op, "sparse_mode=9, a tree mask")
    require(mode in _EXPLICIT + _BY_POSITION, op, f"sparse_mode must be 0, 1, 2, 3 or 4; given {mode}")
    require(mask is not None or mode != 1, op, "sparse_mode=1 needs an atten_mask")
    if mode in _BY_POSITION:
        given = None if mask is None else list(mask.shape)
        right = given is not None and given[-2:] == [_COMPRESSED] * 2 and set(given[:-2]) <= {1}
        require(
            right or not sparsity.by_row,
            op,
            f"sparse_mode={mode} needs the compressed atten_mask of shape [2048, 2048]; given {given}",
        )
    elif mask is not None:
        require(
            mask.dtype in (torch.bool, torch.int8, torch.uint8),
            op,
            f"atten_mask must be bool, int8 or uint8; given {mask.dtype}",
        )
        fit(op, "atten_mask", mask, (batch, 1, rows, columns))


def fit(op: str, name: str, tensor: torch.Tensor, sizes: tuple[int, int, int, int]) -> torch.Tensor:
    """Return `tensor` broadcastable to `sizes`, which are `[B, N, S, L]`.

    Two dimensions are `[S, L]`, or `[B, L]` when S is 1; three are `[B, S, L]`. S and L may be larger than needed
    (the device wants them aligned): what is too much is cut. Raises `OperatorRejected` if it cannot fit.
    """
    batch, heads, rows, columns = sizes
    shaped = _four_dimensions(tensor, rows)
    ok = (
        shaped.dim() == len(sizes)
        and shaped.size(0) in (1, batch)
        and shaped.size(1) in (1, heads)
        and (shaped.size(2) == 1 or shaped.size(2) >= rows)
        and shaped.size(3) >= columns
    )
    require(ok, op, f"{name} must fit {list(sizes)} ([B, N, S, L]); given {list(tensor.shape)}")
    return shaped[:, :, :rows, :columns]


def _four_dimensions(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    """Return a view of a tensor of two or three dimensions with four; leave others alone."""
    if tensor.dim() == len("SL"):
        return tensor[:, None, None] if rows == 1 else tensor[None, None]
    return tensor[:, None] if tensor.dim() == len("BSL") else tensor


def hidden_keys(
    op: str, mask: torch.Tensor | None, sparsity: Sparsity, queries: list[int], keys: list[int], sizes: tuple[int, int]
) -> torch.Tensor:
    """Return a bool, broadcastable to `[B, N, S, L]`, that is True where a query must not see a key.

    `queries` and `keys` are the lengths of each sequence, `sizes` is S and L.
    """
    rows, columns = sizes
    nothing = torch.zeros(1, 1, 1, 1, dtype=torch.bool)
    if sparsity.mode not in _EXPLICIT:
        return outside_band(sparsity, queries, keys, sizes) if sparsity.by_row else nothing
    if mask is None:
        return nothing
    hidden = fit(op, "atten_mask", mask, (len(keys), 1, rows, columns)).to(torch.bool)
    if sparsity.mode == 1 or not sparsity.by_row:
        return hidden
    return hidden | outside_band(sparsity, queries, keys, sizes)


def outside_band(sparsity: Sparsity, queries: list[int], keys: list[int], sizes: tuple[int, int]) -> torch.Tensor:
    """Return a bool, broadcastable to `[B, N, S, L]`, that is True outside the band or triangle of the mode."""
    rows, columns = sizes
    shift = torch.tensor(keys) - torch.tensor(queries)
    anchor = shift[:, None, None, None] if sparsity.mode in (3, 4) else torch.zeros(1, 1, 1, 1, dtype=torch.long)
    distance = torch.arange(columns) - torch.arange(rows)[:, None] - anchor
    if sparsity.mode in (2, 3):
        return distance > 0
    return (distance > sparsity.after) | (distance < -sparsity.before)
