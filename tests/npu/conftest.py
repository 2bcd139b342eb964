"""Tests on an NPU: they run where torch_npu finds a device, whatever it is made of, and nowhere else."""

from __future__ import annotations

import importlib
import os
import warnings
from pathlib import Path

import pytest
import torch

from support.bench import NpuBench

_HERE = Path(__file__).parent
_TORCH_NPUS = "ignore:.*Triggered internally at ../torch_npu:UserWarning"  # not this suite's to judge


def _missing() -> str:
    """Return why there is no device, or nothing if there is one."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module("torch_npu")
            if not torch.npu.is_available():
                return "torch_npu finds no NPU"
            torch.ones(1, device="npu").cpu()
    except Exception as error:  # noqa: BLE001 - a missing library, another torch, a refused import: all are reasons
        return f"torch_npu cannot be used ({error})"
    return ""


def pytest_collection_modifyitems(items) -> None:
    """Mark the tests of this directory; skip them where there is no device."""
    ours = [item for item in items if _HERE in item.path.parents]
    missing = _missing() if ours else ""
    if missing and os.environ.get("NPU_EXPECTED"):  # where there must be a device, a run without one is no success
        raise pytest.UsageError(missing)
    for item in ours:
        item.add_marker(pytest.mark.npu)
        item.add_marker(pytest.mark.filterwarnings(_TORCH_NPUS))
        if missing:
            item.add_marker(pytest.mark.skip(reason=missing))


@pytest.fixture(scope="session")
def bench():
    """Run on an NPU."""
    return NpuBench()


@pytest.fixture(scope="session")
def q(bench):
    """Return a small tensor on the device, which no test changes."""
    return bench.tensor([0.0, 1.0, 2.0])
