"""How a command is started on the simulator: the environment that it needs, and then the command in our place."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs

from npugraph_strategies.errors import StrategiesError
from npugraph_strategies.simulator._build import SANITIZERS, SOURCES, build
from npugraph_strategies.simulator._config import Setting, SimulatorConfig, settings
from npugraph_strategies.simulator._toolchain import Toolchain

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["DESCRIPTION", "OPTIONS", "Option", "Request", "command_environment", "launch"]

DESCRIPTION: Final = (
    "Run a command with torch_npu on a simulated NPU. The simulator is built first where that has not been done, which "
    "takes some minutes and needs a C++ compiler. Each setting may also be given as a variable, NPUGRAPH_SIM_DEVICES "
    "and so on; options win. CXX names the compiler, NPUGRAPH_SIM_CACHE the directory for what is built."
)
_REFUSED: Final = 2
_NOT_STARTED: Final = 126
_NOT_FOUND: Final = 127


@attrs.frozen
class Option:
    """An option of the launcher. Without `metavar` it is a flag, and `negatable` if ``--no-`` turns it off.

    `variable` and `default` are those of the setting that it gives; the launcher's own options have neither.
    """

    flag: str
    meaning: str
    metavar: str | None = None
    negatable: bool = False
    variable: str | None = None
    default: str | None = None

    @property
    def name(self) -> str:
        """Return the name of its value."""
        return self.flag[2:].replace("-", "_")

    @property
    def help(self) -> str:
        """Return the meaning, with the default if there is one."""
        return self.meaning if self.default is None else f"{self.meaning} (default: {self.default})"


def _options() -> tuple[Option, ...]:
    """Return an option for each setting, and the launcher's own."""
    return (
        *map(_option, settings()),
        Option("--sanitize", f"build with the compiler's sanitizers: {'; '.join(SANITIZERS)}", "KINDS"),
        Option("--build-only", "build the simulator, print the directory of its libraries, run nothing"),
        Option("--print-environment", "print the variables as shell commands, for eval; run nothing"),
    )


def _option(setting: Setting) -> Option:
    flag, default = _flag(setting.name), getattr(SimulatorConfig(), setting.name)
    switch = isinstance(default, bool)
    metavar = None if switch else flag.rpartition("-")[2].upper()
    shown = None if default is None else ("off", "on")[default] if switch else str(default)
    return Option(flag, setting.help, metavar, switch, setting.variable, shown)


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


OPTIONS: Final = _options()


@attrs.frozen
class Request:
    """What the launcher is asked to do. `given` has the texts of the settings, by name."""

    command: tuple[str, ...]
    given: Mapping[str, str]
    sanitize: str | None = None
    build_only: bool = False
    print_environment: bool = False

    @classmethod
    def of(cls, values: Mapping[str, Any], command: Sequence[str]) -> Request:
        """Sort the values of `OPTIONS`; None is what was not given."""
        names = {setting.name for setting in settings()}
        given = {name: str(int(v)) if isinstance(v, bool) else v for name, v in values.items() if v is not None}
        own = {name: value for name, value in values.items() if name not in names and value is not None}
        return cls(tuple(command), {name: text for name, text in given.items() if name in names}, **own)

    def config(self, environ: Mapping[str, str]) -> SimulatorConfig:
        """Return the settings: what was given, else what the environment says."""
        given = ((one, self.given[one.name]) for one in settings() if one.name in self.given)
        options = {one.name: one.read(text, called=_flag(one.name)) for one, text in given}
        return attrs.evolve(SimulatorConfig.from_environment(environ), **options)


