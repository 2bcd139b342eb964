"""The launcher of the CANN simulator: what a command finds in its environment, and how it is found itself."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from npugraph_strategies import errors
from npugraph_strategies.cli import _simulate
from npugraph_strategies.cli.__main__ import main
from npugraph_strategies.simulator import SimulatorConfig, __main__, build, command_environment
from npugraph_strategies.simulator._launcher import Request, launch

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, ("c++", "g++", "clang++"))), reason="there is no C++ compiler"
)

SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
LAUNCH = """
import pathlib, sys
from npugraph_strategies.simulator._launcher import Request, launch
sys.exit(launch(Request(tuple(sys.argv[2:]), {"seed": "5"}), sources=pathlib.Path(sys.argv[1])))
"""
ARGUMENTS = [
    ["--", "python", "decode.py"],
    ["python", "decode.py", "--seed", "9"],
    ["--seed", "7", "--memory-gib", "1.5", "--", "pytest", "-k", "one or two", "--", "tests"],
    ["--no-strict", "--trace", "a file.json", "true"],
    ["--strict", "--kernels=null", "--", "--strange-name"],
    ["--build-only", "--sanitize", "thread"],
    ["--print-environment", "--devices", "2"],
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """Return a directory with the smallest sources that can be built."""
    core = tmp_path_factory.mktemp("sources") / "core"
    core.mkdir()
    (core / "empty.cpp").write_text("// nothing is defined\n")
    return core.parent


@pytest.fixture(scope="module")
def environ(tmp_path_factory):
    """Return this process's environment with a cache of its own."""
    return {**os.environ, "NPUGRAPH_SIM_CACHE": str(tmp_path_factory.mktemp("cache"))}


@pytest.fixture
def launched(sources, environ):
    """Return a function that runs a command through the launcher, in a process of its own."""

    def run(*command, **changes):
        launcher = [sys.executable, "-c", LAUNCH, str(sources), *command]
        return subprocess.run(  # noqa: S603 - our own code
            launcher, env={**environ, **changes}, capture_output=True, text=True, check=False
        )

    return run


@needs_compiler
def test_a_command_finds_the_libraries_and_the_settings(launched, sources, environ):
    """The libraries come before those of the surrounding environment, and torch is told to load its backend."""
    done = launched("python", "-c", SHOW, LD_LIBRARY_PATH="/elsewhere", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    seen = json.loads(done.stdout)
    assert seen["LD_LIBRARY_PATH"] == f"{build(sources, environ=environ)}:/elsewhere"
    assert seen["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1"
    assert SimulatorConfig.from_environment(seen) == SimulatorConfig(seed=5)


@needs_compiler
def test_the_home_of_cann_has_what_torch_npu_checks(sources, environ):
    """A real CANN's home is hidden, and the directories that torch_npu wants to see are there."""
    found = command_environment(environ={**environ, "ASCEND_HOME_PATH": "/usr/local/Ascend"}, sources=sources)
    home = Path(found["ASCEND_HOME_PATH"])
    assert all((home / part).is_dir() for part in ("runtime", "compiler"))
    assert Path(found["ASCEND_OPP_PATH"]).is_dir()


@needs_compiler
def test_the_environment_gives_the_settings_unless_a_configuration_does(sources, environ):
    """Without a configuration the variables count; with one they are replaced, all of them."""
    outer = {**environ, "NPUGRAPH_SIM_SEED": "3", "NPUGRAPH_SIM_DEVICES": "2"}
    inherited = command_environment(environ=outer, sources=sources)
    assert SimulatorConfig.from_environment(inherited) == SimulatorConfig(seed=3, devices=2)
    replaced = command_environment(SimulatorConfig(devices=4), environ=outer, sources=sources)
    assert SimulatorConfig.from_environment(replaced) == SimulatorConfig(devices=4)


@needs_compiler
def test_options_win_over_variables(sources, environ):
    """A setting that is given as an option overrides its variable; the others keep theirs."""
    seen = []
    status = launch(
        Request(("true",), {"seed": "7"}),
        environ={**environ, "NPUGRAPH_SIM_SEED": "3", "NPUGRAPH_SIM_EVENTS": "8"},
        sources=sources,
        execute=lambda _program, _command, environment: seen.append(environment),
    )
    assert status == 0
    assert SimulatorConfig.from_environment(seen[0]) == SimulatorConfig(seed=7, events=8)


@needs_compiler
def test_exit_codes_are_the_command_s(launched):
    """What the command returns is returned."""
    assert launched("python", "-c", "raise SystemExit(42)").returncode == 42


@needs_compiler
def test_signals_reach_the_command(launched):
    """The command has taken the launcher's place: a signal ends it as if there were no launcher."""
    kill = f"import os; os.kill(os.getpid(), {int(signal.SIGTERM)})"
    assert launched("python", "-c", kill).returncode == -signal.SIGTERM


@needs_compiler
def test_python_is_this_interpreter(launched):
    """``python`` is the interpreter that the launcher runs on, whatever PATH says."""
    done = launched("python", "-c", "import sys; print(sys.prefix)", PATH="/usr/bin:/bin")
    assert done.stdout == f"{sys.prefix}\n"


@needs_compiler
def test_pytest_is_that_of_this_interpreter(launched):
    """``pytest`` belongs to the same environment as ``python``."""
    done = launched("pytest", "--version", "--version", PATH="/usr/bin:/bin")
    assert done.returncode == 0
    assert str(Path(pytest.__file__).parent.parent) in done.stdout + done.stderr


@needs_compiler
@pytest.mark.parametrize(("name", "rest"), [("python", []), ("pytest", ["-m", "pytest"])])
def test_without_programs_beside_it_the_interpreter_is_used(name, rest, sources, environ, tmp_path, monkeypatch):
    """Where the interpreter's directory has no such program, the interpreter itself is started."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python3.99"))
    seen = []
    launch(
        Request((name, "x"), {}),
        environ=environ,
        sources=sources,
        execute=lambda program, command, _environment: seen.append((program, command)),
    )
    assert seen == [(sys.executable, [sys.executable, *rest, "x"])]


def test_a_command_that_is_not_there(capsys):
    """It is named, before anything is built; the code is a shell's."""
    assert launch(Request(("no-such-command",), {})) == 127
    assert capsys.readouterr().err == "npu simulator: command not found: no-such-command\n"


@needs_compiler
def test_a_command_that_cannot_be_started(sources, environ, tmp_path, capsys):
    """A file that is no program has a shell's code as well."""
    (tmp_path / "text").write_text("")
    (tmp_path / "text").chmod(0o755)
    assert launch(Request((str(tmp_path / "text"),), {}), environ=environ, sources=sources) == 126
    assert "cannot be started" in capsys.readouterr().err


def test_nothing_to_do_is_an_error(capsys):
    """Without a command the launcher says where to read on."""
    assert launch(Request((), {})) == 2
    assert "--help" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "environ", "named"),
    [({"seed": "x"}, {}, "--seed must be"), ({}, {"NPUGRAPH_SIM_SEED": "x"}, "NPUGRAPH_SIM_SEED must be")],
)
def test_a_wrong_setting_is_named_as_it_was_given(given, environ, named, capsys):
    """An option is named by its option, a variable by its variable."""
    assert launch(Request(("true",), given), environ={**os.environ, **environ}) == 2
    assert named in capsys.readouterr().err


