"""Begin and end stay paired, and the first error is the one to see."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from npugraph_strategies import _pairing
from npugraph_strategies._pairing import Paired, add_note
from npugraph_strategies.errors import DeviceError

NOTES = sys.version_info >= (3, 11)


class Device:
    """Counts what is open; begin and end fail as told, before or after they have taken effect."""

    def __init__(self, *, begin=(), end=()):
        self.open = 0
        self.calls = []
        self._failures = {"begin": list(begin), "end": list(end)}

    def begin(self):
        self._do("begin", 1)

    def end(self):
        self._do("end", -1)
        return "handle"

    def _do(self, name, change):
        self.calls.append(name)
        failure = self._failures[name].pop(0) if self._failures[name] else None
        if failure is None or failure.effective:
            self.open = max(0, self.open + change)
        if failure is not None:
            raise failure

    def paired(self):
        return Paired(self.begin, self.end)


class Failure(RuntimeError):
    """A primitive's failure; effective when what was asked has happened all the same."""

    def __init__(self, text, *, effective=False):
        super().__init__(text)
        self.effective = effective


def notes(error):
    return getattr(error, "__notes__", [])


def test_begin_and_end_are_called_once():
    """Without failures each is called once, and the result of end can be read."""
    device = Device()
    with device.paired() as pair:
        assert device.open == 1
    assert device.calls == ["begin", "end"]
    assert pair.result == "handle"


def test_an_error_in_the_body():
    """The pair is closed and the body's error goes on."""
    device = Device()
    with pytest.raises(ZeroDivisionError), device.paired():
        1 / 0  # noqa: B018 - it raises
    assert device.calls == ["begin", "end"]
    assert device.open == 0


@pytest.mark.parametrize("effective", [False, True])
def test_begin_fails(effective):
    """A begin that fails may have taken effect, so the end is tried; its own answer does not matter."""
    device = Device(begin=[Failure("begin", effective=effective)], end=[Failure("nothing open")])
    with pytest.raises(Failure, match="begin"), device.paired():
        pytest.fail("the body ran")
    assert device.calls == ["begin", "end"]


def test_begin_fails_and_has_taken_effect():
    """What a failed begin has opened is closed again."""
    device = Device(begin=[Failure("begin", effective=True)])
    with pytest.raises(Failure, match="begin"), device.paired():
        pytest.fail("the body ran")
    assert device.open == 0


def test_end_fails():
    """A failed end is raised, after one more try."""
    device = Device(end=[Failure("end")])
    with pytest.raises(Failure, match="end"), device.paired():
        pass
    assert device.calls == ["begin", "end", "end"]
    assert device.open == 0


def test_end_fails_twice():
    """When the second try fails as well, the first failure is the one to see."""
    device = Device(end=[Failure("first"), Failure("second")])
    with pytest.raises(Failure, match="first"), device.paired():
        pass


def test_body_and_end_fail():
    """The body's error is raised; the later one is a note on it, where Python has notes."""
    device = Device(end=[Failure("end")])
    with pytest.raises(ZeroDivisionError) as caught, device.paired():
        1 / 0  # noqa: B018 - it raises
    assert notes(caught.value) == (["while cleaning up, this failed too: end"] if NOTES else [])
    assert device.open == 0


def test_a_frozen_error_takes_the_note():
    """Our own errors are frozen, and still can be annotated."""
    device = Device(end=[Failure("end")])
    with pytest.raises(DeviceError) as caught, device.paired():
        raise DeviceError(107033, "launching", "busy")
    assert len(notes(caught.value)) == NOTES


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_closes_the_pair(interruption):
    """Whatever ends the body, the pair is closed."""
    device = Device()
    with pytest.raises(interruption), device.paired():
        raise interruption
    assert device.open == 0


def test_pairs_nest():
    """An error passes through nested pairs, and closes all of them."""
    outer, inner = Device(), Device(end=[Failure("inner end")])
    with pytest.raises(ZeroDivisionError), outer.paired(), inner.paired():
        1 / 0  # noqa: B018 - it raises
    assert (outer.open, inner.open) == (0, 0)


def test_without_notes_the_error_is_unchanged(monkeypatch):
    """Python 3.10 has no notes: adding one does nothing, and the error still goes on."""
    monkeypatch.setattr(_pairing, "sys", SimpleNamespace(version_info=(3, 10, 14)))
    error = ValueError("first")
    add_note(error, "later")
    assert notes(error) == []


def test_there_is_no_result_before_the_end():
    """The result of end does not exist while the pair is open."""
    with Device().paired() as pair, pytest.raises(IndexError):
        pair.result  # noqa: B018 - it raises
