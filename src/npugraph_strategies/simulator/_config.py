"""What is simulated: the settings, their checks, and how they reach the simulator's libraries."""

from __future__ import annotations

import math
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, final

import attrs

from npugraph_strategies.errors import InvalidSetting

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Setting", "SimulatorConfig", "settings"]

_MOST: Final = 2**63 - 1  # what the libraries read into


@attrs.frozen
class _Kind:
    """A kind of value: what to say about it, its form as text, and which values belong to it."""

    expected: str
    read: Callable[[str], Any]
    accepts: Callable[[Any], bool]
    write: Callable[[Any], str] = str
    converter: Callable[[Any], Any] | None = None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value) and value > 0


def _read_switch(text: str) -> bool:
    return {"0": False, "1": True}[text]


def _path(value: Any) -> Any:
    return Path(value) if isinstance(value, (str, os.PathLike)) else value


def _matches(pattern: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


_COUNT: Final = _Kind("a whole number of at least 1", int, lambda v: type(v) is int and 1 <= v <= _MOST)
_NUMBER: Final = _Kind("a number above 0", float, _is_number)
_SOC: Final = _Kind("a name such as Ascend910B3", str, _matches(r"\w+"))
_VERSION: Final = _Kind("a version such as 9.1.0 or 8.1.RC1", str, _matches(r"\d+(\.\w+)+"))
_SEED: Final = _Kind("a whole number of at least 0", int, lambda v: v is None or (type(v) is int and 0 <= v <= _MOST))
_SWITCH: Final = _Kind("0 or 1", _read_switch, lambda v: type(v) is bool, lambda v: str(int(v)))
_PATH: Final = _Kind(
    "the path of a file",
    Path,
    lambda v: v is None or (isinstance(v, Path) and v.name != ""),
    lambda v: str(v.absolute()),  # the command may change its working directory
    _path,
)
_KERNELS: Final = _Kind("real or null", str, lambda v: v in ("real", "null"))


@attrs.frozen
class Setting:
    """How a setting is given outside Python. `name` is the field of `SimulatorConfig`."""

    name: str
    variable: str
    help: str
    kind: _Kind

    def read(self, text: str, *, called: str) -> Any:
        """Return the value that `text` stands for; errors call the setting by the name its user knows.

        Raises:
            InvalidSetting: The text is not a value of this setting.

        """
        try:
            value = self.kind.read(text)
        except (ValueError, LookupError):
            raise InvalidSetting(called, self.kind.expected, repr(text)) from None
        if not self.kind.accepts(value):
            raise InvalidSetting(called, self.kind.expected, repr(text))
        return value


def _check(_: SimulatorConfig, attribute: attrs.Attribute[Any], value: Any) -> None:
    kind: _Kind = attribute.metadata["kind"]
    if not kind.accepts(value):
        raise InvalidSetting(attribute.name, kind.expected, repr(value))


def _field(variable: str, kind: _Kind, text: str, *, default: Any) -> Any:
    metadata = {"variable": f"NPUGRAPH_SIM_{variable}", "kind": kind, "help": text}
    return attrs.field(default=default, validator=_check, converter=kind.converter, metadata=metadata)


@final
@attrs.frozen(kw_only=True)
class SimulatorConfig:
    """What is simulated. Every setting has a default and an environment variable, ``NPUGRAPH_SIM_`` and its name.

    >>> SimulatorConfig(seed=7, devices=2).to_environment()["NPUGRAPH_SIM_SEED"]
    '7'

    Raises:
        InvalidSetting: A value is not what the setting expects.

    """

    devices: int = _field("DEVICES", _COUNT, "number of devices", default=1)
    """How many devices there are."""

    streams: int = _field("STREAMS", _COUNT, "streams on each device", default=1984)
    """Streams on each device, shared by programs and graphs; one more is error 207008."""

    events: int = _field("EVENTS", _COUNT, "events on each device", default=65536)
    """Events on each device; one more is error 207007."""

    memory_gib: float = _field("MEMORY", _NUMBER, "memory of each device in GiB", default=64)
    """Memory of each device in GiB. What is not allocated costs nothing."""

    soc: str = _field("SOC", _SOC, "name of the chip", default="Ascend910B3")
    """Name of the chip, from which torch_npu derives what the device can do."""

    cann: str = _field("CANN", _VERSION, "version of CANN", default="9.1.0")
    """Version of CANN, from which torch_npu derives which functions to call."""

    seed: int | None = _field(
        "SEED", _SEED, "seed of the schedule of streams (without one they run freely)", default=None
    )
    """Seed of the order in which streams advance; None lets them run as soon as they can."""

    stall_seconds: float = _field("STALL_SECONDS", _NUMBER, "seconds until a wait is a hang", default=10)
    """Seconds without progress after which a wait is reported as a hang, error 507046."""

    strict: bool = _field("STRICT", _SWITCH, "tell of records that are missing and of freed memory", default=True)
    """Whether waiting for an event that nobody records, and use of freed memory, are told; a driver may pass them."""

    trace: Path | None = _field(  # noqa: RUF009 - a field of attrs, not a value shared by instances
        "TRACE", _PATH, "write a timeline for Perfetto to this file at exit", default=None
    )
    """File to which a timeline is written at exit, in Chrome's trace format, for Perfetto; None writes none."""

    kernels: Literal["real", "null"] = _field("KERNELS", _KERNELS, "real, or null to compute nothing", default="real")
    """``real`` computes results on the CPU; ``null`` launches and orders the work, but leaves memory as it is."""

    def to_environment(self) -> dict[str, str]:
        """Return one variable for each setting; what is None is the empty text."""
        values = ((one, getattr(self, one.name)) for one in settings())
        return {one.variable: "" if value is None else one.kind.write(value) for one, value in values}

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> SimulatorConfig:
        """Return the configuration that the variables describe; one that is missing or empty means the default.

        >>> SimulatorConfig.from_environment({"NPUGRAPH_SIM_EVENTS": "8"}).events
        8

        Raises:
            InvalidSetting: A variable does not hold what its setting expects.

        """
        given = ((one, environ.get(one.variable, "")) for one in settings())
        return cls(**{one.name: one.read(text, called=one.variable) for one, text in given if text})


def settings() -> tuple[Setting, ...]:
    """Return all settings, in the order of the fields."""
    return tuple(
        Setting(f.name, f.metadata["variable"], f.metadata["help"], f.metadata["kind"])
        for f in attrs.fields(SimulatorConfig)
    )
