"""Laws of handlers: preparing and updating give new calls, and only what was declared changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from npugraph_strategies import OpCall
from npugraph_strategies._handlers import updatable
from npugraph_strategies._values import host_value, same_value
from npugraph_strategies.errors import InvalidValue, OperatorRejected, UnknownParameter
from npugraph_strategies.handlers import FIA_V1, MLA, PAGED_ATTENTION
from npugraph_strategies.runtimes import SimulatedRuntime
from support import toys
from support.families import CASES, FUSED, HEADS, NAMES, fused, latent, paged

QUICK = settings(max_examples=60, deadline=None)
RUNTIME = SimulatedRuntime()
Q = torch.arange(3.0)
lengths = st.lists(st.integers(0, 9), min_size=1, max_size=4)


def attn(*, out=False, **kwargs):
    call = OpCall.bind("nstest::attn", (Q, [1]), kwargs)
    return call.replace("nstest::attn.out", out=[torch.empty(3), torch.empty(kwargs.get("heads", 1))]) if out else call


def fill(**kwargs):
    return OpCall.bind("nstest::fill", (Q, torch.tensor([2]), torch.zeros(1), torch.zeros(3)), kwargs)


# Calls of every family, fresh for each example, each with its handler.
ALL = {
    **CASES,
    "toy": (toys.ATTN, attn),
    "toy, more": (toys.ATTN, lambda: attn(heads=2, other=[3])),
    "toy, out": (toys.ATTN, lambda: attn(out=True)),
    "toy, single": (toys.SINGLE, lambda: OpCall.bind("nstest::single", (Q, [1]))),
    "toy, written": (toys.FILL, fill),
    "toy, workspace": (toys.FILL, lambda: fill(workspace=torch.empty(9, dtype=torch.uint8))),
}
cases = st.sampled_from(sorted(ALL))


def frozen(call):
    """Return a call's arguments: their objects, and what is in them."""
    return {n: (id(v), repr(v)) for n, v in call.arguments.items()}


@pytest.mark.parametrize("case", ALL)
def test_preparing_leaves_its_input_unchanged(case):
    """The call that is prepared keeps its operator, its arguments and their contents."""
    handler, build = ALL[case]
    call = build()
    op, before = call.op, frozen(call)
    handler.prepare_capture(call, RUNTIME)
    assert call.op is op
    assert frozen(call) == before


@pytest.mark.parametrize("case", ALL)
def test_preparing_is_idempotent(case):
    """A prepared call is prepared to itself: default gives out, out gives out, with the same outputs and workspace."""
    handler, build = ALL[case]
    once = handler.prepare_capture(build(), RUNTIME)
    twice = handler.prepare_capture(once, RUNTIME)
    assert twice.op is once.op
    assert all(twice.arguments[n] is once.arguments[n] for n in once.arguments)


@pytest.mark.parametrize("case", ALL)
def test_preparing_serves_its_own_operators(case):
    """What is captured is an operator that the handler serves, so that its updates are too."""
    handler, build = ALL[case]
    assert handler.prepare_capture(build(), RUNTIME).name in handler.ops


@st.composite
def updates(draw, handler):
    """Draw values for some of a handler's parameters."""
    names = draw(st.lists(st.sampled_from(handler.params), unique=True))
    return {name: tuple(draw(lengths)) for name in names}


@QUICK
@given(cases, st.data())
def test_an_update_changes_only_what_it_names(case, data):
    """All arguments but those named stay the same objects, and the call that was updated stays as it was."""
    handler, build = ALL[case]
    call = build()
    values = data.draw(updates(handler))
    before = frozen(call)
    updated = handler.update_args(call, values)
    assert updated.op is call.op
    assert {n: updated.arguments[n] for n in values} == values
    assert all(updated.arguments[n] is call.arguments[n] for n in call.arguments if n not in values)
    assert frozen(call) == before


@QUICK
@given(cases, st.data())
def test_two_updates_are_one_merged_update(case, data):
    """Updating twice is updating once with the later values on top."""
    handler, build = ALL[case]
    call = build()
    first, second = data.draw(updates(handler)), data.draw(updates(handler))
    twice = handler.update_args(handler.update_args(call, first), second)
    once = handler.update_args(call, {**first, **second})
    assert all(twice.arguments[n] is once.arguments[n] for n in call.arguments)


@QUICK
@given(cases, st.data())
def test_the_same_value_changes_nothing(case, data):
    """Updating with the values that stand, through their snapshots, gives a call that the operator cannot tell."""
    handler, build = ALL[case]
    call = handler.prepare_capture(build(), RUNTIME)
    names = data.draw(st.lists(st.sampled_from(handler.params), unique=True))
    values = {n: host_value(call, n, call.arguments[n]) for n in names}
    updated = handler.update_args(call, values)
    assert all(same_value(updated.arguments[n], call.arguments[n]) for n in handler.params)
    assert all(updated.arguments[n] is call.arguments[n] for n in call.arguments if n not in names)


