"""Arbitrary torch code can be captured on the simulated device: exactly, or it is clearly refused."""

from __future__ import annotations

import copy
import threading
import warnings

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode

from npugraph_strategies.errors import DeviceError, NotCapturable
from npugraph_strategies.runtimes._simulated import Choices, SimulatedDevice, SimulatedRuntime

LIBRARY = torch.library.Library("simulated_test", "DEF")
LIBRARY.define("silent.out(Tensor q, *, Tensor out) -> Tensor")  # writes `out`, and does not say so
LIBRARY.define("need_get_workspace(Tensor q, int size) -> Tensor")
LIBRARY.define("same_get_workspace(Tensor(a) q) -> Tensor(a)")
LIBRARY.define("unknown(Tensor q) -> Tensor")


def _silent(q, *, out):
    return out.copy_(q + 1)


LIBRARY.impl("silent.out", _silent, "CPU")
LIBRARY.impl("need_get_workspace", lambda q, size: torch.full((size,), 7.0), "CPU")  # noqa: ARG005
LIBRARY.impl("same_get_workspace", lambda q: q[:1], "CPU")
LIBRARY.impl("unknown", lambda q: q[: int(q.sum().item())].clone(), "CPU")
torch.library.register_fake("simulated_test::silent.out", lambda q, *, out: out, lib=LIBRARY)  # noqa: ARG005


class Eager(TorchDispatchMode):
    """Run everything as ever."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def captured(code, runtime=None):
    runtime = runtime or SimulatedRuntime()
    graph = runtime.new_graph("decoder")
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        try:
            return graph, code()
        finally:
            graph.capture_end()


def exact(code):
    """Capture, replay twice and compare with eager, under a mode too: some of torch's own code asks for one."""
    graph, got = captured(code)
    for _ in range(2):
        graph.replay()
    with Eager():
        expected = code()
    torch.testing.assert_close(got, expected, rtol=0, atol=0)


def test_a_training_step():
    """Forward, backward and optimizer in one capture train as eager does, batch statistics included."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    nets = [net, copy.deepcopy(net)]
    optimizers = [torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in nets]
    x, y = torch.randn(16, 4), torch.randn(16, 1)

    def step(i):
        optimizers[i].zero_grad(set_to_none=True)
        loss = (nets[i](x) - y).square().mean()
        loss.backward()
        optimizers[i].step()
        return loss.detach()

    assert torch.equal(step(0), step(1))
    graph, loss = captured(lambda: step(0))
    for _ in range(3):
        graph.replay()
        assert torch.equal(loss, step(1))
    for one, two in zip(nets[0].state_dict().values(), nets[1].state_dict().values(), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("grad", [False, True])
def test_an_lstm(grad):
    """Its kernel computes the last bit differently when gradients are on; a replay does as the capture did."""
    torch.manual_seed(0)
    net, x = nn.LSTM(3, 5, 2), torch.randn(4, 2, 3)
    with torch.set_grad_enabled(grad):
        exact(lambda: net(x)[0].detach() * 1)


def test_an_lstm_s_backward():
    """The workspace of which torch's fake kernel knows nothing is captured at its real size."""
    torch.manual_seed(0)
    nets = [nn.LSTM(3, 5, 2)]
    nets.append(copy.deepcopy(nets[0]))
    x = torch.randn(4, 2, 3)

    def step(net):
        net(x)[0].square().sum().backward()

    graph, _ = captured(lambda: step(nets[0]))
    graph.replay()
    step(nets[1])
    for one, two in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert torch.equal(one.grad, two.grad)


def test_attention_and_normalisation_under_inference_mode():
    """Composite operators that arrive undecomposed are captured as they are."""
    torch.manual_seed(0)
    layer, x = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), torch.randn(2, 5, 8)
    with torch.inference_mode():
        exact(lambda: layer(x).to(torch.float64).reshape(5, 16)[:, ::3])


