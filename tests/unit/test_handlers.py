"""Handlers: the hooks of the two generic values, and the built-in ones."""

from __future__ import annotations

import pickle

import attrs
import pytest
import torch

from npugraph_strategies import OpCall, OutVariant, UpdateParams
from npugraph_strategies._handlers import updatable
from npugraph_strategies.errors import BadArguments, InvalidValue, UnknownParameter
from npugraph_strategies.handlers import BUILTIN, FIA_V1, MLA, EmptyLike, MaxWorkspace
from npugraph_strategies.runtimes import SimulatedRuntime
from support import toys
from support.families import CASES, FUSED, fused, latent

RUNTIME = SimulatedRuntime()
Q = torch.arange(3.0)


def attn(*, lens=(1, 2), **kwargs):
    return OpCall.bind("nstest::attn", (Q, list(lens)), kwargs)


def fill(table):
    return OpCall.bind("nstest::fill", (Q, torch.tensor([2]), table, torch.zeros(3)))


@pytest.mark.parametrize("spelling", ["my::op", "my::op.default", ("my::op",), ["my::op.default"]])
def test_operators_in_any_spelling(spelling):
    """A handler's operators are kept as qualified names."""
    assert UpdateParams(spelling, "lengths").ops == ("my::op.default",)


def test_operators_as_objects():
    """Overloads and packets mean their names, alone and in a sequence."""
    relu = torch.ops.aten.relu
    assert UpdateParams(relu, ()) == UpdateParams([relu.default], ()) == UpdateParams("aten::relu", ())


def test_variants_as_objects():
    """Variants may be given as overloads."""
    single = torch.ops.nstest.single
    assert OutVariant((single, single.out), "lens") == OutVariant(("nstest::single", "nstest::single.out"), "lens")


@pytest.mark.parametrize(
    "variants",
    [
        "my::op",
        torch.ops.aten.relu,
        ("my::op",),
        ("my::op", "my::op.out", "my::op.other"),
        ("my::op", ("my::op", "my::op.out")),
        (("my::op", "my::op.out"), "my::op.out"),
        [("my::op", "my::op.out", "my::op.other")],
        ["ab"],
        3,
        None,
    ],
    ids=repr,
)
def test_variants_are_pairs(variants):
    """One name, or anything but pairs of names, is refused with what is wanted."""
    with pytest.raises(TypeError, match=r"variants must be \(overload, its out overload\) pairs; given"):
        OutVariant(variants, "lengths")


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("lengths", "names, check"),
        ("workspace", "names, helper, at_capture, at_update"),
        ("outputs", "into, names, helper, allocate"),
    ],
)
@pytest.mark.parametrize("wrong", ["q", 3, None, {}], ids=repr)
def test_what_is_no_policy(field, names, wrong):
    """A policy or rule that lacks what the hooks use is refused where it is given."""
    wrong = [wrong] if wrong == {} else wrong
    with pytest.raises(TypeError, match=f"{field} must have {names}; given .*, which lacks {names}"):
        OutVariant(("my::op", "my::op.out"), "lengths", **{field: wrong})


def test_a_policy_is_an_instance():
    """A class is not taken for one of its instances."""
    with pytest.raises(TypeError, match="workspace must be an instance; given the class"):
        UpdateParams("my::op", "lengths", workspace=MaxWorkspace)


def test_one_policy_or_several():
    """A single output policy or rule may be given as it is, several in any iterable."""
    one = OutVariant(("my::op", "my::op.out"), "lengths", outputs=EmptyLike("out", like="q"))
    assert one.outputs == (EmptyLike("out", like="q"),)
    assert attrs.evolve(one, outputs=iter(one.outputs)) == one


def test_variants_are_served_once_each():
    """Two variants into one overload give each operator once, in order."""
    handler = OutVariant((("my::op", "my::op.out"), ("my::op.other", "my::op.out")), "lengths")
    assert handler.ops == ("my::op.default", "my::op.out", "my::op.other")