@needs_compiler
def test_only_building_prints_the_directory(sources, environ, capsys):
    """``--build-only`` prints where the libraries are."""
    assert launch(Request((), {}, build_only=True), environ=environ, sources=sources) == 0
    assert capsys.readouterr().out == f"{build(sources, environ=environ)}\n"


@needs_compiler
def test_the_printed_environment_can_be_evaluated(sources, environ, capsys):
    """A shell that evaluates what is printed has the same variables as a command would."""
    awkward = {**environ, "LD_LIBRARY_PATH": "/a 'b' $c"}
    assert launch(Request((), {"seed": "7"}, print_environment=True), environ=awkward, sources=sources) == 0
    shell = f"{capsys.readouterr().out}\nexec {sys.executable} -c '{SHOW}'"
    done = subprocess.run(["/bin/sh", "-c", shell], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    wanted = command_environment(SimulatorConfig(seed=7), environ=awkward, sources=sources)
    changed = {name: value for name, value in wanted.items() if awkward.get(name) != value}
    assert changed.items() <= json.loads(done.stdout).items()


@needs_compiler
def test_sanitizers_are_loaded_first(sources, environ):
    """A program that was built without sanitizers loads their library before all others."""
    found = command_environment(environ={**environ, "LD_PRELOAD": "other.so"}, sanitize="address", sources=sources)
    first, *_, last = found["LD_PRELOAD"].split(":")
    assert "asan" in first
    assert last == "other.so"
    assert "LD_PRELOAD" not in command_environment(sanitize="undefined", environ=environ, sources=sources)


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_both_programs_understand_the_same(arguments):
    """``npugraph-strategies simulate`` asks for what ``python -m npugraph_strategies.simulator`` does."""
    with _simulate.command.make_context("simulate", list(arguments)) as context:
        assert _simulate.request(context) == __main__.request(arguments)


def test_what_follows_the_command_is_its_own():
    """Options behind the command's name, and a second ``--``, go to the command."""
    request = __main__.request(["--seed", "7", "--", "pytest", "--seed", "8", "--", "tests"])
    assert request == Request(("pytest", "--seed", "8", "--", "tests"), {"seed": "7"})


def test_the_command_line_returns_the_launcher_s_code(capsys):
    """The code reaches the shell."""
    with pytest.raises(SystemExit) as caught:
        main(["simulate", "--", "no-such-command"])
    assert caught.value.code == 127
    assert "command not found" in capsys.readouterr().err


def test_the_launcher_needs_neither_torch_nor_click():
    """It starts where importing torch would fail, and without the extra for the command line."""
    code = (
        "import sys, npugraph_strategies.simulator.__main__ as m; m.parser().format_help(); "
        "print({'torch', 'torch_npu', 'click', 'rich'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == "set()\n"


def test_the_module_can_be_run():
    """``python -m`` finds the launcher, whose help lists the settings."""
    command = [sys.executable, "-m", "npugraph_strategies.simulator", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert "--stall-seconds" in done.stdout


def test_a_failed_build_is_reported(environ, tmp_path, capsys):
    """The launcher shows the reason and starts nothing."""
    broken = {**environ, "CXX": "no-such-compiler"}
    assert launch(Request(("true",), {}), environ=broken, sources=tmp_path) == 2
    assert str(errors.RuntimeUnavailable("the CANN simulator", "")).rstrip(": ") in capsys.readouterr().err
