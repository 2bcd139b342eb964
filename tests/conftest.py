"""What all tests share: one thread for torch, and examples that do not change between runs in CI."""

import os

import torch
from hypothesis import settings

torch.set_num_threads(1)  # the tensors are tiny, and tests run side by side

# A change is judged by the same examples as the one before it. New ones are looked for wherever CI is not set.
settings.register_profile("ci", derandomize=True, print_blob=True)
if os.environ.get("CI"):
    settings.load_profile("ci")