def command_environment(
    config: SimulatorConfig | None = None,
    *,
    environ: Mapping[str, str] | None = None,
    sanitize: str | None = None,
    sources: Path = SOURCES,
) -> dict[str, str]:
    """Return the environment in which a new process runs torch_npu on the simulator, which is built if need be.

    `environ` (default: the process's own) is the environment to start from; `config` (default: what `environ` says)
    the settings; `sanitize` and `sources` are as for `build`. A process that runs already cannot be changed: it has
    read the path to its libraries at start.

    >>> subprocess.run(["python", "decode.py"], env=command_environment(SimulatorConfig(seed=7)))  # doctest: +SKIP
    CompletedProcess(args=['python', 'decode.py'], returncode=0)
    >>> command_environment(environ={"NPUGRAPH_SIM_SEED": "seven"})
    Traceback (most recent call last):
        ...
    npugraph_strategies.errors.InvalidSetting: NPUGRAPH_SIM_SEED must be a whole number of at least 0; given 'seven'

    Raises:
        BuildFailed: The compiler rejects the sources.
        InvalidSetting: A variable does not hold what its setting expects.
        RuntimeUnavailable: There is no compiler, or torch has no headers.

    """
    environ = os.environ if environ is None else environ
    config = SimulatorConfig.from_environment(environ) if config is None else config
    libraries = build(sources, sanitize=sanitize, environ=environ)
    return {**environ, **_changes(config, libraries, environ, sanitize)}


def _changes(
    config: SimulatorConfig, libraries: Path, environ: Mapping[str, str], sanitize: str | None
) -> dict[str, str]:
    """Return the variables that differ."""
    home = libraries.parent
    changed = {
        **config.to_environment(),
        "LD_LIBRARY_PATH": _prepended(libraries, environ.get("LD_LIBRARY_PATH")),
        # torch_npu checks these directories, and would read files of a real CANN.
        "ASCEND_HOME_PATH": str(home),
        "ASCEND_OPP_PATH": str(home / "opp"),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "1",
    }
    if preloads := Toolchain.find(environ).preloads(sanitize) if sanitize else ():
        changed["LD_PRELOAD"] = _prepended(":".join(map(str, preloads)), environ.get("LD_PRELOAD"))
        # Python itself leaves memory to the end of the process.
        changed["ASAN_OPTIONS"] = environ.get("ASAN_OPTIONS", "detect_leaks=0")
    return changed


def _prepended(first: object, rest: str | None) -> str:
    return f"{first}:{rest}" if rest else str(first)


def launch(
    request: Request,
    *,
    environ: Mapping[str, str] | None = None,
    sources: Path = SOURCES,
    execute: Callable[[str, list[str], dict[str, str]], object] = os.execve,
) -> int:
    """Do what is asked. A command takes this process's place, so that signals and exit codes are its own.

    Returns 0 if no command was to be run, 2 for what the simulator refuses, 126 for a command that cannot be started,
    and 127 for one that is not found.
    """
    environ = os.environ if environ is None else environ
    if not (request.command or request.build_only or request.print_environment):
        return _complain("no command is given; --help says more", _REFUSED)
    command = _resolved(request.command, environ)
    if command is None:
        return _complain(f"command not found: {request.command[0]}", _NOT_FOUND)
    try:
        config = request.config(environ)
        libraries = build(sources, sanitize=request.sanitize, environ=environ)
        changed = _changes(config, libraries, environ, request.sanitize)
    except StrategiesError as error:
        return _complain(str(error), _REFUSED)
    if request.build_only:
        sys.stdout.write(f"{libraries}\n")
    elif request.print_environment:
        sys.stdout.writelines(f"export {name}={shlex.quote(value)}\n" for name, value in changed.items())
    else:
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            execute(command[0], command, {**environ, **changed})
        except OSError as error:
            return _complain(f"{command[0]} cannot be started: {error.strerror}", _NOT_STARTED)
    return 0


def _resolved(command: Sequence[str], environ: Mapping[str, str]) -> list[str] | None:
    """Return the command with its program's path, or None if there is no such program.

    What this interpreter's environment has comes before what PATH has: it is the one that torch_npu was found in.
    """
    if not command:
        return []
    name, *arguments = command
    beside = shutil.which(name, path=str(Path(sys.executable).parent))
    if beside is None and name == "python":
        return [sys.executable, *arguments]
    if beside is None and name == "pytest":
        return [sys.executable, "-m", "pytest", *arguments]
    program = beside or shutil.which(name, path=environ.get("PATH"))
    return None if program is None else [program, *arguments]


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"npu simulator: {text}\n")
    return code
