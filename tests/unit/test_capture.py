"""The session's dispatch mode, on its own: what it sees, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from npugraph_strategies._capture import CaptureMode
from support.story import STORY, attn

Q = torch.arange(3.0)


class Seen:
    """A recorder that runs handled operators and notes them."""

    def __init__(self):
        self.launched = 0
        self.ops = []

    def capture(self, handler, op, args, kwargs):
        """Note and run."""
        assert handler is STORY[op]
        self.ops.append(str(op))
        return op(*args, **kwargs)


def test_handled_operators_go_to_the_recorder_and_others_run() -> None:
    """The mode hands over what has a handler and counts everything."""
    seen = Seen()
    with CaptureMode(STORY.table, seen):
        out = attn(Q * 2, lens=[1]) + 1
    assert torch.equal(out, Q * 2 + 11)
    assert seen.ops == ["story.attn.default"]
    assert seen.launched == 3
    assert _get_current_dispatch_mode_stack() == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_code_stays_compiled(backend) -> None:
    """Under the mode a compiled function is compiled all the same, and its handled operators are seen."""
    torch._dynamo.reset()
    seen, compiled = Seen(), []

    def counting(module, inputs):
        compiled.append(module)
        return torch._dynamo.lookup_backend(backend)(module, inputs)

    function = torch.compile(lambda x: attn(x * 2, lens=[1]) + 1, backend=counting, fullgraph=True)
    for _ in range(2):
        with CaptureMode(STORY.table, seen):
            out = function(Q)
        assert torch.equal(out, Q * 2 + 11)
    assert len(compiled) == 1
    assert seen.ops == ["story.attn.default"] * 2


def test_higher_order_operators_run_under_the_mode() -> None:
    """`torch.cond` and its kin are not refused."""
    seen = Seen()

    def branch(x):
        return attn(x, lens=[1]).clone()

    with CaptureMode(STORY.table, seen):
        out = torch.cond(torch.tensor(True), branch, lambda x: x.clone(), (Q,))
    assert torch.equal(out, Q + 10)


def test_a_backward_pass_is_seen() -> None:
    """Operators of a backward pass go through the mode too."""
    seen = Seen()
    x = Q.clone().requires_grad_()
    with CaptureMode(STORY.table, seen):
        (x * x).sum().backward()
    assert torch.equal(x.grad, 2 * Q)
    assert seen.launched > 2
