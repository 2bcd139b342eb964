"""The settings of the CANN simulator: their checks, and their way through the environment."""

from __future__ import annotations

import re
from pathlib import Path

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npugraph_strategies import errors
from npugraph_strategies.simulator import SimulatorConfig
from npugraph_strategies.simulator._build import SOURCES
from npugraph_strategies.simulator._config import settings

COUNTS = st.integers(1, 2**63 - 1)
NUMBERS = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
CONFIGS = st.builds(
    SimulatorConfig,
    devices=COUNTS,
    streams=COUNTS,
    events=COUNTS,
    memory_gib=NUMBERS,
    soc=st.sampled_from(["Ascend910B3", "Ascend310P3"]),
    cann=st.sampled_from(["9.1.0", "8.1.RC1"]),
    seed=st.none() | st.integers(0, 2**63 - 1),
    stall_seconds=NUMBERS,
    strict=st.booleans(),
    trace=st.none() | st.just(Path("/tmp/a timeline.json")),  # noqa: S108 - a name, nothing is written
    kernels=st.sampled_from(["real", "null"]),
)
WRONG = [
    ("devices", 0),
    ("devices", True),
    ("streams", 1.0),
    ("events", "8"),
    ("memory_gib", 0),
    ("memory_gib", float("inf")),
    ("memory_gib", float("nan")),
    ("soc", ""),
    ("soc", "a chip"),
    ("cann", "9"),
    ("cann", 9.1),
    ("seed", -1),
    ("seed", 2**63),
    ("stall_seconds", -1.0),
    ("stall_seconds", True),
    ("strict", 1),
    ("trace", Path("/")),
    ("trace", 7),
    ("kernels", "fake"),
]
WRONG_TEXTS = [
    ("DEVICES", "two"),
    ("STREAMS", "0"),
    ("MEMORY", "64GiB"),
    ("SOC", "a chip"),
    ("CANN", "new"),
    ("SEED", "-1"),
    ("STRICT", "yes"),
    ("TRACE", "/"),
    ("KERNELS", "fake"),
]


@given(CONFIGS)
def test_a_configuration_survives_the_environment(config):
    """Written as variables and read again, a configuration is the same."""
    assert SimulatorConfig.from_environment(config.to_environment()) == config


def test_no_variables_mean_the_defaults():
    """An environment that says nothing, or only empty texts, is the default configuration."""
    empty = dict.fromkeys(SimulatorConfig().to_environment(), "")
    assert SimulatorConfig.from_environment({}) == SimulatorConfig.from_environment(empty) == SimulatorConfig()


def test_a_seed_that_is_not_set_hides_an_inherited_one():
    """What is None is written as well, since a variable of the surrounding environment would win otherwise."""
    outer = SimulatorConfig(seed=3).to_environment()
    assert SimulatorConfig.from_environment({**outer, **SimulatorConfig().to_environment()}).seed is None


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_name(name, value):
    """The error has the setting, what it expects, and what was given."""
    with pytest.raises(errors.InvalidSetting, match=rf"^{name} must be .+; given ") as caught:
        SimulatorConfig(**{name: value})
    assert caught.value.given == repr(value)


@pytest.mark.parametrize(("name", "text"), WRONG_TEXTS)
def test_a_wrong_variable_is_refused_by_name(name, text):
    """The error has the variable's name, which is what its user has to look for."""
    with pytest.raises(errors.InvalidSetting, match=rf"^NPUGRAPH_SIM_{name} must be ") as caught:
        SimulatorConfig.from_environment({f"NPUGRAPH_SIM_{name}": text})
    assert caught.value.given == repr(text)


def test_a_trace_is_found_from_anywhere(tmp_path, monkeypatch):
    """The path crosses as an absolute one: the command may work in another directory."""
    monkeypatch.chdir(tmp_path)
    written = SimulatorConfig(trace="timeline.json").to_environment()["NPUGRAPH_SIM_TRACE"]
    assert written == str(tmp_path / "timeline.json")


def test_settings_are_keyword_only_and_fixed():
    """A configuration is made by names, and cannot be changed."""
    with pytest.raises(TypeError):
        SimulatorConfig(2)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        SimulatorConfig().devices = 2


def test_the_libraries_read_the_same_variables():
    """Each setting is read by the simulator's sources, and they read no other."""
    text = (SOURCES / "core" / "config.cpp").read_text(encoding="utf-8")
    read = set(re.findall(r'(?:read|variable)\("([A-Z_]+)"', text))
    assert read == {setting.variable.removeprefix("NPUGRAPH_SIM_") for setting in settings()}
