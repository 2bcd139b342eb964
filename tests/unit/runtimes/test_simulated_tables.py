"""The simulated device's codes and choices stand in one table each."""

from __future__ import annotations

import ast
from pathlib import Path

import attrs
import pytest

from npugraph_strategies.runtimes import _simulated
from npugraph_strategies.runtimes._codes import CODES, device_error
from npugraph_strategies.runtimes._simulated._choices import Choices

SOURCES = sorted(Path(_simulated.__file__).parent.glob("*.py"))


def test_every_code_used_is_in_the_table():
    """No module makes up a code, and every entry has a name, a cause and a remedy."""
    used = {
        node.value
        for source in SOURCES
        for node in ast.walk(ast.parse(source.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value > 100_000
    }
    assert used <= set(CODES)
    for code in CODES.values():
        assert all((code.name, code.cause, code.remedy))


def test_an_error_says_code_cause_and_remedy():
    """The sentence names what failed, CANN's code and name, and what to do."""
    assert str(device_error(107031, "beginning a capture")) == (
        "beginning a capture failed with error code 107031: the default stream cannot be captured "
        "(STREAM_CAPTURE_IMPLICIT); make a stream and enter it before the capture"
    )


def test_choices_are_a_value():
    """Choices compare, can be changed field by field, and never in place."""
    assert Choices() == Choices()
    assert attrs.evolve(Choices(), wait_consumes=False) != Choices()
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        Choices().wait_consumes = False


def test_the_public_names_are_real():
    """`__all__` is sorted and complete."""
    assert _simulated.__all__ == sorted(_simulated.__all__)
    assert all(hasattr(_simulated, name) for name in _simulated.__all__)