def test_updatable_names_are_params_and_rebinds():
    """An update may give host values and rebinds."""
    assert updatable(toys.FILL) == ("lens", "table")


@pytest.mark.parametrize("handler", list(BUILTIN), ids=lambda handler: handler.ops[0])
def test_handlers_are_values(handler):
    """A built-in handler survives pickling, equal and with the same hash."""
    back = pickle.loads(pickle.dumps(handler))  # noqa: S301 - our own bytes
    assert back == handler
    assert hash(back) == hash(handler)


@pytest.mark.parametrize("handler", list(BUILTIN), ids=lambda handler: handler.ops[0])
def test_handlers_are_frozen(handler):
    """A handler cannot be changed."""
    with pytest.raises(AttributeError):
        handler.params = ()


def test_every_call_is_handled_by_default():
    """A generic handler records every call of its operators."""
    assert toys.ATTN.should_handle(attn())


def test_a_subclass_overrides_a_hook():
    """Where behaviour differs, a subclass of a generic handler says so; it is still a value."""

    class Picky(UpdateParams):
        def should_handle(self, call):
            return call.arguments["flag"]

    assert not Picky("nstest::mix", "lens").should_handle(OpCall.bind("nstest::mix", (Q, [1])))
    assert Picky("nstest::mix", "lens") == Picky("nstest::mix.default", ("lens",))


@pytest.mark.parametrize("case", CASES)
def test_prepared_calls_give_what_eager_gives(case):
    """The prepared call of every built-in family runs, and gives the structure and values of the eager one."""
    handler, build = CASES[case]
    call = build()
    eager = call()
    prepared = handler.prepare_capture(call, RUNTIME)
    result = handler.postprocess_result(prepared, prepared())
    assert type(result) is type(eager)
    if eager is None:
        eager, result = call.arguments["out"], prepared.arguments["out"]
    torch.testing.assert_close(result, eager)


def test_a_list_of_outputs_gives_the_structure_of_eager():
    """A variant that writes into a list returns the pair that the allocating overload returns."""
    prepared = toys.ATTN.prepare_capture(attn(heads=2), RUNTIME)
    result = toys.ATTN.postprocess_result(prepared, prepared())
    torch.testing.assert_close(result, attn(heads=2)())


def test_only_what_the_variant_takes_is_made():
    """The latent family's variant without log-sum-exp gets no `lse`."""
    prepared = MLA.prepare_capture(latent(), RUNTIME)
    assert prepared.name == "atb::npu_multi_head_latent_attention.out"
    assert "lse" not in prepared.arguments


def test_an_output_that_nobody_makes():
    """A handler that forgot a policy is told where it belongs."""
    with pytest.raises(
        BadArguments, match=r"single\.out: nothing makes argument 'out': add a policy for it to outputs="
    ):
        attrs.evolve(toys.SINGLE, outputs=()).prepare_capture(OpCall.bind("nstest::single", (Q, [1])), RUNTIME)


def test_a_callers_own_outputs_are_kept():
    """A call of the out variant keeps its outputs, and gets the workspace that it lacks."""
    out = [torch.empty(3), torch.empty(1)]
    call = attn().replace("nstest::attn.out", out=out)
    prepared = toys.ATTN.prepare_capture(call, RUNTIME)
    assert prepared.arguments["out"] is out
    assert prepared.arguments["workspace"].numel() == 3


def test_updating_an_undeclared_name():
    """A name that the handler does not declare is refused, even if the operator has such an argument."""
    with pytest.raises(UnknownParameter) as caught:
        toys.ATTN.update_args(attn(), {"scale": 2.0})
    assert caught.value.known == ("lens", "other")


def test_updating_nothing():
    """An empty update gives the very same call."""
    call = attn()
    assert toys.ATTN.update_args(call, {}) is call


