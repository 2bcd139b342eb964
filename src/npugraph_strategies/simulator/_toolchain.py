"""The compiler and torch's headers and libraries, found without importing torch.

Importing torch loads torch_npu where that is installed, and that fails until the libraries are built.
"""

from __future__ import annotations

import importlib.util
import platform
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from npugraph_strategies.errors import BuildFailed, RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["NAME", "Toolchain", "run", "torch_directory"]

NAME: Final = "the CANN simulator"
_COMPILERS: Final = ("c++", "g++", "clang++")


@attrs.frozen
class Toolchain:
    """A C++ compiler: how it is called, and what identifies what it makes."""

    command: tuple[str, ...]
    identity: str

    @classmethod
    def find(cls, environ: Mapping[str, str]) -> Toolchain:
        """Return the compiler that ``CXX`` names, else the first one that is installed.

        Raises:
            RuntimeUnavailable: There is none.

        """
        chosen = shlex.split(environ.get("CXX", ""))
        path = environ.get("PATH")
        for command in [chosen] if chosen else [[name] for name in _COMPILERS]:
            if shutil.which(command[0], path=path):
                version = run([*command, "--version"])
                return cls(tuple(command), f"{platform.machine()} {version}")
        looked_for = f"{chosen[0]!r}, which CXX names" if chosen else ", ".join(_COMPILERS)
        raise RuntimeUnavailable(
            NAME,
            f"it is built where it runs, and no C++ compiler was found (looked on PATH for {looked_for}). Install one "
            f"(apt install g++, dnf install gcc-c++, conda install -c conda-forge cxx-compiler), or name it in CXX. "
            f"SimulatedRuntime needs no compiler",
        )

    @property
    def is_clang(self) -> bool:
        """Tell whether the compiler is clang."""
        return "clang" in self.identity

    def preloads(self, sanitize: str | None) -> tuple[Path, ...]:
        """Return the libraries that a program without sanitizers of its own has to load first.

        libstdc++ is among them because the sanitizers look for its functions once, at the start.
        """
        kinds = {"address": "asan", "thread": "tsan"}
        short = next((kinds[kind] for kind in (sanitize or "").split(",") if kind in kinds), None)
        if short is None:
            return ()
        name = f"libclang_rt.{short}-{platform.machine()}.so" if self.is_clang else f"lib{short}.so"
        found = [Path(run([*self.command, f"-print-file-name={each}"]).strip()) for each in (name, "libstdc++.so")]
        if not found[0].is_absolute():
            raise RuntimeUnavailable(NAME, f"sanitize={sanitize!r} needs {name}, which the compiler does not have")
        return tuple(path.resolve() for path in found)


def run(command: Sequence[str]) -> str:
    """Run a tool and return what it wrote, warnings included.

    Raises:
        BuildFailed: The tool failed.

    """
    done = subprocess.run(  # noqa: S603 - the user's compiler
        command, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    if done.returncode:
        raise BuildFailed(shlex.join(command), done.stdout.strip() or f"exit code {done.returncode}")
    return done.stdout


def torch_directory() -> Path:
    """Return the directory of the torch package.

    Raises:
        RuntimeUnavailable: torch is not installed, or comes without its headers.

    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeUnavailable(NAME, "torch is not installed")
    directory = Path(spec.origin).parent
    if not (directory / "include" / "ATen" / "ATen.h").is_file():
        raise RuntimeUnavailable(NAME, f"torch in {directory} comes without its C++ headers")
    return directory
