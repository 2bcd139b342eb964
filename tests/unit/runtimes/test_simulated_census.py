"""A census over torch's own operator samples: each is captured exactly, or refused for a listed reason."""

from __future__ import annotations

import collections
import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from npugraph_strategies.errors import DeviceError, NotCapturable
from npugraph_strategies.runtimes._simulated import SimulatedRuntime

SAMPLES = {torch.float32: 3, torch.int64: 1}
SEED = 42  # the one that torch's samples of random operators set
REASONS = ("synchronize with the host", "only dense tensors")
MOST_REFUSED = 0.06


class Eager(TorchDispatchMode):
    """Run everything as ever; some of torch's own code asks whether a mode is active, and goes another way."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def copied(values):
    return pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), values)


def same(result, expected):
    """Tell whether two results are equal to the last bit; NaN equals NaN."""
    ours, theirs = pytree.tree_leaves(result), pytree.tree_leaves(expected)
    return len(ours) == len(theirs) and all(map(same_leaf, ours, theirs))


def same_leaf(one, two):
    if not isinstance(one, torch.Tensor):
        return one == two
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    return torch.equal(*(readable(t) for t in (one, two)))


def readable(tensor):
    plain = tensor.detach().resolve_conj().resolve_neg()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.nan_to_num(nan=1.25, posinf=float("inf"), neginf=-float("inf")) if plain.is_floating_point() else plain


def shuffle(inputs):
    """Change the inputs in place, keeping them valid: every dense one is reversed along its first dimension."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and leaf.dim() and leaf.is_contiguous():
            leaf.copy_(leaf.flip(0).clone())


def eager(op, inputs):
    torch.default_generator.manual_seed(SEED)
    with Eager():
        return op.op(*inputs[0], **inputs[1])


def verdict(op, sample):
    """Return ``exact``, ``refused: …``, ``wrong``, or None when eager itself does not take the sample."""
    given = ((sample.input, *sample.args), sample.kwargs)
    try:
        expected = copied(eager(op, copied(given)))
    except Exception:  # noqa: BLE001 - a sample that is meant to fail says nothing here
        return None
    inputs, runtime = copied(given), SimulatedRuntime()
    graph = runtime.new_graph(op.name)
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        try:
            got = op.op(*inputs[0], **inputs[1])
        except NotCapturable as refused:
            with pytest.raises(DeviceError, match="507903"):
                graph.capture_end()
            return f"refused: {refused.reason}"
        graph.capture_end()
    torch.default_generator.manual_seed(SEED)
    graph.replay()
    if not same(got, expected):
        return "wrong"
    fresh = copied(given)
    pytree.tree_map_(lambda t, u: t.copy_(u) if _same_shape(t, u) else t, inputs, fresh)
    shuffle(inputs)
    shuffle(fresh)
    try:
        expected = eager(op, fresh)
    except Exception:  # noqa: BLE001 - the changed values need not be valid
        return "exact"
    torch.default_generator.manual_seed(SEED)
    graph.replay()
    return "exact" if same(got, expected) else "wrong again"


def _same_shape(one, two):
    return (
        isinstance(one, torch.Tensor) and one.layout is torch.strided and one.shape == two.shape and not _overlaps(one)
    )


def _overlaps(tensor):
    return any(stride == 0 and size > 1 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def census(op_db):
    """Return how many samples got which verdict, and what is neither exact nor refused for a listed reason."""
    counts, bad = collections.Counter(), []
    for op in op_db:
        if "empty" in op.name:  # what they return is not defined
            continue
        for dtype, most in SAMPLES.items():
            samples = op.sample_inputs("cpu", dtype) if dtype in op.dtypes else ()
            for sample in itertools.islice(samples, most):
                found = verdict(op, sample)
                counts[str(found).partition(":")[0]] += 1
                if found not in {"exact", None} and not any(reason in found for reason in REASONS):
                    bad.append(f"{op.full_name} {dtype}: {found}")
    return counts, bad


@pytest.mark.filterwarnings("ignore")  # the samples exercise what is deprecated in torch too
def test_every_sample_is_exact_or_refused():
    """Over a thousand samples none is captured wrongly, and few are refused."""
    pytest.importorskip("expecttest")
    from torch.testing._internal.common_methods_invocations import op_db  # noqa: PLC0415 - takes seconds to import

    with ThreadPoolExecutor(1) as worker:  # a short stack: torch's samples inspect all of it, again and again
        counts, bad = worker.submit(census, op_db).result()
    assert not bad, "\n".join(bad)
    assert counts["exact"] > 2000, counts
    assert counts["refused"] < MOST_REFUSED * counts["exact"], counts
