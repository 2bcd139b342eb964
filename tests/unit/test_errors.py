"""Errors: small frozen records in one tree, which pickle and say what to do."""

from __future__ import annotations

import copy
import pickle
import re

import attrs
import pytest

from npugraph_strategies import errors
from npugraph_strategies._pairing import add_note

CLASSES = [getattr(errors, name) for name in errors.__all__]
RECORDS = [cls for cls in CLASSES if attrs.has(cls)]
SAMPLES = {
    "str": "some text",
    "int": 7,
    "Any": "a handler",
    "tuple[str, ...]": ("first", "second"),
    "tuple[str, str]": ("a.*", "*.b"),
}


def sample(cls):
    """Make an error with a value of the right kind in every field."""
    return cls(*(SAMPLES[str(field.type)] for field in attrs.fields(cls)))


def drawn_tree():
    """Yield name, parent's name and builtin base of every line of the tree in the module's docstring."""
    above = {-1: None}
    for line in errors.__doc__.splitlines():
        match = re.match(r"    ([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?", line)
        if match and (match[1] or match[2] == "StrategiesError"):
            depth = len(match[1]) // 4
            above[depth] = match[2]
            yield match[2], above[depth - 1], match[3]


def test_the_drawn_tree_is_the_class_tree():
    """Every class stands in the docstring below its base, with its built-in base; nothing else does."""
    drawn = {name: (parent, builtin) for name, parent, builtin in drawn_tree()}
    real = {}
    for cls in CLASSES:
        ours = [base.__name__ for base in cls.__bases__ if base in CLASSES]
        builtin = [base.__name__ for base in cls.__bases__ if base not in CLASSES and base is not Exception]
        real[cls.__name__] = (ours[0] if ours else None, builtin[0] if builtin else None)
    assert drawn == real


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_one_of_ours(cls):
    """One base catches everything that the package raises."""
    assert issubclass(cls, errors.StrategiesError)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_fields_survive_pickling(cls):
    """An error that crosses a process boundary keeps its class, facts and sentence."""
    error = sample(cls)
    back = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(back) is cls
    assert attrs.astuple(back) == attrs.astuple(error)
    assert str(back) == str(error)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_fields_survive_copying(cls):
    """A copy has the same facts."""
    assert attrs.astuple(copy.copy(sample(cls))) == attrs.astuple(sample(cls))


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_errors_are_frozen(cls):
    """The facts of an error cannot be changed."""
    field = attrs.fields(cls)[0].name
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        setattr(sample(cls), field, "other")


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_the_sentence_is_not_a_repr(cls):
    """An error reads as a sentence that holds its facts, not as the quoted argument of a LookupError."""
    text = str(sample(cls))
    assert " " in text.strip("()'")
    assert text != Exception.__str__(sample(cls))
    assert not text.startswith(("(", f"{cls.__name__}("))
    for field in attrs.fields(cls):
        value = SAMPLES[str(field.type)]
        parts = value if isinstance(value, tuple) else (value,)
        assert all(str(part) in text for part in parts)


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_errors_take_causes_and_notes(cls):
    """A frozen error can still be chained, raised again and annotated."""
    with pytest.raises(cls) as caught:
        raise sample(cls) from ValueError("inner")
    add_note(caught.value, "in the middle of it")
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_close_name_is_suggested():
    """A misspelled name comes with the closest known one."""
    error = errors.UnknownParameter("context_len", "any record", ("context_lens", "block_table"))
    assert "did you mean 'context_lens'?" in str(error)


def test_a_far_name_is_not_suggested():
    """A name that resembles nothing comes with what is known, and no guess."""
    text = str(errors.UnknownParameter("xyz", "any record", ("context_lens",)))
    assert "did you mean" not in text
    assert "context_lens" in text


def test_long_lists_of_names_are_shortened():
    """A message shows the first names and how many more there are."""
    text = str(errors.GraphNotArmed("graph", tuple(f"layer.{i}" for i in range(20))))
    assert "layer.7" in text
    assert "layer.8" not in text
    assert "and 12 more" in text


def test_no_name_is_said_to_be_none():
    """An empty list of names reads as "none"."""
    assert "declared there: none" in str(errors.UnknownParameter("x", "this graph", ()))


def test_an_unknown_operator_says_what_to_do():
    """Without a better hint, the error says how operators get installed."""
    assert "reference.install()" in str(errors.UnknownOperator("npu::nope.default"))
