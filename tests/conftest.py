"""What all tests share: one thread for torch, examples that do not change between runs in CI, and where tests run."""

import os

import pytest
import torch
from hypothesis import settings

from support.bench import SimulatedBench

torch.set_num_threads(1)  # the tensors are tiny, and tests run side by side

# A change is judged by the same examples as the one before it. New ones are looked for wherever CI is not set.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")


@pytest.fixture(scope="session")
def bench():
    """Run on simulated devices; `tests/npu` runs the same tests on an NPU."""
    return SimulatedBench()


@pytest.fixture(scope="session")
def q(bench):
    """Return a small tensor on the device, which no test changes."""
    return bench.tensor([0.0, 1.0, 2.0])
