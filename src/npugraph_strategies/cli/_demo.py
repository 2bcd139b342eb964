"""The command ``demo``: a decoder, its step captured once, every token compared with eager."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING, Final

import click
import torch

from npugraph_strategies import ReplayThenUpdate, UpdateThenReplay, reference
from npugraph_strategies.cli import _demo_output as output
from npugraph_strategies.cli._decoder import Decoder, DecoderConfig
from npugraph_strategies.cli._decoding import decode
from npugraph_strategies.cli._prompts import PROMPTS, encode
from npugraph_strategies.errors import RuntimeUnavailable
from npugraph_strategies.runtimes import NpuRuntime, SimulatedRuntime

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npugraph_strategies import UpdateOrder
    from npugraph_strategies.runtimes import GraphRuntime

__all__ = ["command"]

_ORDERS: Final = ("update-then-replay", "replay-then-update")
_RUNTIMES: Final = ("simulated", "npu")
_DIFFERENT: Final = 1
_NPU_TOLERANCE: Final = 1e-2  # in float16; the simulated device runs the very kernels that eager runs: 0


class _Unavailable(click.ClickException):
    """The device is not available: one line, no traceback."""

    exit_code = 2


@click.command(name="demo")
@click.option("--layers", type=click.IntRange(1, 64), default=2, show_default=True, help="Layers of the decoder.")
@click.option(
    "--batch",
    type=click.IntRange(1, len(PROMPTS)),
    default=4,
    show_default=True,
    help="Sequences decoded together, one for each of the first prompts.",
)
@click.option("--steps", type=click.IntRange(min=1), default=16, show_default=True, help="Tokens to decode.")
@click.option(
    "--seed",
    type=click.IntRange(0, 2**63 - 1),
    default=0,
    show_default=True,
    help="Seeds weights, the cache's blocks, and the simulated device's order of events.",
)
@click.option(
    "--order",
    type=click.Choice(_ORDERS),
    default=_ORDERS[0],
    show_default=True,
    help="What a step does first. The results are the same.",
)
@click.option("--runtime", type=click.Choice(_RUNTIMES), default=_RUNTIMES[0], show_default=True, help="The device.")
@click.option("--lazy", is_flag=True, help="Let the simulated device's streams run late, interleaved by the seed.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON object instead of tables.")
def command(
    *, layers: int, batch: int, steps: int, seed: int, order: str, runtime: str, lazy: bool, as_json: bool
) -> None:
    """Decode text with a captured graph and compare every step with eager.

    A small Llama-style decoder with random weights prefills a few sentences, then decodes them: one step is captured
    with GraphCaptureSession.capture(), and run with graph.step({"actual_seq_kvlen": [...]}), since every sequence
    grows by a token each time. The same step runs eagerly on its own copy of the cache.

    Exits with 1 when any step differs, with 2 when the device is not available.
    """
    if lazy and runtime == "npu":
        raise click.UsageError("--lazy is for the simulated device; leave it out, or use --runtime simulated")
    settings = output.Settings(
        layers=layers,
        batch=batch,
        seed=seed,
        order=order,
        runtime=runtime,
        lazy=lazy,
        tolerance=_NPU_TOLERANCE if runtime == "npu" else 0.0,
    )
    device = _device(runtime, seed=seed, lazy=lazy)
    prompts = PROMPTS[:batch]
    with _one_thread(), output.progress(steps, shown=not as_json) as advance:
        result = decode(
            _decoder(device, runtime, layers, seed),
            [encode(prompt) for prompt in prompts],
            runtime=device,
            steps=steps,
            order=_order(order),
            seed=seed,
            tolerance=settings.tolerance,
            on_step=advance,
        )
    if as_json:
        click.echo(output.as_json(result, prompts, settings))
    else:
        output.render(result, prompts, settings)
    if result.mismatches:
        sys.exit(_DIFFERENT)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread of the host: the tensors are small, and on a busy machine threads wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _order(name: str) -> UpdateOrder:
    return ReplayThenUpdate() if name == "replay-then-update" else UpdateThenReplay()


def _device(name: str, *, seed: int, lazy: bool) -> GraphRuntime:
    """Return the device, with operators that run on it."""
    if name == "npu":
        try:
            return NpuRuntime()
        except RuntimeUnavailable as error:
            message = " ".join(str(error).split())  # the reason is another package's, of any number of lines
            raise _Unavailable(message) from error
    reference.install()
    return SimulatedRuntime(seed=seed, lazy=lazy)


def _decoder(device: GraphRuntime, runtime: str, layers: int, seed: int) -> Decoder:
    """Return the model on the device. Fused attention on an NPU wants half precision and large blocks."""
    if runtime == "npu":
        config = DecoderConfig(layers=layers, block_size=128, dtype=torch.float16)
        return Decoder(config, seed=seed).to(device.name)
    return Decoder(DecoderConfig(layers=layers), seed=seed)
