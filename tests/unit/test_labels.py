"""Labels: where in the model a call stands, for any way of running the model."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import nn

from npugraph_strategies import OpCall
from npugraph_strategies._labels import Labeller, ModuleTracker, path_of
from support import toys

CALL = OpCall.bind(toys.ATTN.ops[0], (torch.zeros(1), [1]))
X = torch.zeros(1)


class Look(nn.Module):
    """Notes the path at which it runs."""

    def __init__(self, tracker, seen, error=None):
        super().__init__()
        self.tracker, self.seen, self.error = tracker, seen, error

    @torch.compiler.disable
    def look(self):
        self.seen.append(self.tracker.path)
        if self.error is not None:
            raise self.error

    def forward(self, x):
        self.look()
        return x


class Block(nn.Module):
    """A module with a named child."""

    def __init__(self, child):
        super().__init__()
        self.attn = child

    def forward(self, x):
        return self.attn(x)


class Net(nn.Module):
    """Layers in a list."""

    def __init__(self, *children):
        super().__init__()
        self.layers = nn.ModuleList(Block(child) for child in children)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


def looks(count=2, **options):
    """Make a tracker, the list of what is seen, and modules that look."""
    tracker, seen = ModuleTracker(), []
    return tracker, seen, [Look(tracker, seen, **options) for _ in range(count)]


def test_nested_modules():
    """A path is relative to the outermost module, through lists."""
    tracker, seen, leaves = looks()
    with tracker:
        Net(*leaves)(X)
    assert seen == ["layers.0.attn", "layers.1.attn"]


def test_the_outermost_module_is_empty():
    """In the outermost module, and outside of any, the path is empty."""
    tracker, seen, (leaf,) = looks(1)
    with tracker:
        assert tracker.path == ""
        leaf(X)
        assert tracker.path == ""
    assert seen == [""]


def test_the_path_returns():
    """After an inner module the path is the outer one's again."""
    tracker, seen, (first, second, third) = looks(3)
    with tracker:
        nn.Sequential(first, Block(second), third)(X)
    assert seen == ["0", "1.attn", "2"]


def test_several_outermost_modules():
    """Each outermost module gives the names below it."""
    tracker, seen, (leaf,) = looks(1)
    with tracker:
        Block(leaf)(X)
        nn.Sequential(leaf)(X)
    assert seen == ["attn", "0"]


def test_a_shared_module_has_its_first_name():
    """A module that is registered twice runs under the first of its names."""
    tracker, seen, (leaf,) = looks(1)
    with tracker:
        Net(leaf, leaf)(X)
    assert seen == ["layers.0.attn", "layers.0.attn"]


def test_a_module_that_is_not_registered():
    """A module made on the fly goes by its class, below where it runs."""
    tracker, seen, (leaf,) = looks(1)

    class Lazy(nn.Module):
        def forward(self, x):
            return [leaf][0](x)

    with tracker:
        Block(Lazy())(X)
    assert seen == ["attn.Look"]


def test_an_exception_unwinds_the_path():
    """A module that raises is left, and so are those around it."""
    tracker, seen, (leaf,) = looks(1, error=ValueError("inside"))
    with tracker:
        with pytest.raises(ValueError, match="inside"):
            Net(leaf)(X)
        assert tracker.path == ""
    assert seen == ["layers.0.attn"]


def test_a_caught_exception_unwinds_to_where_it_was_caught():
    """A module that catches a child's error goes on under its own path."""
    tracker, seen, (bad,) = looks(1, error=ValueError("inside"))
    good = Look(tracker, seen)

    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad, self.good = Block(bad), good

        def forward(self, x):
            try:
                return self.bad(x)
            except ValueError:
                return self.good(x)

    with tracker:
        Block(Careful())(X)
    assert seen == ["attn.bad.attn", "attn.good"]


