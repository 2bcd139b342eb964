"""CPU reference kernels of the operators that this package captures: the oracle, and what a simulated device runs.

Importing this package does nothing. `install()` registers the kernels under the operators' real names, in `npu::` and
`atb::`, for the whole process:

- fused attention, `npu_fused_infer_attention_score` and `_v2`: `.default`, `.out`, workspace and output helpers;
- paged attention, `_npu_paged_attention`, and its workspace helper;
- writing to a paged cache, `_npu_reshape_and_cache` and `npu_scatter_pa_kv_cache`;
- multi-head latent attention, `npu_multi_head_latent_attention`: all four overloads and the workspace helper;
- `npu_rms_norm`.

A kernel computes what the device would, raises `OperatorRejected` before it touches anything where the device would
refuse, and raises `NotSimulated`, naming the argument, for what it does not cover.
"""

from __future__ import annotations

from npugraph_strategies.reference._install import install, installed, schemas

__all__ = ["install", "installed", "schemas"]