def test_function_transforms():
    """vmap, grad and jvp are taken apart before the device sees anything."""
    x = torch.randn(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # torch scripts its own decompositions for jvp
        exact(lambda: torch.func.jvp(lambda v: v.sin() * v, (x,), (torch.ones_like(x),)))
    exact(lambda: torch.vmap(lambda v: v @ v + v.sin().sum())(x))
    exact(lambda: torch.func.vmap(torch.func.grad(lambda v: v.sin().sum()))(x))


def test_foreach():
    """Lists of tensors, written in place and returned afresh."""
    xs = [torch.ones(3), torch.ones(2, 2)]

    def code():
        torch._foreach_add_(xs, 1.0)
        return torch._foreach_sqrt(torch._foreach_mul(xs, xs))

    graph, ys = captured(code)
    for value in (2.0, 3.0):
        graph.replay()
        assert all((y == value).all() for y in ys)
    assert graph.task_count == 3


def test_out_is_resized():
    """An ``out=`` of no size gets its size at capture, its values at replay, and is what is returned."""
    x, out = torch.ones(3), torch.empty(0)
    graph, result = captured(lambda: torch.add(x, x, out=out))
    assert result is out
    assert out.isnan().all()
    graph.replay()
    assert out.tolist() == [2, 2, 2]
    assert graph.task_count == 1


def test_overlapping_views():
    """In-place work through one alias is seen through the others."""
    base = torch.zeros(6)

    def code():
        base[1:4].add_(1)
        base.view(2, 3)[:, 0] += base[1:3]
        base.t_()
        return base.clone()

    graph, got = captured(code)
    graph.replay()
    assert got.tolist() == base.tolist() == [1, 1, 1, 2, 0, 0]


def test_set_and_resize_take_effect_at_once():
    """What changes a tensor's metadata happens during the capture, as on the device."""
    x, y = torch.ones(4), torch.zeros(0)

    def code():
        y.set_(x.untyped_storage(), 1, (2,), (1,))
        return y * 2

    graph, z = captured(code)
    assert y.shape == (2,)
    graph.replay()
    assert z.tolist() == [2, 2]


def test_conjugates_and_complex_views():
    """Lazy conjugation and negation bits are mirrored."""
    z = torch.randn(3, dtype=torch.complex64)
    exact(lambda: (z.conj() * z).real + z.conj().imag)


def test_autocast_is_captured_not_replayed():
    """The casts of the capture are replayed, whatever autocast says then."""
    net, x = nn.Linear(3, 3), torch.randn(2, 3)

    def code():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return net(x).detach()

    graph, y = captured(code)
    plain, z = captured(lambda: net(x).detach())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        graph.replay()
        plain.replay()
    assert torch.equal(y, code())
    assert torch.equal(z, net(x))


def test_random_numbers_are_drawn_afresh():
    """A replay draws from torch's generator; capturing draws nothing."""
    torch.manual_seed(1)
    first = torch.rand(3)
    torch.manual_seed(1)
    graph, (x, mask) = captured(lambda: (torch.rand(3), nn.functional.dropout(torch.ones(64))))
    graph.replay()
    assert torch.equal(x, first)
    seen = mask.clone()
    graph.replay()
    assert not torch.equal(x, first)
    assert not torch.equal(mask, seen)


def test_a_compiled_module_runs_eagerly():
    """Compiled code would call its kernels behind the recorder's back, so it is not used under a capture."""
    net, x = nn.Linear(3, 3), torch.randn(2, 3)
    compiled = torch.compile(net, backend="eager")
    compiled(x)
    graph, y = captured(lambda: compiled(x).detach())
    graph.replay()
    assert torch.equal(y, net(x))


def test_autograd_threads_belong_to_the_capture():
    """The recorder counts what its own modes launch from another thread."""
    x = torch.ones(2)

    def code():
        results, state = [], _get_current_dispatch_mode()

        def work():
            with state:
                results.append(x * 3)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        return results[0]

    graph, y = captured(code)
    assert y.isnan().all()
    graph.replay()
    assert y.tolist() == [3, 3]


def test_an_out_that_is_not_annotated_is_a_task():
    """An operator that writes silently is captured, not taken for a view."""
    q, out = torch.ones(2), torch.zeros(2)
    graph, result = captured(lambda: torch.ops.simulated_test.silent.out(q, out=out))
    assert result is out
    assert out.tolist() == [0, 0]
    graph.replay()
    assert out.tolist() == [2, 2]
    assert graph.task_count == 1


def test_helpers_run_at_capture_and_their_outputs_are_the_graph_s():
    """Operators that must return real tensors do, and are no tasks; what the tensors hold is not to be read."""
    runtime, q = SimulatedRuntime(), torch.ones(2)
    graph, workspace = captured(lambda: torch.ops.simulated_test.need_get_workspace(q, 4), runtime)
    assert workspace.shape == (4,)
    assert workspace.isnan().all()
    assert graph.task_count == 0
    assert runtime.in_pool(graph, workspace)
    workspace.fill_(1)
    graph.replay()
    assert workspace.tolist() == [1] * 4


def test_what_a_helper_is_given_stays_the_caller_s():
    """A helper that returns its argument makes nothing, so nothing is poisoned and the graph owns nothing."""
    runtime, q = SimulatedRuntime(), torch.ones(2)
    graph, same = captured(lambda: torch.ops.simulated_test.same_get_workspace(q), runtime)
    assert q.tolist() == [1, 1]
    assert graph.task_count == 0
    assert same.data_ptr() == q.data_ptr()
    assert not runtime.in_pool(graph, same)


def test_which_helpers_run_is_a_choice():
    """A device without helpers captures them like anything else."""
    runtime = SimulatedRuntime(SimulatedDevice(choices=Choices(runs_at_capture=("_infer_output",))))
    with pytest.raises(DeviceError, match="need_get_workspace"):
        captured(lambda: torch.ops.simulated_test.need_get_workspace(torch.ones(2), 4), runtime)


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (lambda x: x.sum().item(), "_local_scalar_dense"),
        (lambda x: bool(x.any()), "_local_scalar_dense|is_nonzero"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: x[x > 0], "index"),
        (lambda x: x.unique(), "unique"),
        (lambda x: torch.equal(x, x), "equal"),
        (lambda x: torch.linalg.inv(torch.eye(2) + x[0]), "_linalg_check_errors"),
        (lambda x: x.to_sparse(), "sparse"),
        (lambda x: x.to("meta"), "meta"),
        (lambda x: torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,)), "cond"),
        (lambda x: torch._efficientzerotensor((3,)) * x, "zero"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "quantize"),
        (torch.ops.simulated_test.unknown, "unknown"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_what_needs_the_host_is_refused_by_name(code, name):
    """Nothing is captured wrongly: an operator that cannot be captured says so."""
    runtime, x = SimulatedRuntime(), torch.ones(3)
    graph = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        with pytest.raises(NotCapturable, match=name):
            code(x)
        with pytest.raises(DeviceError, match="507903"):
            graph.capture_end()


def test_refusals_may_leave_the_capture_alone():
    """Whether a refusal spoils the capture is a choice."""
    runtime = SimulatedRuntime(SimulatedDevice(choices=Choices(refusal_invalidates=False)))

    def code():
        with pytest.raises(NotCapturable):
            torch.ones(1).item()
        return torch.ones(1) + 1

    graph, x = captured(code, runtime)
    graph.replay()
    assert x.item() == 2
