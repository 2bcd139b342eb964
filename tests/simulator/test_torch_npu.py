"""What torch_npu's user sees of the simulator itself: schedules, traces, stalls and diagnoses."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import torch

from npugraph_strategies.errors import RuntimeUnavailable
from npugraph_strategies.simulator import Control

try:
    import torch_npu

    CONTROL = Control.current()
    torch.ones(1, device="npu").cpu()
except (ImportError, OSError, RuntimeError, RuntimeUnavailable) as error:
    if os.environ.get("NPU_EXPECTED"):
        raise
    pytest.skip(f"needs torch_npu on the simulator ({error})", allow_module_level=True)

pytestmark = [pytest.mark.npu, pytest.mark.filterwarnings("ignore:.*Triggered internally at ../torch_npu:UserWarning")]


@pytest.fixture
def control():
    """Return a hold on the simulator, which is as it was when the test ends."""
    CONTROL.stall_seconds(0.1)
    yield CONTROL
    CONTROL.seed(None)
    CONTROL.stall_seconds(10)


def two_streams_of_work(control, seed):
    """Return the order in which two streams did three additions each."""
    first, second = torch.npu.Stream(), torch.npu.Stream()
    x, y = torch.zeros(4, device="npu"), torch.zeros(4, device="npu")
    torch.npu.synchronize()
    control.seed(seed)
    with control.trace() as trace:
        for _ in range(3):
            with torch.npu.stream(first):
                x.add_(1)
            with torch.npu.stream(second):
                y.add_(1)
        torch.npu.synchronize()
        order = trace.order()
    rows = {}
    return [rows.setdefault(line.split(":")[0], len(rows)) for line in order if "aclnnInplaceAdd" in line]


def run(program, **environment):
    """Run a program in a process of its own on this simulator."""
    return subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


def test_a_seed_gives_the_same_schedule_again(control):
    """Two streams interleave in the same way under the same seed."""
    assert all(two_streams_of_work(control, seed) == two_streams_of_work(control, seed) for seed in range(10))


def test_seeds_reach_different_schedules(control):
    """Under different seeds two streams interleave in different ways."""
    assert len({tuple(two_streams_of_work(control, seed)) for seed in range(30)}) > 5


def test_the_trace_of_a_process_is_a_timeline(tmp_path):
    """With a trace's path set, a process leaves a timeline with a row for each stream and its operators."""
    path = tmp_path / "trace.json"
    done = run(
        "import torch, torch_npu; x = torch.ones(3, device='npu'); (x * 2).cpu()",
        NPUGRAPH_SIM_TRACE=str(path),
    )
    assert done.returncode == 0, done.stderr
    events = json.loads(path.read_text())["traceEvents"]
    assert any(event["name"] == "aclnnMuls" for event in events)
    assert any(event["ph"] == "M" and event["args"]["name"].startswith("stream") for event in events)


@pytest.mark.usefixtures("control")
def test_a_stall_is_an_error_that_names_what_is_waited_for():
    """A replay whose event nobody records makes the wait fail, naming graph, task and address; then it can go on."""
    event, stream = torch_npu.npu.ExternalEvent(), torch.npu.Stream()
    x = torch.ones(3, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        event.wait(torch.npu.current_stream())
        event.reset(torch.npu.current_stream())
        y = x + 1
    graph.replay()
    with pytest.raises(RuntimeError, match=r"507046(.|\n)*replay 1, task 0(.|\n)*equal to 1 \(it is 0\)"):
        torch.npu.synchronize()
    event.record(stream)
    torch.npu.synchronize()
    assert y.cpu().tolist() == [2.0] * 3


def test_an_operator_that_is_missing_is_named():
    """An operator that the simulator lacks fails with its name, eagerly and captured, and the next calls work."""
    done = run(
        "import torch, torch_npu\n"
        "x = torch.ones(3, 3, device='npu')\n"
        "try:\n"
        "    torch.linalg.svd(x)\n"
        "    torch.npu.synchronize()\n"
        "except RuntimeError as error:\n"
        "    print('eager', 'Svd' in str(error), '507015' in str(error))\n"
        "try:\n"
        "    with torch.npu.graph(torch.npu.NPUGraph()):\n"
        "        torch.linalg.svd(x)\n"
        "except RuntimeError as error:\n"
        "    print('captured', 'Svd' in str(error))\n"
        "print((x + 1).sum().item())\n"
    )
    assert done.stdout.splitlines() == ["eager True True", "captured True", "18.0"], done.stderr


def test_memory_outside_of_a_block_is_diagnosed():
    """An operator on memory that was freed is not run; the wait for it fails and says so."""
    done = run(
        "import torch, torch_npu\n"
        "x = torch.ones(1 << 20, device='npu')\n"
        "weak = torch_npu._C._weak_ref_tensor(x)\n"
        "torch.npu.synchronize()\n"
        "del x\n"
        "torch.npu.empty_cache()\n"
        "y = weak + 1\n"
        "torch.npu.synchronize()\n",
        PYTORCH_NO_NPU_MEMORY_CACHING="1",
    )
    assert done.returncode == 1
    assert "507015" in done.stderr
    assert "was freed" in done.stderr


def test_an_older_cann_is_asked_for_the_older_attention(tmp_path):
    """Below CANN 8.1 torch_npu calls the second version of fused infer attention, which gives the same numbers."""
    path = tmp_path / "trace.json"
    done = run(
        "import torch, torch_npu\n"
        "from npugraph_strategies.reference._fused import KERNELS\n"
        "torch.manual_seed(0)\n"
        "query, key, value = (torch.randn(2, 2, n, 16, dtype=torch.float16) for n in (1, 9, 9))\n"
        "options = dict(num_heads=2, scale=0.25, input_layout='BNSD', actual_seq_lengths_kv=[3, 9])\n"
        "expected, _ = KERNELS['npu::npu_fused_infer_attention_score'].run(query, key, value, **options)\n"
        "call = torch.ops.npu.npu_fused_infer_attention_score\n"
        "out, _ = call(query.npu(), key.npu(), value.npu(), **options)\n"
        "print(torch.allclose(out.cpu().float(), expected.float(), atol=2e-3))\n",
        NPUGRAPH_SIM_CANN="8.0.0",
        NPUGRAPH_SIM_TRACE=str(path),
    )
    assert done.stdout == "True\n", done.stderr
    assert "aclnnFusedInferAttentionScoreV2" in path.read_text()
