"""Run the stress program under the compiler's sanitizers: ``python tests/simulator/sanitize.py [ROUNDS [SEED]]``.

The exit code is 1 if a sanitizer reports anything, a result is wrong, or a sanitizer does not watch.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from npugraph_strategies.simulator import build
from npugraph_strategies.simulator._build import SOURCES
from npugraph_strategies.simulator._toolchain import Toolchain, run

PROGRAM = Path(__file__).with_name("stress.cpp")
# For each kind of build: what it has to find when the program commits it.
BUILDS = {"address,undefined": ("overflow", "shift"), "thread": ("race",)}
OPTIONS = {
    "ASAN_OPTIONS": "detect_leaks=1",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    "TSAN_OPTIONS": "halt_on_error=1:second_deadlock_stack=1",
    "NPUGRAPH_SIM_DEVICES": "2",
}


def compiled(sanitize: str, directory: Path) -> Path:
    """Return the stress program, linked with a driver of the same kind of build."""
    libraries, target = build(core_only=True, sanitize=sanitize), directory / "stress"
    toolchain = Toolchain.find(os.environ)
    flags = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", f"-fsanitize={sanitize}", "-fno-omit-frame-pointer"]
    ours = ["-I", str(SOURCES / "core"), "-L", str(libraries), f"-Wl,-rpath,{libraries}", "-lascendcl", "-pthread"]
    run([*toolchain.command, *flags, str(PROGRAM), *ours, "-o", str(target)])
    return target


def started(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program to its end."""
    environ = {**os.environ, **OPTIONS, "NPUGRAPH_SIM_TRACE": str(program.with_name("trace.json"))}
    # Some kernels place libraries where a sanitizer's own memory has to be, unless they are told not to.
    fixed = ["setarch", "-R"] if sys.platform == "linux" else []
    command = [*fixed, str(program), *arguments]
    return subprocess.run(  # noqa: S603 - our own program
        command, env=environ, capture_output=True, text=True, errors="replace", check=False
    )


def problems(sanitize: str, rounds: str, seed: str) -> list[str]:
    """Return what is wrong, in words."""
    with tempfile.TemporaryDirectory() as directory:
        program = compiled(sanitize, Path(directory))
        found = []
        for crime in BUILDS[sanitize]:
            done = started(program, crime)
            if done.returncode == 0 or ("Sanitizer" not in done.stderr and "runtime error" not in done.stderr):
                found.append(f"{sanitize}: it does not notice {crime!r}\n{done.stderr}")
        begun = time.monotonic()
        done = started(program, rounds, seed)
        if done.returncode or done.stdout != "done\n":
            diagnosis = [
                line for line in done.stderr.splitlines() if not line.startswith(("[npu simulator]", "  stream"))
            ]
            found.append(f"{sanitize}: exit code {done.returncode}\n" + "\n".join(diagnosis[-200:]))
        sys.stdout.write(f"{sanitize}: {rounds} rounds in {time.monotonic() - begun:.1f} s\n")
    return found


def main() -> int:
    """Run both kinds."""
    rounds, seed = [*sys.argv[1:], *("60", "0")[len(sys.argv) - 1 :]]
    found = [problem for sanitize in BUILDS for problem in problems(sanitize, rounds, seed)]
    sys.stdout.writelines(f"{problem}\n" for problem in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
