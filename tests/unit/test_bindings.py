"""Bindings: what a graph uses by address, noticed when it is gone and quiet while it lives."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from torch import nn

from npugraph_strategies._bindings import Binding, WatchedModule


def bind(tensor):
    return Binding.of(tensor, record="layers.0#0", op="my::op.default", argument="cache")


def test_a_living_tensor_is_fine():
    """Nothing is wrong while the tensor is alive and in place."""
    tensor = torch.zeros(4)
    assert bind(tensor).problem() is None


def test_a_freed_tensor():
    """A tensor whose storage died is noticed, and the binding did not keep it alive."""
    tensor = torch.zeros(4)
    binding, alive = bind(tensor), weakref.ref(tensor.untyped_storage())
    del tensor, alive
    gc.collect()
    assert binding.problem() == "was freed after the capture"


@pytest.mark.parametrize("alias", [lambda t: t[1:], lambda t: t.view(2, 2), lambda t: t.detach()])
def test_a_slice_keeps_its_storage(alias):
    """A view of the storage is enough: what counts is the memory, not the tensor."""
    tensor = torch.zeros(4)
    binding = bind(tensor)
    tensor = alias(tensor)
    assert binding.problem() is None


def test_a_slice_binds_the_whole_storage():
    """Binding a slice notes the storage that it lies in."""
    tensor = torch.zeros(4)
    binding = bind(tensor[2:])
    assert binding.nbytes == 16
    assert binding.key == bind(tensor).key
    assert binding.is_of(tensor)


def test_writing_is_no_problem():
    """Contents may change: only the place counts."""
    tensor = torch.zeros(4)
    binding = bind(tensor)
    tensor.fill_(3)
    tensor[:2].copy_(torch.ones(2))
    assert binding.problem() is None


def test_a_storage_resized_to_nothing():
    """Sleep modes empty a storage without freeing it, which is noticed."""
    tensor = torch.zeros(4)
    binding = bind(tensor)
    tensor.untyped_storage().resize_(0)
    assert binding.problem() == "was resized from 16 to 0 bytes"


def test_a_storage_that_came_back_elsewhere():
    """A storage that was emptied and regrown has another address, which is noticed."""
    tensor = torch.zeros(4096)
    binding = bind(tensor)
    tensor.untyped_storage().resize_(0)
    occupied = [torch.zeros(4096) for _ in range(8)]
    tensor.untyped_storage().resize_(4096 * 4 * 64)
    assert "has moved" in binding.problem()
    assert occupied


def test_a_tensor_resized_in_place():
    """`resize_` to more elements moves the storage, which is noticed."""
    tensor = torch.zeros(4)
    binding = bind(tensor)
    tensor.resize_(1 << 20)
    assert "has moved" in binding.problem()


def test_a_shrunken_tensor_is_fine():
    """`resize_` to fewer elements leaves the storage as it is."""
    tensor = torch.zeros(4)
    binding = bind(tensor)
    tensor.resize_(2)
    assert binding.problem() is None


def test_a_tensor_set_to_another_storage():
    """`set_` and `.data =` give the old storage up."""
    for replace in (lambda t: t.set_(torch.ones(4)), lambda t: setattr(t, "data", torch.ones(4))):
        tensor = torch.zeros(4)
        binding = bind(tensor)
        replace(tensor)
        assert binding.problem() == "was freed after the capture"


def test_a_tensor_without_bytes():
    """An empty placeholder is never read, so nobody has to keep it."""
    binding = bind(torch.zeros(0))
    gc.collect()
    assert binding.problem() is None


def test_a_binding_shows_what_it_is():
    """A binding's repr names argument, operator, record and size."""
    tensor = torch.zeros(4)
    assert repr(bind(tensor)) == "Binding('cache' of my::op.default, record 'layers.0#0', 16 bytes)"


class Tied(nn.Module):
    """Two names for one weight, and a buffer."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(2, 2, bias=False)
        self.second = nn.Linear(2, 2, bias=False)
        self.second.weight = self.first.weight
        self.register_buffer("scale", torch.ones(1))


def problems(watched):
    return dict(watched.problems())


def test_an_untouched_module_is_fine():
    """Training in place, loading a state and moving to the same device leave a module where it is."""
    net = Tied()
    watched = WatchedModule.of(net)
    with torch.no_grad():
        net.first.weight.add_(1)
    net.load_state_dict({name: torch.zeros_like(tensor) for name, tensor in net.state_dict().items()})
    net.to("cpu")
    assert problems(watched) == {}


def test_an_exchanged_parameter():
    """A parameter that was replaced is named."""
    net = Tied()
    watched = WatchedModule.of(net)
    net.first.weight = nn.Parameter(torch.zeros(2, 2))
    assert problems(watched) == {"first.weight": "was exchanged for another tensor after the capture"}


def test_a_loosened_tie():
    """A shared weight is watched under each of its names."""
    net = Tied()
    watched = WatchedModule.of(net)
    net.second.weight = nn.Parameter(torch.zeros(2, 2))
    assert list(problems(watched)) == ["second.weight"]


def test_a_cast_module():
    """A cast gives every tensor another storage."""
    net = Tied()
    watched = WatchedModule.of(net)
    net.half()
    assert set(problems(watched)) == {"first.weight", "second.weight", "scale"}


def test_a_removed_tensor():
    """A buffer that is gone from the module is named."""
    net = Tied()
    watched = WatchedModule.of(net)
    del net.scale
    assert problems(watched) == {"scale": "is no longer in its module"}


def test_a_sleeping_module():
    """Storages that were emptied in place are noticed."""
    net = Tied()
    watched = WatchedModule.of(net)
    net.scale.untyped_storage().resize_(0)
    assert problems(watched) == {"scale": "was resized from 4 to 0 bytes"}


def test_a_module_is_not_kept_alive():
    """Watching a module does not keep its weights; their death is noticed."""
    net = Tied()
    watched = WatchedModule.of(net)
    del net
    gc.collect()
    assert watched.module is None
    assert set(problems(watched)) == {"first.weight", "second.weight", "scale"}


def test_tensors_may_outlive_their_module():
    """What counts is the memory: a weight that is still alive is fine without its module."""
    net = Tied()
    watched = WatchedModule.of(net)
    kept = net.first.weight
    del net
    gc.collect()
    assert set(problems(watched)) == {"scale"}
    assert kept.shape == (2, 2)
