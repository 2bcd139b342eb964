"""Memory of the simulated device: weak views, pools, operands that die."""

from __future__ import annotations

import functools
import gc

import numpy as np
import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.two_tensor import TwoTensor

from npugraph_strategies.errors import BadArguments, DeviceError
from npugraph_strategies.runtimes._simulated import SimulatedRuntime


@pytest.fixture
def runtime():
    return SimulatedRuntime()


def captured(runtime, code, **options):
    graph = runtime.new_graph("decoder")
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin(**options)
        try:
            result = code()
        finally:
            graph.capture_end()
    return graph, result


@pytest.mark.parametrize(
    "tensor",
    [
        torch.arange(24.0).view(2, 3, 4),
        torch.arange(24.0).view(2, 3, 4)[:, 1:, ::2].transpose(0, 2),
        torch.zeros(4096).as_strided((2, 1, 8, 64), (1536, 0, 192, 1), 128),
        torch.arange(4, dtype=torch.int32).expand(3, 4),
        torch.zeros((), dtype=torch.bool),
        torch.empty(0, 3),
        torch.tensor([1 + 2j, 3 - 1j]).conj(),
        torch.tensor([1 + 2j, 3 - 1j]).conj().imag,
        torch.zeros(3, dtype=torch.bfloat16),
    ],
    ids=["plain", "sliced", "issue", "expanded", "scalar", "empty", "conj", "neg", "bfloat16"],
)
def test_a_weak_view_keeps_the_geometry(runtime, tensor):
    """Sizes, strides (0-strides too), offset, dtype and lazy bits are the original's, at any depth."""
    view = runtime.weak_view(runtime.weak_view(tensor))
    for name in ("shape", "dtype"):
        assert getattr(view, name) == getattr(tensor, name)
    for name in ("stride", "storage_offset", "is_conj", "is_neg"):
        assert getattr(view, name)() == getattr(tensor, name)()
    assert torch.equal(view, tensor)
    assert runtime.is_device_tensor(view)


def test_a_weak_view_keeps_nothing_alive(runtime):
    """The original's storage dies with its last owner."""
    tensor = torch.zeros(8)
    ref = StorageWeakRef(tensor.untyped_storage())
    view = runtime.weak_view(tensor)
    tensor[0] = 5
    assert view[0].item() == 5
    del tensor
    assert ref.expired()


def test_weak_views_under_a_capture_are_no_tasks(runtime):
    """Making a weak view inside a capture launches nothing, and it can be captured like its original."""
    x = torch.ones(2)

    def code():
        view = runtime.weak_view(x)
        return runtime.weak_view(view * 2) + 1

    graph, y = captured(runtime, code)
    graph.replay()
    assert y.tolist() == [3, 3]
    assert graph.task_count == 2


def test_weak_views_follow_inference_mode(runtime):
    """Made under inference mode they are inference tensors, as on the device."""
    with torch.inference_mode():
        assert runtime.weak_view(torch.ones(1)).is_inference()
    assert not runtime.weak_view(torch.ones(1)).is_inference()


def test_dead_weak_views_are_forgotten(runtime):
    """The table of weak views does not grow with use."""
    tensor = torch.ones(1)
    for _ in range(1000):
        runtime.weak_view(tensor)
    assert len(runtime.simulated_device.weak_views) < 200


def test_only_dense_tensors_are_device_tensors(runtime):
    """A strided CPU tensor lies on the device; meta and sparse ones do not."""
    assert runtime.is_device_tensor(torch.ones(1))
    assert not runtime.is_device_tensor(torch.ones(1, device="meta"))
    assert not runtime.is_device_tensor(torch.ones(1).to_sparse())


def test_what_a_capture_allocates_is_in_its_pool(runtime):
    """Intermediates and their views, weak or not, are the graph's; operands are not."""
    x = torch.ones(4)
    graph, (y, z, e, c) = captured(runtime, lambda: (x * 2, (x + 1)[1:], torch.empty(2), torch.tensor([1.0])))
    other, _ = captured(runtime, lambda: x * 2)
    for tensor in (y, z, e, c):
        assert runtime.in_pool(graph, tensor)
        assert runtime.in_pool(graph, runtime.weak_view(runtime.weak_view(tensor))[:1])
        assert not runtime.in_pool(other, tensor)
    assert not runtime.in_pool(graph, x)
    assert not runtime.in_pool(graph, runtime.weak_view(x))
    assert not runtime.in_pool(graph, torch.ones(1))


