"""Laws of keeping arguments: device tensors weakly and exactly, host values as snapshots, containers in their types."""

from __future__ import annotations

import gc
from collections import OrderedDict
from typing import Any, NamedTuple

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.multiprocessing.reductions import StorageWeakRef

from npugraph_strategies import OpCall, UpdateParams
from npugraph_strategies._containers import leaves

QUICK = settings(max_examples=120, deadline=None)
HANDLER = UpdateParams("nstest::mix", "lens")
CALL = OpCall.bind("aten::relu", (torch.zeros(1),))


@pytest.fixture(scope="module")
def runtime(bench):
    """Return a runtime of the device; wrapping changes nothing in it."""
    return bench.runtime()


class Pair(NamedTuple):
    """A container of one's own."""

    first: Any
    second: Any = None


@attrs.frozen
class HostRuntime:
    """A runtime on which nothing is a device tensor, as far as wrapping asks."""

    def is_device_tensor(self, tensor):  # noqa: ARG002 - the protocol's shape
        return False


@st.composite
def tensors(draw, device):
    """Draw a strided tensor: any dtype, offset, permutation, 0-strides and steps, empty and scalar ones too."""
    dtype = draw(st.sampled_from([torch.float32, torch.float16, torch.int64, torch.int8, torch.bool, torch.complex64]))
    sizes = draw(st.lists(st.integers(0, 3), max_size=3))
    strides = [draw(st.integers(0, 4)) for _ in sizes]
    offset = draw(st.integers(0, 3))
    needed = offset + 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True) if size)
    storage = torch.arange(needed + draw(st.integers(0, 3)))
    return storage.to(dtype).to(device).as_strided(sizes, strides, offset)


falsy = st.sampled_from([0, 0.0, False, "", None])
scalars = falsy | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3) | st.just(torch.float16)


def filled(device):
    """Describe tensors that have elements."""
    return tensors(device).filter(lambda tensor: tensor.numel())


def nested(device):
    """Describe containers of tensors and scalars at any depth."""
    return st.recursive(
        tensors(device) | scalars,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.builds(Pair, inner, inner)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict)
            | st.lists(st.integers(0, 3), max_size=3).map(torch.Size)
        ),
        max_leaves=8,
    )


def shape_of(value):
    """Describe the containers of a value by type, with their keys, and its leaves by nothing."""
    if isinstance(value, dict):
        return type(value), [(key, shape_of(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [shape_of(item) for item in value]
    return None


def geometry(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.storage_offset(), tensor.dtype, tensor.device


def wrapped(runtime, value, *, name="x"):
    return HANDLER.record_wrap_kwarg(CALL, name, value, runtime)


def pairs(value, kept):
    return list(zip(leaves(value), leaves(kept), strict=True))


@QUICK
@given(st.data())
def test_containers_keep_their_type(bench, runtime, data):
    """Every container, named tuples, ordered dicts and sizes included, is rebuilt in its own type."""
    value = data.draw(nested(bench.device))
    assert shape_of(wrapped(runtime, value)) == shape_of(value)


@QUICK
@given(st.data())
def test_device_tensors_become_views_with_the_same_geometry(bench, runtime, data):
    """Sizes, strides, offset, dtype, device and address of every device tensor are those of the original."""
    value = data.draw(nested(bench.device))
    for original, view in pairs(value, wrapped(runtime, value)):
        if isinstance(original, torch.Tensor):
            assert geometry(view) == geometry(original)
            assert view.untyped_storage().data_ptr() == original.untyped_storage().data_ptr()
            assert view is not original


@QUICK
@given(st.data(), st.integers(0, 3))
def test_a_view_holds_no_storage_alive(bench, runtime, data, depth):
    """However deep a device tensor lies, what is kept does not keep its memory."""
    tensor = data.draw(filled(bench.device)).clone()
    storage = StorageWeakRef(tensor.untyped_storage())
    value = tensor
    for _ in range(depth):
        value = [Pair(value)]
    kept = wrapped(runtime, value)
    del tensor, value
    gc.collect(0)
    assert storage.expired()
    assert kept is not None


@QUICK
@given(st.data())
def test_a_view_sees_what_is_written(bench, runtime, data):
    """A view shows the memory, not a copy of it."""
    tensor = data.draw(filled(bench.device))
    (view,) = wrapped(runtime, [tensor])
    tensor.untyped_storage().fill_(0)
    assert not view.any()


@QUICK
@given(st.data())
def test_scalars_stay_themselves(bench, runtime, data):
    """Numbers, texts, dtypes and None come out as the same objects, falsy ones too."""
    value = data.draw(nested(bench.device))
    for original, kept in pairs(value, wrapped(runtime, value)):
        if not isinstance(original, torch.Tensor):
            assert kept is original


@QUICK
@given(st.data())
def test_update_parameters_are_snapshots(runtime, data):
    """What a handler lists as a parameter is a host value: equal, in the same containers, and shared with nobody."""
    value = data.draw(nested("cpu"))
    kept = wrapped(runtime, value, name="lens")
    assert shape_of(kept) == shape_of(value)
    for original, copied in pairs(value, kept):
        if isinstance(original, torch.Tensor):
            assert torch.equal(copied, original)
            assert not original.numel() or copied.untyped_storage().data_ptr() != original.untyped_storage().data_ptr()
        else:
            assert copied == original
            assert type(copied) is type(original)


@QUICK
@given(st.data())
def test_host_tensors_elsewhere_are_snapshots(data):
    """A tensor that is not on the device is copied wherever it stands."""
    value = data.draw(nested("cpu"))
    for original, kept in pairs(value, wrapped(HostRuntime(), value)):
        if isinstance(original, torch.Tensor):
            assert torch.equal(kept, original)
            assert not original.numel() or kept.data_ptr() != original.data_ptr()


@QUICK
@given(st.lists(st.integers(), min_size=1), st.integers())
def test_a_snapshot_does_not_follow_its_original(runtime, value, other):
    """The caller may change its list the next moment."""
    before = list(value)
    kept = wrapped(runtime, value, name="lens")
    value[0] = other
    value.append(other)
    assert kept == before


def test_the_view_of_a_report(bench, runtime):
    """A view with a 0-stride and an offset once lost them: it is equal in all of its geometry."""
    storage = torch.zeros(4096, device=bench.device)
    view = storage.as_strided([2, 1, 8, 64], [1536, 0, 192, 1], 128)
    assert geometry(wrapped(runtime, view)) == geometry(view)
