"""Comparing handlers with installed schemas."""

from __future__ import annotations

import attrs
import pytest
import torch

from npugraph_strategies import HandlerRegistry, OpCall, OutVariant, UpdateParams, reference
from npugraph_strategies._check import first_use_problem
from npugraph_strategies._names import resolve
from npugraph_strategies._schema import signature_of
from npugraph_strategies.errors import RegistryMismatch
from npugraph_strategies.handlers import (
    ATTENTION,
    EmptyLike,
    HelperOutputs,
    MaxWorkspace,
    TokensPerSequence,
)
from npugraph_strategies.runtimes import SimulatedRuntime
from support import toys

ALLOCATES = "it allocates its result, which an update cannot reach; use OutVariant with an overload that takes it"


class Prepared(UpdateParams):
    """A handler that captures something else than it is called with."""

    def prepare_capture(self, call, runtime):
        del runtime
        return call


def problems(handler):
    """Return what a check finds wrong with a handler."""
    return [finding.problem for finding in HandlerRegistry.of(handler).check().wrong]


def test_the_builtin_handlers_fit():
    """Every shipped handler agrees with the schemas of torch_npu."""
    reference.install()
    report = ATTENTION.check()
    assert report.ok
    assert not report.not_installed
    assert {finding.op for finding in report.findings} == set(ATTENTION.ops)
    report.raise_for_errors()


@pytest.mark.parametrize("handler", [toys.ATTN, toys.SINGLE, toys.FILL], ids=["attn", "single", "fill"])
def test_the_toy_handlers_fit(handler):
    """The handlers of these tests fit their operators."""
    assert problems(handler) == []


def test_an_absent_operator_is_not_wrong():
    """What is not installed here cannot be compared, which is not a mistake."""
    report = HandlerRegistry.of(UpdateParams("nowhere::attention", "lengths")).check()
    assert report.ok
    assert [finding.op for finding in report.not_installed] == ["nowhere::attention.default"]
    report.raise_for_errors()


def test_a_wrong_overload_is_wrong():
    """An operator that is here, with other overloads, is a mistake that lists them."""
    (problem,) = problems(UpdateParams("nstest::attn.nope", "lens"))
    assert "it has default, out" in problem


def test_an_unknown_parameter_is_wrong():
    """A parameter that the schema lacks comes with a suggestion."""
    assert problems(UpdateParams("nstest::fill", "lense")) == ["no argument 'lense' (did you mean 'lens'?)"]


def test_a_rebind_of_a_number_is_wrong():
    """Only tensors can be exchanged for others."""
    assert problems(UpdateParams("nstest::attn.out", (), rebind="other")) == [
        "'other' is declared a rebind, but its type is int[]?, not Tensor"
    ]


def test_a_parameter_of_two_kinds_is_wrong():
    """A name is a host value or a rebind, not both."""
    assert problems(UpdateParams("nstest::fill", "table", rebind="table")) == [
        "'table' is declared both a host value and a rebind"
    ]


def test_a_written_parameter_is_wrong():
    """What the operator writes into is no host value."""
    assert "writes into it" in problems(UpdateParams("nstest::fill", "out"))[0]


def test_a_rule_about_another_operator_is_wrong():
    """A length rule that reads what the operator lacks is found."""
    rule = TokensPerSequence("lens", tokens="q", block_table="tables")
    assert problems(UpdateParams("nstest::fill", "lens", lengths=rule)) == [
        "length rule reads 'tables', which is no argument (did you mean 'table'?)"
    ]


def test_an_absent_helper_is_wrong():
    """A capture would need the helper, so its absence is reported where the operator is present."""
    handler = OutVariant(
        ("nstest::attn", "nstest::attn.out"),
        "lens",
        workspace=MaxWorkspace("nstest::nope"),
        outputs=(HelperOutputs("nstest::nada"),),
    )
    assert problems(handler) == [
        "helper nstest::nada.default is not installed",
        "helper nstest::nope.default is not installed",
    ]


def test_a_helper_that_wants_more_is_wrong():
    """A helper whose required argument the operator lacks cannot be called."""
    handler = UpdateParams("nstest::fill", "lens", workspace=MaxWorkspace("nstest::mix"))
    assert {"helper nstest::mix.default wants 'x', which is no argument of the operator"} <= set(problems(handler))


def test_an_absent_variant_is_wrong():
    """A handler of a variant that does not exist cannot capture."""
    handler = OutVariant(("nstest::mix", "nstest::mix.out"), "lens")
    assert "its out variant nstest::mix.out is not installed" in problems(handler)


