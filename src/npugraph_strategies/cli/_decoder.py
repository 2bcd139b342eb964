"""A small decoder in the manner of Llama, with seeded random weights: the model of the demo.

RMSNorm, rotary positions, grouped-query attention on a paged cache through
``npu::npu_fused_infer_attention_score_v2``, SwiGLU. Tokens of all sequences are packed (layout TND), prefill and
decode are the same forward pass, as in vLLM-Ascend.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs
import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npugraph_strategies.cli._paging import PagedCache

__all__ = ["Decoder", "DecoderConfig", "Tokens", "greedy"]

_COMPRESSED: Final = 2048  # the size of the causal mask that sparse_mode 3 wants, whatever the lengths
_CAUSAL: Final = 3
_PRINTABLE: Final = (32, 127)


@final
@attrs.frozen(kw_only=True)
class DecoderConfig:
    """Sizes of a decoder."""

    layers: int = 2
    hidden: int = 128
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 64
    intermediate: int = 256
    vocabulary: int = 256
    block_size: int = 16
    rope_base: float = 10000.0
    epsilon: float = 1e-5
    dtype: torch.dtype = torch.float32


@final
@attrs.frozen(eq=False)
class Tokens:
    """What one forward pass gets: tensors of ``[tokens]`` (int64), and the two lengths that are host values.

    `query_ends` are cumulative, one a sequence; `kv_lengths` count what the cache holds of each sequence, these
    tokens included.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    query_ends: Sequence[int]
    kv_lengths: Sequence[int]


@attrs.frozen(eq=False)
class _Shared:
    """What all layers of one forward pass use."""

    tokens: Tokens
    cache: PagedCache
    cos: Tensor
    sin: Tensor
    mask: Tensor


def _weight(generator: torch.Generator, rows: int, columns: int, dtype: torch.dtype) -> nn.Parameter:
    """Return a matrix that keeps the variance of what it is applied to."""
    drawn = torch.randn(rows, columns, generator=generator) * columns**-0.5
    return nn.Parameter(drawn.to(dtype), requires_grad=False)


class RMSNorm(nn.Module):
    """Root mean square normalisation, computed in float32."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config.hidden, dtype=config.dtype), requires_grad=False)
        self._epsilon = config.epsilon

    def forward(self, x: Tensor) -> Tensor:
        """Return the normalised rows."""
        wide = x.float()
        scale = torch.rsqrt(wide.square().mean(-1, keepdim=True) + self._epsilon)
        return (wide * scale).to(x.dtype) * self.weight


class Attention(nn.Module):
    """Grouped-query attention on one layer of the cache."""

    def __init__(self, config: DecoderConfig, layer: int, generator: torch.Generator) -> None:
        super().__init__()
        self._config, self._layer = config, layer
        wide, narrow = config.heads * config.head_dim, config.kv_heads * config.head_dim
        self.query = _weight(generator, wide, config.hidden, config.dtype)
        self.key = _weight(generator, narrow, config.hidden, config.dtype)
        self.value = _weight(generator, narrow, config.hidden, config.dtype)
        self.output = _weight(generator, config.hidden, wide, config.dtype)

    def forward(self, x: Tensor, shared: _Shared) -> Tensor:
        """Write these tokens' keys and values into the cache, and attend to all that it holds."""
        config, tokens, cache = self._config, shared.tokens, shared.cache
        query = rotate(F.linear(x, self.query).view(-1, config.heads, config.head_dim), shared.cos, shared.sin)
        key = rotate(F.linear(x, self.key).view(-1, config.kv_heads, config.head_dim), shared.cos, shared.sin)
        value = F.linear(x, self.value).view(-1, config.kv_heads, config.head_dim)
        cache.write(self._layer, tokens.slots, key, value)
        attended, _ = torch.ops.npu.npu_fused_infer_attention_score_v2(
            query,
            cache.keys[self._layer],
            cache.values[self._layer],
            atten_mask=shared.mask,
            actual_seq_qlen=tokens.query_ends,
            actual_seq_kvlen=tokens.kv_lengths,
            block_table=cache.block_table,
            num_query_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            softmax_scale=config.head_dim**-0.5,
            input_layout="TND",
            sparse_mode=_CAUSAL,
            block_size=cache.block_size,
        )
        return F.linear(attended.flatten(1), self.output)


class SwiGLU(nn.Module):
    """The gated feed-forward layer."""

    def __init__(self, config: DecoderConfig, generator: torch.Generator) -> None:
        super().__init__()
        self.gate = _weight(generator, config.intermediate, config.hidden, config.dtype)
        self.up = _weight(generator, config.intermediate, config.hidden, config.dtype)
        self.down = _weight(generator, config.hidden, config.intermediate, config.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's result for each row."""
        return F.linear(F.silu(F.linear(x, self.gate)) * F.linear(x, self.up), self.down)


class Layer(nn.Module):
    """Attention and feed-forward, each behind a norm and beside a residual."""

    def __init__(self, config: DecoderConfig, layer: int, generator: torch.Generator) -> None:
        super().__init__()
        self.input_norm, self.mlp_norm = RMSNorm(config), RMSNorm(config)
        self.self_attn = Attention(config, layer, generator)
        self.mlp = SwiGLU(config, generator)

    def forward(self, x: Tensor, shared: _Shared) -> Tensor:
        """Return the new residual stream."""
        attended: Tensor = x + self.self_attn(self.input_norm(x), shared)
        fed: Tensor = attended + self.mlp(self.mlp_norm(attended))
        return fed


class Decoder(nn.Module):
    """The whole model: ``decoder(tokens, cache)`` gives logits, ``[tokens, vocabulary]``. Weights come from `seed`."""

    frequencies: Tensor
    mask: Tensor

    def __init__(self, config: DecoderConfig, *, seed: int) -> None:
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        self.embedding = _weight(generator, config.vocabulary, config.hidden, config.dtype)
        self.layers = nn.ModuleList(Layer(config, layer, generator) for layer in range(config.layers))
        self.norm = RMSNorm(config)
        # Not tied to the embedding: with random weights a tied head says the last token again and again.
        self.head = _weight(generator, config.vocabulary, config.hidden, config.dtype)
        steps = torch.arange(0, config.head_dim, 2, dtype=torch.float32) / config.head_dim
        self.register_buffer("frequencies", config.rope_base**-steps)
        self.register_buffer("mask", torch.ones(_COMPRESSED, _COMPRESSED, dtype=torch.int8).triu(1))

    @property
    def device(self) -> torch.device:
        """Return where the weights are."""
        return self.head.device

    def forward(self, tokens: Tokens, cache: PagedCache) -> Tensor:
        """Return the logits of what follows each token."""
        angles = tokens.positions.float()[:, None, None] * self.frequencies
        angles = torch.cat([angles, angles], dim=-1)
        shared = _Shared(tokens, cache, angles.cos(), angles.sin(), self.mask)
        x = F.embedding(tokens.ids, self.embedding)
        for layer in self.layers:
            x = layer(x, shared)
        return F.linear(self.norm(x), self.head)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of columns, half a head apart, by the angle of the token's position (RoPE as Llama writes it).

    `x` is ``[tokens, heads, head_dim]``, `cos` and `sin` are ``[tokens, 1, head_dim]`` in float32.
    """
    first, second = x.float().chunk(2, dim=-1)
    return (x * cos + torch.cat([-second, first], dim=-1) * sin).to(x.dtype)


def greedy(logits: Tensor) -> Tensor:
    """Return the likeliest printable byte of each row: random weights would say mostly unprintable ones."""
    start, stop = _PRINTABLE
    return logits[:, start:stop].argmax(dim=-1) + start
