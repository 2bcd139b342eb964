"""The command ``demo``."""

from __future__ import annotations

import functools
import math

import attrs
import pytest

from npugraph_strategies.cli import _demo, _demo_output
from npugraph_strategies.cli._decoder import Decoder, DecoderConfig
from npugraph_strategies.cli._decoding import decode
from npugraph_strategies.cli._prompts import PROMPTS
from npugraph_strategies.errors import RuntimeUnavailable
from npugraph_strategies.runtimes import SimulatedRuntime
from npugraph_strategies.runtimes._wrapped import WrappedRuntime

SMALL = ("--layers", 1, "--batch", 2, "--steps", 2)


@pytest.fixture
def differing(monkeypatch):
    """Let the demo compare its graph with another model."""
    other = Decoder(DecoderConfig(layers=1), seed=99)
    monkeypatch.setattr(_demo, "decode", functools.partial(decode, eager=other))
    return other


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("order", ["update-then-replay", "replay-then-update"])
def test_nothing_differs(run_json, order, seed):
    """In both orders and with several seeds the JSON counts no mismatch, and says what was asked for."""
    status, report = run_json("demo", *SMALL, "--order", order, "--seed", seed)
    assert status == 0
    assert report["mismatches"] == 0
    assert report["largest_difference"] == 0.0
    assert (report["records"], report["updates"], report["replays"], report["steps"]) == (1, 2, 2, 2)
    assert (report["order"], report["seed"], report["runtime"]) == (order, seed, "simulated")
    assert report["primitives"]["graph.replay"] == 2
    assert report["versions"]["npugraph-strategies"]


def test_the_json_tells_every_step(run_json):
    """Steps have lengths, both tokens and the difference; sequences have prompt and continuation."""
    _, report = run_json("demo", *SMALL)
    assert [sequence["prompt"] for sequence in report["sequences"]] == list(PROMPTS[:2])
    starts = [len(prompt.encode()) for prompt in PROMPTS[:2]]
    for number, step in enumerate(report["decoded"], start=1):
        assert step["lengths"] == [start + number for start in starts]
        assert step["tokens"] == step["eager_tokens"] == [s["tokens"][number] for s in report["sequences"]]
        assert step["matches"]


def test_late_streams_change_nothing(run_json):
    """With ``--lazy`` the text is the same."""
    (_, eager), (status, lazy) = run_json("demo", *SMALL), run_json("demo", *SMALL, "--lazy")
    assert status == 0
    assert lazy["sequences"] == eager["sequences"]


def test_the_tables_end_with_a_verdict(run):
    """Without ``--json`` there are tables, and the last line says that all is equal."""
    result = run("demo", *SMALL)
    assert result.exit_code == 0
    assert "69 16" in result.stdout
    assert "updates of task groups" in result.stdout
    assert PROMPTS[1] in result.stdout
    assert result.stdout.splitlines()[-1].startswith("EQUAL: all 2 steps equal eager (largest difference 0,")


@pytest.mark.usefixtures("differing")
def test_a_difference_fails_the_command(run, run_json):
    """Every step that differs is counted, the status is 1, the verdict says so and the table shows both tokens."""
    status, report = run_json("demo", *SMALL)
    assert (status, report["mismatches"]) == (1, 2)
    assert report["largest_difference"] > 0
    result = run("demo", *SMALL)
    assert result.exit_code == 1
    assert ", eager '" in result.stdout
    assert result.stdout.splitlines()[-1].startswith("DIFFERENT: 2 of 2 steps differ from eager")


def test_an_infinite_difference_is_null(run_json, differing):
    """The report stays valid JSON when logits are NaN."""
    differing.head[0] = math.nan
    status, report = run_json("demo", *SMALL)
    assert (status, report["largest_difference"]) == (1, None)


@pytest.mark.parametrize(
    ("option", "value", "says"),
    [
        ("--batch", 0, "1<=x<="),
        ("--batch", len(PROMPTS) + 1, f"1<=x<={len(PROMPTS)}"),
        ("--steps", 0, "x>=1"),
        ("--layers", 0, "1<=x<="),
        ("--seed", -1, "0<=x<="),
        ("--order", "random", "update-then-replay"),
        ("--runtime", "cuda", "simulated"),
    ],
)
def test_bad_values_are_refused(run, option, value, says):
    """The message names the option and what it takes."""
    result = run("demo", option, value)
    assert result.exit_code == 2
    assert option in result.stderr
    assert says in result.stderr


def test_lazy_is_for_the_simulated_device(run):
    """``--lazy`` with a real device is refused, with what to do."""
    result = run("demo", "--lazy", "--runtime", "npu")
    assert result.exit_code == 2
    assert "--runtime simulated" in result.stderr


def test_an_absent_device_is_one_line(run, monkeypatch):
    """Without torch_npu there is a line on stderr, nothing on stdout, and status 2."""

    def absent():
        raise RuntimeUnavailable("NpuRuntime", "torch_npu cannot be imported (a library\n   is missing)")

    monkeypatch.setattr(_demo, "NpuRuntime", absent)
    result = run("demo", "--runtime", "npu", "--json")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        "Error: NpuRuntime is not available here: torch_npu cannot be imported (a library is missing)\n"
    )


@attrs.define(eq=False)
class Named(WrappedRuntime):
    """A simulated device with the name of one that torch knows."""

    @property
    def name(self):
        return "cpu"


def test_another_device_gets_model_and_tensors(run_json, monkeypatch):
    """The runtime's own name says where the model goes; it is in half precision, with a tolerance."""
    monkeypatch.setattr(_demo, "NpuRuntime", lambda: Named(SimulatedRuntime()))
    status, report = run_json("demo", *SMALL, "--runtime", "npu")
    assert (status, report["mismatches"], report["runtime"]) == (0, 0, "npu")
    assert report["tolerance"] > 0


def test_help_tells_options_and_statuses(run):
    """The help names every option and what the status means."""
    result = run("demo", "--help")
    assert result.exit_code == 0
    options = ("--layers", "--batch", "--steps", "--seed", "--order", "--runtime", "--lazy", "--json")
    assert all(option in result.stdout for option in options)
    assert "Exits with 1 when any step differs" in result.stdout


def test_the_bar_stays_out_of_a_pipe(capsys):
    """Where stderr is no terminal, nothing is drawn on it, and nothing on stdout."""
    result = decode(Decoder(DecoderConfig(layers=1), seed=0), [[65]], runtime=SimulatedRuntime(), steps=1)
    with _demo_output.progress(1, shown=True) as advance:
        advance(result.steps[0])
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.strip() == ""