def test_a_variant_of_another_operator_is_wrong():
    """The variant has to take everything that the allocating overload takes."""
    handler = OutVariant(("nstest::attn", "nstest::single.out"), "lens", outputs=(EmptyLike("out", like="q"),))
    assert "its out variant nstest::single.out lacks argument 'scale'" in problems(handler)


def test_an_output_that_nobody_makes_is_wrong():
    """Every argument that the variant adds has to be made."""
    handler = OutVariant(("nstest::single", "nstest::single.out"), "lens")
    assert problems(handler) == ["nothing makes 'out' of its out variant nstest::single.out"]


def test_an_output_made_from_nothing_is_wrong():
    """An output policy reads arguments of the allocating overload only."""
    handler = OutVariant(("nstest::single", "nstest::single.out"), "lens", outputs=(EmptyLike("out", like="query"),))
    assert problems(handler) == ["output 'out' is made from 'query', no argument"]


@pytest.mark.parametrize("handler", [toys.MIX, toys.LISTS], ids=["mix", "lists"])
def test_an_operator_that_allocates_its_result_is_wrong(handler):
    """An update would compute into memory that nothing captured reads."""
    assert problems(handler) == [ALLOCATES]


@pytest.mark.parametrize(
    ("op", "param"),
    [
        pytest.param("nstest::single.out", "lens", id="out"),
        pytest.param("nstest::attn.out", "lens", id="out-not-annotated"),
        pytest.param("aten::add_.Tensor", "alpha", id="in-place"),
        pytest.param("nstest::fill", "lens", id="returns-nothing"),
        pytest.param("aten::_linalg_check_errors", "is_matrix", id="neither-writes-nor-returns"),
    ],
)
def test_an_operator_that_allocates_nothing_fits(op, param):
    """What the operator computes lies in its arguments, so an update reaches it."""
    assert problems(UpdateParams(op, param)) == []


def test_a_handler_that_prepares_its_capture_may_serve_any_operator():
    """What a handler of one's own captures instead cannot be read from a schema."""
    assert problems(Prepared("nstest::mix", "lens")) == []


def test_wrong_handlers_raise_on_request():
    """All problems are raised at once, each with its operator."""
    report = HandlerRegistry.of(UpdateParams("nstest::fill", ("a", "b"))).check()
    assert not report.ok
    with pytest.raises(RegistryMismatch) as caught:
        report.raise_for_errors()
    assert len(caught.value.problems) == 2
    assert all(problem.startswith("nstest::fill.default: ") for problem in caught.value.problems)


@pytest.mark.parametrize("handler", [toys.ATTN, toys.SINGLE, toys.FILL, *ATTENTION], ids=lambda handler: handler.ops[0])
def test_names_that_fit_have_no_problem_at_first_use(handler):
    """The names of a handler that fits are in every overload that it may capture."""
    reference.install()
    assert [first_use_problem(handler, signature_of(resolve(op))) for op in handler.ops] == [None] * len(handler.ops)


@pytest.mark.parametrize("field", ["params", "rebind"])
def test_an_unknown_name_is_found_at_first_use(field):
    """A misspelled name is told from the prepared call, with the overload that is captured."""
    handler = attrs.evolve(toys.ATTN, **{field: "othr"})
    prepared = handler.prepare_capture(OpCall.bind("nstest::attn", (torch.ones(3), [1])), SimulatedRuntime())
    assert first_use_problem(handler, prepared.signature) == (
        "nstest::attn.out: no argument 'othr' (did you mean 'other'?)"
    )


def test_a_name_of_the_out_overload_is_known_at_first_use():
    """What only the captured overload takes may be declared."""
    handler = attrs.evolve(toys.ATTN, rebind="workspace")
    assert first_use_problem(handler, signature_of(resolve("nstest::attn.out"))) is None


def test_a_name_of_two_kinds_is_found_at_first_use():
    """A name is a host value or a rebind, not both."""
    handler = UpdateParams("nstest::fill", "table", rebind="table")
    assert first_use_problem(handler, signature_of(resolve("nstest::fill"))) == (
        "nstest::fill.default: 'table' is declared both a host value and a rebind"
    )


def test_handlers_that_are_not_data_are_named():
    """A handler of a class that cannot be pickled is reported as no plain data, and is not wrong for that."""

    class Local(UpdateParams):
        """Cannot be pickled, since its class cannot be imported."""

    local = Local("aten::add.out", "alpha")
    report = HandlerRegistry.of(local, UpdateParams("aten::sub.out", "alpha")).check()
    assert report.ok
    assert report.not_data == (local,)
