"""A paged key/value cache, laid out as vLLM-Ascend gives it to fused attention."""

from __future__ import annotations

from typing import TYPE_CHECKING, final

import attrs
import torch

if TYPE_CHECKING:
    from torch import Tensor

    from npugraph_strategies.cli._decoder import DecoderConfig

__all__ = ["PagedCache"]


@final
@attrs.frozen(eq=False)
class PagedCache:
    """Keys and values of all layers, each ``[blocks, block_size, kv_heads * head_dim]``, and who owns which block.

    `table` says it on the host, `block_table` (``[batch, blocks per sequence]``, int32) on the device.
    """

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]
    table: tuple[tuple[int, ...], ...]
    block_table: Tensor
    block_size: int

    @classmethod
    def empty(
        cls, config: DecoderConfig, *, batch: int, capacity: int, seed: int, device: torch.device | str = "cpu"
    ) -> PagedCache:
        """Return a zeroed cache with room for `capacity` tokens of each of `batch` sequences.

        Blocks are dealt out in a seeded random order: a kernel that ignores the table computes nonsense.
        """
        per_sequence = -(-capacity // config.block_size)
        order = torch.randperm(batch * per_sequence, generator=torch.Generator().manual_seed(seed))
        dealt = order.view(batch, per_sequence)
        shape = (batch * per_sequence, config.block_size, config.kv_heads * config.head_dim)

        def layers() -> tuple[Tensor, ...]:
            return tuple(torch.zeros(shape, dtype=config.dtype, device=device) for _ in range(config.layers))

        return cls(
            keys=layers(),
            values=layers(),
            table=tuple(tuple(row) for row in dealt.tolist()),
            block_table=dealt.to(device=device, dtype=torch.int32),
            block_size=config.block_size,
        )

    def copy(self) -> PagedCache:
        """Return a cache with contents of its own."""
        return attrs.evolve(
            self,
            keys=tuple(layer.clone() for layer in self.keys),
            values=tuple(layer.clone() for layer in self.values),
            block_table=self.block_table.clone(),
        )

    def slot(self, sequence: int, position: int) -> int:
        """Return which row of the cache holds a token: block and offset as one number."""
        block, offset = divmod(position, self.block_size)
        return self.table[sequence][block] * self.block_size + offset

    def write(self, layer: int, slots: Tensor, key: Tensor, value: Tensor) -> None:
        """Store the keys and values of new tokens, ``[tokens, kv_heads, head_dim]``, in their slots."""
        for cache, new in ((self.keys[layer], key), (self.values[layer], value)):
            cache.flatten(0, 1).index_put_((slots,), new.flatten(1))
