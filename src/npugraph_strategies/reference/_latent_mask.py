"""Masks of multi-head latent attention: additive or bool, by token or by position, or none but a triangle."""

from __future__ import annotations

from typing import Final

import attrs
import torch

from npugraph_strategies.errors import NotSimulated
from npugraph_strategies.reference._checks import require
from npugraph_strategies.reference._layouts import Layout, to_padded
from npugraph_strategies.reference._masks import Sparsity, fit, outside_band

__all__ = ["LatentMask"]

_TND: Final = Layout("TND", "TND")
_PLAIN: Final = (None, "undefined")
_SPECULATIVE: Final = "mask_type_spec"
_FREE: Final = "mask_type_free"
_RIGHT_DOWN: Final = Sparsity(mode=3, before=0, after=0, by_row=True)


@attrs.frozen(eq=False)
class LatentMask:
    """A mask as `[B or 1, 1 or heads, S, L]`, or None, and whether queries are causal instead."""

    padded: torch.Tensor | None
    causal: bool
    queries: list[int]
    keys: list[int]

    @classmethod
    def read(
        cls, op: str, mask: torch.Tensor | None, mask_type: str | None, queries: list[int], keys: list[int]
    ) -> LatentMask:
        """Return what `mask` and `mask_type` say.

        Two dimensions are one row a token if there are as many rows as tokens, else `[S, L]` for all sequences;
        three are `[B, S, L]`. Raises `NotSimulated` for other types, `OperatorRejected` for a mask that does not fit.
        """
        if mask_type not in (*_PLAIN, _SPECULATIVE, _FREE):
            raise NotSimulated(op, f"mask_type={mask_type!r}")
        if mask_type == _FREE or mask is None:
            return cls(None, mask_type in (_FREE, _SPECULATIVE), queries, keys)
        padded = mask
        if mask.dim() == len("TL") and mask.size(0) == sum(queries):
            padded = to_padded(mask[:, None], _TND, 1, queries)
        elif mask.dim() == len("SL"):
            padded = mask[None]
        sizes = (len(keys), 1, max(queries), max(keys))
        require(mask.dim() in (2, 3), op, f"mask must have two or three dimensions; given {list(mask.shape)}")
        return cls(fit(op, "mask", padded, sizes), False, queries, keys)

    def hidden(self, rows: int, columns: int) -> torch.Tensor:
        """Return a bool, broadcastable to `[B, heads, S, L]`, that is True where a key must not be seen."""
        if self.causal:
            return outside_band(_RIGHT_DOWN, self.queries, self.keys, (rows, columns))
        if self.padded is None or self.padded.is_floating_point():
            return torch.zeros(1, 1, 1, 1, dtype=torch.bool)
        return self.padded[:, :, :rows, :columns].to(torch.bool)

    def bias(self, rows: int, columns: int) -> torch.Tensor | None:
        """Return what is added to the scaled scores, broadcastable to `[B, heads, S, L]`."""
        if self.padded is None or not self.padded.is_floating_point():
            return None
        return self.padded[:, :, :rows, :columns]