@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
def test_a_parameter_left_at_its_default_can_be_updated(handler):
    """What the dispatcher dropped at capture is updated by name like anything else."""
    call = fused(handler)
    name = handler.params[1]
    assert call.arguments[name] is None
    updated = handler.update_args(call, {name: (2, 3)})
    assert updated.arguments[name] == (2, 3)
    assert not torch.equal(updated()[0], call()[0])


def test_a_rebind_of_the_same_form():
    """Another tensor of the captured shape, dtype and device may take its place."""
    toys.FILL.validate_update(fill(torch.zeros(2)), {"table": torch.ones(2)})


@pytest.mark.parametrize(
    "value",
    [torch.zeros(3), torch.zeros(2, dtype=torch.int32), torch.zeros(2, device="meta"), [0.0, 0.0], None],
    ids=["shape", "dtype", "device", "list", "none"],
)
def test_a_rebind_of_another_form(value):
    """A tensor of another shape, dtype or device, or no tensor at all, is refused with the captured form."""
    with pytest.raises(InvalidValue, match=r"a torch.float32 tensor of shape \[2\], as captured"):
        toys.FILL.validate_update(fill(torch.zeros(2)), {"table": value})


def test_a_rebind_of_other_strides():
    """Where only the strides differ, the error shows them."""
    with pytest.raises(InvalidValue) as caught:
        toys.FILL.validate_update(fill(torch.zeros(2, 3)), {"table": torch.zeros(3, 2).t()})
    assert caught.value.expected == "a torch.float32 tensor of shape [2, 3] with strides [3, 1], as captured"
    assert caught.value.given == "a torch.float32 tensor of shape [2, 3] with strides [1, 2]"


def test_a_rebind_of_what_was_left_out():
    """A tensor that was not given at capture cannot be given later; None still can."""
    call = OpCall.bind("nstest::mix", (Q, [1]))
    toys.MIX.validate_update(call, {"extra": None})
    with pytest.raises(InvalidValue, match="left out, as captured"):
        toys.MIX.validate_update(call, {"extra": Q})


def test_a_rebind_of_a_list():
    """A list of tensors is compared tensor by tensor."""
    handler = UpdateParams("nstest::lists", "lens", rebind="xs")
    call = OpCall.bind("nstest::lists", ([Q, Q[:1]], []))
    handler.validate_update(call, {"xs": (Q + 1, Q[:1] + 1)})
    with pytest.raises(InvalidValue):
        handler.validate_update(call, {"xs": [Q]})


def test_validation_reads_the_whole_new_call():
    """Lengths are judged with the values that stand, so that those given together must fit together."""
    call = fused(FIA_V1, "TND", shape=(3, 1, 4), queries=[1, 3], lengths=[2, 5])
    with pytest.raises(InvalidValue, match="2 lengths"):
        FIA_V1.validate_update(call, {"actual_seq_lengths_kv": [5]})
    FIA_V1.validate_update(call, {"actual_seq_lengths": [3], "actual_seq_lengths_kv": [5]})


def test_validation_refuses_undeclared_names():
    """Validating says the same about names as updating."""
    with pytest.raises(UnknownParameter):
        toys.ATTN.validate_update(attn(), {"scale": 2.0})


def test_preparing_an_update_makes_room():
    """An update that needs a larger workspace gets one, by the handler's policy."""
    call = fill(torch.zeros(1)).replace(workspace=torch.empty(1, dtype=torch.uint8))
    assert toys.FILL.prepare_update(call, RUNTIME).arguments["workspace"].numel() == 2


def test_a_generator_stays_itself():
    """A random generator in a record is the caller's: a copy would repeat its numbers."""
    generator = torch.Generator()
    call = OpCall.bind("aten::bernoulli", (Q,), {"generator": generator})
    handler = UpdateParams("aten::bernoulli", ())
    assert handler.record_wrap_kwarg(call, "generator", generator, RUNTIME) is generator