def test_graphs_may_share_a_pool(runtime):
    """A graph given another's pool answers for the memory of both."""
    first, y = captured(runtime, lambda: torch.ones(1) + 1)
    second, z = captured(runtime, lambda: torch.ones(1) + 1, pool=first.pool())
    assert first.pool() is second.pool()
    assert runtime.in_pool(first, z)
    assert runtime.in_pool(second, y)


def test_intermediates_outlive_the_forward(runtime):
    """Their Python tensors die, their memory stays with the graph: allocator churn cannot hurt."""
    x = torch.ones(1024)
    graph, y = captured(runtime, lambda: (x * 2 + 1).exp().log())
    gc.collect()
    churn = [torch.full((1024,), float("nan")) for _ in range(50)]
    graph.replay()
    torch.testing.assert_close(y, torch.full((1024,), 3.0))
    del churn


def test_a_graph_gives_its_memory_back(runtime):
    """After a reset only what the user still holds is alive."""
    x = torch.ones(8)
    graph, y = captured(runtime, lambda: x * 2)
    ref = StorageWeakRef(y.untyped_storage())
    del y
    assert not ref.expired()
    graph.reset()
    assert ref.expired()


def test_operands_are_not_kept_alive(runtime):
    """The caller's tensors die with the caller, and a replay that would read garbage names operator and argument."""
    x, y = torch.ones(8), torch.ones(8)
    ref = StorageWeakRef(x.untyped_storage())
    graph, z = captured(runtime, functools.partial(torch.add, y, x))
    del x
    assert ref.expired()
    with pytest.raises(DeviceError, match=r"507015: argument 'other' of aten::add.Tensor was freed"):
        graph.replay()
    assert z.isnan().all()


def test_a_slice_keeps_an_operand_alive(runtime):
    """Storages count, not tensors."""
    x = torch.ones(8)
    graph, y = captured(runtime, functools.partial(lambda t: t[2:] + 1, x))
    part = x[:1]
    del x
    graph.replay()
    assert y.sum().item() == 12
    del part


def test_a_resized_operand_is_noticed(runtime):
    """Emptied (sleep mode) or regrown elsewhere, the captured address is wrong."""
    x = torch.ones(8)
    graph, _ = captured(runtime, lambda: x + 1)
    x.untyped_storage().resize_(0)
    with pytest.raises(DeviceError, match="resized from 32 to 0 bytes"):
        graph.replay()
    filler = torch.ones(8)
    x.untyped_storage().resize_(1 << 20)
    with pytest.raises(DeviceError, match="moved to another address"):
        graph.replay()
    del filler


def test_a_replay_in_flight_keeps_its_operands(runtime):
    """Memory freed after the launch is freed in stream order: a waiting replay may still read it."""
    x, event = torch.ones(8), runtime.new_event("attn")

    def code(x):
        event.wait(runtime.capture_stream())
        return x + 1

    graph, y = captured(runtime, functools.partial(code, x))
    ref = StorageWeakRef(x.untyped_storage())
    graph.replay()
    del x
    assert not ref.expired()
    event.record(runtime.update_stream())
    assert y.tolist() == [2] * 8
    assert ref.expired()


def test_a_dead_operand_of_a_group_is_noticed_when_it_runs(runtime):
    """An update may replace it before that, so the launch is no error."""
    x, out, event, stream = torch.ones(2), torch.zeros(2), runtime.new_event("attn"), runtime.capture_stream()
    graph = runtime.new_graph("decoder")
    with runtime.stream(stream):
        graph.capture_begin()
        event.wait(stream)
        runtime.task_group_begin(stream)
        torch.mul(x, 2, out=out)
        handle = runtime.task_group_end(stream)
        graph.capture_end()
    del x
    graph.replay()
    with pytest.raises(DeviceError, match=r"argument 'self' of aten::mul.out was freed"):
        event.record(runtime.update_stream())
    graph.replay()
    y = torch.full((2,), 3.0)
    with runtime.stream(runtime.update_stream()):
        runtime.task_update_begin(runtime.update_stream(), handle)
        torch.mul(runtime.weak_view(y), 2, out=runtime.weak_view(out))
        runtime.task_update_end(runtime.update_stream())
    event.record(runtime.update_stream())
    assert out.tolist() == [6, 6]
    del y
    event.record(runtime.update_stream())
    with pytest.raises(DeviceError, match=r"argument 'self' of aten::mul.out was freed"):
        graph.replay()