@QUICK
@given(cases, st.data())
def test_an_undeclared_name_changes_nothing(case, data):
    """Any argument that is not declared is refused, alone and among declared ones."""
    handler, build = ALL[case]
    call = build()
    name = data.draw(st.sampled_from([n for n in (*call.arguments, "other_name") if n not in updatable(handler)]))
    with pytest.raises(UnknownParameter):
        handler.update_args(call, {**data.draw(updates(handler)), name: None})


@QUICK
@given(lengths, st.none() | lengths)
def test_an_update_gives_what_eager_gives(lens, other):
    """A captured call with new values computes what the operator computes with them, defaults at capture included."""
    prepared = toys.ATTN.prepare_capture(attn(), RUNTIME)
    updated = toys.ATTN.update_args(prepared, {"lens": lens, "other": other})
    torch.testing.assert_close(updated(), torch.ops.nstest.attn(Q, lens, other=other))


@QUICK
@given(st.lists(st.integers(1, 200), min_size=1, max_size=6))
def test_a_growing_workspace_always_fits(needs):
    """Through any sequence of lengths the workspace fits, and all that were made are less than twice the last."""
    call = toys.FILL.prepare_capture(fill(), RUNTIME)
    sizes = [call.arguments["workspace"].nbytes]
    for length in needs:
        call = toys.FILL.prepare_update(toys.FILL.update_args(call, {"lens": torch.tensor([length])}), RUNTIME)
        call()  # the operator refuses a workspace that is too small
        if call.arguments["workspace"].nbytes != sizes[-1]:
            sizes.append(call.arguments["workspace"].nbytes)
    assert sum(sizes) < 2 * sizes[-1] or len(sizes) == 1


# -- a rule refuses exactly what the operator would refuse: the reference kernel is the oracle ------------------------

some = st.lists(st.integers(-1, 6), max_size=4)


def accepted_by_kernel(call):
    """Tell whether the reference kernel takes the call."""
    try:
        call()
    except OperatorRejected:
        return False
    return True


def accepted_by_rule(handler, call, values):
    """Tell whether the handler takes the values."""
    try:
        handler.validate_update(call, values)
    except InvalidValue:
        return False
    return True


@st.composite
def fused_updates(draw):
    """Draw a call of fused attention in any layout, and lengths that may fit or not."""
    handler = draw(st.sampled_from(FUSED))
    layout = draw(st.sampled_from(["BSND", "BNSD", "BSH", "TND", "BSND_BNSD"]))
    batch, rows = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    shape = {"BSND": (batch, rows, 1, 4), "BNSD": (batch, 1, rows, 4), "BSH": (batch, rows, 4), "TND": (4, 1, 4)}
    blocks = draw(st.sampled_from([None, (batch, 2)]))
    call = fused(handler, layout, shape=shape[layout.partition("_")[0]], keys=5, blocks=blocks)
    ends = st.lists(st.integers(0, 4), min_size=batch - 1, max_size=batch - 1).map(lambda cuts: [*sorted(cuts), 4])
    each = st.lists(st.integers(0, 4), min_size=batch, max_size=batch)
    values = (st.none() | some | ends | each) if draw(st.booleans()) else (ends if layout == "TND" else each)
    return handler, call, dict(zip(NAMES[handler], (draw(values), draw(values)), strict=True))


@settings(QUICK, max_examples=400)
@given(fused_updates())
def test_fused_lengths_are_judged_as_the_operator_does(drawn):
    """The rule of fused attention takes exactly the lengths that the kernel takes."""
    handler, call, values = drawn
    assert accepted_by_rule(handler, call, values) == accepted_by_kernel(call.replace(**values))


@settings(QUICK, max_examples=150)
@given(st.integers(1, 3), st.integers(0, 2), some)
def test_paged_lengths_are_judged_as_the_operator_does(batch, extra, lens):
    """The rule of paged attention takes exactly the lengths that the kernel takes, padded tables included."""
    call = paged([1] * batch, batch=batch, rows=batch + extra)
    values = {"context_lens": torch.tensor(lens, dtype=torch.int32)}
    assert accepted_by_rule(PAGED_ATTENTION, call, values) == accepted_by_kernel(call.replace(**values))


@settings(QUICK, max_examples=150)
@given(st.sampled_from(["default", "lse"]), st.integers(1, 4), st.integers(1, 3), some, st.none() | some)
def test_latent_lengths_are_judged_as_the_operator_does(overload, tokens, rows, lens, queries):
    """The rules of latent attention take exactly the lengths that the kernel takes."""
    call = latent(overload, [1] * rows, tokens=tokens, rows=rows)
    values = {"context_lens": lens, "qseqlen": queries}
    assert accepted_by_rule(MLA, call, values) == accepted_by_kernel(call.replace(**values))


def test_every_declared_parameter_is_judged_or_free():
    """What a handler calls a parameter, its operators have as an argument."""
    for handler, build in CASES.values():
        call = handler.prepare_capture(build(), RUNTIME)
        assert set(updatable(handler)) <= set(call.arguments)
    assert set(HEADS) == set(FUSED)
    assert FIA_V1.params[:2] == NAMES[FIA_V1]