def test_an_interruption_unwinds_with_the_module_that_catches_it():
    """Torch does not tell when an interrupt leaves a module, so the path is right again once its catcher is left."""
    tracker, seen, (bad,) = looks(1, error=KeyboardInterrupt())
    good = Look(tracker, seen)

    class Patient(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad = Block(bad)

        def forward(self, x):
            with pytest.raises(KeyboardInterrupt):
                self.bad(x)
            return x

    with tracker:
        nn.Sequential(Patient(), good)(X)
        assert tracker.path == ""
    assert seen == ["0.bad.attn", "1"]


def test_a_module_in_itself():
    """Recursion leaves one level at a time."""
    tracker, seen, (leaf,) = looks(1)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = leaf

        def forward(self, x, depth=1):
            x = self(x, depth - 1) if depth else x
            return self.leaf(x)

    with tracker:
        nn.Sequential(Twice())(X)
    assert seen == ["0.leaf", "0.leaf"]


def test_a_capture_that_begins_inside_a_module():
    """Leaving a module that was entered before the tracker was does not disturb it."""
    tracker, seen, (leaf,) = looks(1)

    class Outer(nn.Module):
        def forward(self, x):
            tracker.__enter__()
            return Block(leaf)(x)

    Outer()(X)
    tracker.__exit__(None, None, None)
    assert seen == ["attn"]


def test_leaving_a_module_that_was_not_entered():
    """When another hook raises before a module is entered, the path stays that of the module around it."""
    tracker, seen, (leaf, bad) = looks(2)

    class Careful(nn.Module):
        def __init__(self):
            super().__init__()
            self.bad, self.leaf = bad, leaf

        def forward(self, x):
            with pytest.raises(ValueError, match="refused"):
                self.bad(x)
            return self.leaf(x)

    def refuse(module, args):  # noqa: ARG001 - a hook
        if module is bad:
            raise ValueError("refused")

    handle = nn.modules.module.register_module_forward_pre_hook(refuse)
    with tracker:
        Block(Careful())(X)
    handle.remove()
    assert seen == ["attn.leaf"]


def test_other_threads_are_not_followed():
    """Modules that run elsewhere meanwhile do not change the path here."""
    tracker, seen, (leaf,) = looks(1)
    paths = []

    class Outer(nn.Module):
        def forward(self, x):
            worker = threading.Thread(target=lambda: Net(leaf)(x))
            worker.start()
            worker.join()
            paths.append(tracker.path)
            return x

    with tracker:
        Block(Outer())(X)
    assert paths == ["attn"]
    assert seen == ["attn"]


def test_two_trackers_in_two_threads():
    """Captures in two threads each see their own modules."""
    barrier = threading.Barrier(2)
    paths = {}

    def capture(name):
        tracker, seen, (leaf,) = looks(1)
        with tracker:
            barrier.wait()
            nn.ModuleDict({name: leaf})[name](X)
            nn.Sequential(*[nn.Identity()] * int(name), leaf)(X)
            barrier.wait()
        paths[name] = seen

    workers = [threading.Thread(target=capture, args=(name,)) for name in "12"]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert paths == {"1": ["", "1"], "2": ["", "2"]}


def test_nothing_is_left_behind():
    """After a capture torch has no global hooks of ours, so modules run at full speed."""
    tracker, _, (leaf,) = looks(1)
    with tracker:
        leaf(X)
    assert not nn.modules.module._has_any_global_hook()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_compiled_module_has_the_labels_of_an_eager_one(backend):
    """Compiling the whole model or one layer changes no path, and warns about nothing."""
    for compile_one in (False, True):
        torch.compiler.reset()
        tracker, seen, leaves = looks()
        net = Net(*leaves)
        if compile_one:
            net.layers[0] = torch.compile(net.layers[0], backend=backend)
            run = net
        else:
            run = torch.compile(net, backend=backend)
        with tracker:
            run(X)
        assert seen == ["layers.0.attn", "layers.1.attn"]


def test_calls_are_numbered_by_path():
    """The n-th handled call at a path is number n, from 0."""
    tracker, _, _ = looks(0)
    labeller = Labeller(tracker, None)

    class Attn(nn.Module):
        def forward(self, x):
            labels.append(labeller.next(CALL))
            labels.append(labeller.next(CALL))
            return x

    labels = []
    with tracker:
        Net(Attn(), Attn())(X)
        labels.append(labeller.next(CALL))
    assert labels == ["layers.0.attn#0", "layers.0.attn#1", "layers.1.attn#0", "layers.1.attn#1", "#0"]


def test_labels_of_ones_own():
    """A function of the call gives the path; the numbers are still ours."""
    labeller = Labeller(ModuleTracker(), lambda call: call.name.partition("::")[0])
    assert [labeller.next(CALL), labeller.next(CALL)] == ["nstest#0", "nstest#1"]


@pytest.mark.parametrize(("label", "path"), [("a.b#0", "a.b"), ("#3", ""), ("a#b#12", "a#b")])
def test_the_path_of_a_label(label, path):
    """A path is a label without its number."""
    assert path_of(label) == path