@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float64, torch.complex64, torch.float8_e4m3fn, torch.float8_e4m3fnuz],
)
def test_every_floating_format_is_poisoned_with_nan(runtime, dtype):
    """One byte pattern is a NaN in each of them."""
    _, x = captured(runtime, lambda: torch.empty(3, dtype=dtype))
    wide = torch.complex64 if dtype.is_complex else torch.float32
    assert x.to(wide).isnan().all()


MOVED = r"507015: (an output|argument 'out') of aten::\S+ was (resized|moved)"


def grow(tensor):
    tensor.resize_(100_000)


def empty(tensor):
    tensor.untyped_storage().resize_(0)


@pytest.mark.parametrize("change", [grow, empty])
@pytest.mark.parametrize("which", ["intermediate", "output", "out="])
@pytest.mark.parametrize("when", ["before", "while it waits"])
def test_memory_of_the_graph_that_moves_is_reported(runtime, change, which, when):
    """A device would write to where an output or an intermediate was; the replay fails before anything runs."""
    x, seen, event = torch.ones(8), torch.zeros(8), runtime.new_event()

    def code():
        event.wait(runtime.current_stream())
        seen.add_(1)
        y = x * 2
        z = torch.exp(y)
        return {"intermediate": y, "output": z, "out=": torch.add(z, 1, out=torch.empty(8))}

    graph, tensors = captured(runtime, code)
    if when == "before":
        event.record(runtime.update_stream())
        change(tensors[which])
        with pytest.raises(DeviceError, match=MOVED):
            graph.replay()
    else:
        graph.replay()
        change(tensors[which])
        with pytest.raises(DeviceError, match=MOVED):
            event.record(runtime.update_stream())
    assert seen.tolist() == [0] * 8
    runtime.synchronize()


def test_memory_that_is_resized_inside_the_capture_is_followed(runtime):
    """What counts is where memory lies at the end of the capture; what was freed inside it stays the graph's."""
    x = torch.arange(4.0)

    def code():
        y = x + 1
        z = y * 2
        empty(y)
        out = torch.empty(0)
        torch.add(z, 1, out=out)
        z.resize_(6)
        return out, z[:4], torch.empty(3)

    graph, (out, z, unused) = captured(runtime, code)
    grow(unused)
    for _ in range(2):
        graph.replay()
        assert out.tolist() == [3, 5, 7, 9]
        assert z.tolist() == [2, 4, 6, 8]


@pytest.mark.parametrize("make", [torch.from_numpy, torch.as_tensor, torch.asarray])
def test_values_of_the_host_are_copied(runtime, make):
    """Captured work and replays leave the host's own memory alone, even where they write to what was made of it."""
    values = np.arange(4.0)[1:]
    graph, (y, taken) = captured(runtime, lambda: (make(values) + 1, make(values).mul_(2)))
    values[:] = 7
    for _ in range(2):
        graph.replay()
        assert (y.tolist(), taken.tolist()) == ([2, 3, 4], [2, 4, 6])
    assert values.tolist() == [7, 7, 7]


def test_lifting_leaves_its_argument_alone(runtime):
    """A tensor from outside that is lifted is a value of the host like any other."""
    outside = torch.arange(6.0).view(2, 3)
    graph, y = captured(runtime, lambda: torch.ops.aten.lift_fresh(outside.t()) + 1)
    outside.fill_(7)
    graph.replay()
    assert y.tolist() == [[1, 4], [2, 5], [3, 6]]
    assert outside.eq(7).all()


def test_a_buffer_of_the_host_is_an_operand(runtime):
    """``torch.frombuffer`` reaches no operator: its tensor is one from outside, read by each replay."""
    outside = torch.frombuffer(bytearray(8), dtype=torch.int32)
    graph, y = captured(runtime, lambda: outside + 1)
    graph.replay()
    assert (y.tolist(), outside.tolist()) == ([1, 1], [0, 0])


@pytest.mark.parametrize(
    ("tensor", "problem"),
    [
        (torch.ones(2, device="meta"), "a tensor on meta is not on this device"),
        (torch.eye(2).to_sparse(), "only dense tensors"),
        (TwoTensor(torch.ones(2), torch.ones(2)), "a TwoTensor without memory of its own"),
    ],
    ids=["meta", "sparse", "wrapper"],
)
def test_only_memory_of_the_device_has_weak_views(runtime, tensor, problem):
    """Tensors without memory on the device are refused, as on an NPU."""
    with pytest.raises(BadArguments, match=f"weak_view: {problem}.*; expected a tensor on simulated:0"):
        runtime.weak_view(tensor)
