"""What all tests share: one thread for torch, since the tensors are tiny and tests run side by side."""

import torch

torch.set_num_threads(1)
