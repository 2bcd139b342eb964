"""The building of the CANN simulator, tried with small sources of the same layout."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
import subprocess
import sys
import threading
import time

import pytest

from npugraph_strategies import errors
from npugraph_strategies.simulator import build
from npugraph_strategies.simulator._build import SOURCES
from npugraph_strategies.simulator._cache import cache_directory, locked, prune
from npugraph_strategies.simulator._toolchain import Toolchain, torch_directory

COMPILER = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler")

SHARED = '#define SHARED extern "C" __attribute__((visibility("default")))\n'
FILES = {
    "core/shared.h": SHARED,
    "core/numbers.h": '#include "shared.h"\nSHARED int one();\n',
    "core/one.cpp": '#include "numbers.h"\nint one() { return 1; }\n',
    "core/two.cpp": '#include "shared.h"\nSHARED int two() { return 2; }\n',
    "operators/three.cpp": '#include <c10/core/ScalarType.h>\n#include "../core/numbers.h"\n'
    "SHARED int three() { return one() + static_cast<int>(c10::ScalarType::Short); }\n",
}
LIBRARIES = ["acl_op_compiler", "acl_tdt_channel", "ascendcl", "ge_runner", "graph", "hccl", "msprofiler", "nnopbase"]
BUILD = """
import pathlib, sys
from npugraph_strategies.simulator import build
print(build(pathlib.Path(sys.argv[1])))
"""


class Tree:
    """A directory of sources, a cache of its own, and a compiler that writes down what it compiles."""

    def __init__(self, directory):
        self.sources, self.cache, self._log = directory / "csrc", directory / "cache", directory / "log"
        wrapper = directory / "compiler"
        wrapper.write_text(
            f'#!/bin/sh\ncase "$*" in *" -c "*) echo "$*" >> "{self._log}";; esac\nexec {COMPILER} "$@"\n'
        )
        wrapper.chmod(wrapper.stat().st_mode | stat.S_IXUSR)
        self.environ = {**os.environ, "CXX": str(wrapper), "NPUGRAPH_SIM_CACHE": str(self.cache)}
        for name, text in FILES.items():
            self.write(name, text)

    def write(self, name, text):
        """Write a source."""
        path = self.sources / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def build(self, **options):
        """Build."""
        return build(self.sources, environ=self.environ, **options)

    def compiled(self):
        """Return which sources were compiled since this was last asked, sorted."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.unlink(missing_ok=True)
        return sorted(line.split(" -c ")[1].split()[0].rpartition("/csrc/")[2] for line in lines)


@pytest.fixture
def tree(tmp_path):
    """Return small sources, nothing of which is built."""
    return Tree(tmp_path)


@needs_compiler
def test_the_libraries_work(tree):
    """A function of the core is found in the core, through an empty library, and from the operators."""
    # In a process of its own: a library that is loaded stands for all of its name that others depend on.
    code = "import ctypes, sys; print(getattr(ctypes.CDLL(sys.argv[1]), sys.argv[2])())"
    for library, function, result in [("ascendcl", "two", 2), ("hccl", "two", 2), ("opapi", "three", 3)]:
        command = [sys.executable, "-c", code, str(tree.build() / f"lib{library}.so"), function]
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - ours
        assert int(done.stdout) == result


@needs_compiler
def test_what_torch_npu_links_and_opens_is_there(tree):
    """Each library has the file name that torch_npu asks for; one without sources is left out."""
    names = sorted(path.name for path in tree.build().iterdir())
    assert names == [f"lib{name}.so" for name in [*LIBRARIES, "opapi", "runtime"]]


@needs_compiler
def test_the_same_contents_are_built_once(tree):
    """A second build compiles nothing and gives the same directory."""
    first = tree.build()
    assert tree.compiled() == ["core/one.cpp", "core/two.cpp", "operators/three.cpp"]
    assert tree.build() == first
    assert tree.compiled() == []


@needs_compiler
def test_an_edit_compiles_one_file(tree):
    """Only the source that changed is compiled, and the libraries before it stay as they are."""
    before = tree.build()
    tree.compiled()
    tree.write("core/two.cpp", FILES["core/two.cpp"].replace("2", "22"))
    after = tree.build()
    assert tree.compiled() == ["core/two.cpp"]
    assert ctypes.CDLL(str(after / "libascendcl.so")).two() == 22
    assert ctypes.CDLL(str(before / "libascendcl.so")).two() == 2


@needs_compiler
def test_a_header_compiles_what_includes_it(tree):
    """A header is followed through other headers and directories; sources that do not include it are left alone."""
    tree.build()
    tree.compiled()
    tree.write("core/numbers.h", FILES["core/numbers.h"] + "// changed\n")
    tree.build()
    assert tree.compiled() == ["core/one.cpp", "operators/three.cpp"]
    tree.write("core/shared.h", SHARED + "// changed\n")
    tree.build()
    assert tree.compiled() == ["core/one.cpp", "core/two.cpp", "operators/three.cpp"]


@needs_compiler
def test_going_back_compiles_nothing(tree):
    """Contents that were built before are found again."""
    first = tree.build()
    tree.write("core/two.cpp", "// nothing is left\n")
    assert tree.build() != first
    tree.write("core/two.cpp", FILES["core/two.cpp"])
    tree.compiled()
    assert tree.build() == first
    assert tree.compiled() == []


@needs_compiler
def test_all_mistakes_are_reported(tree):
    """The compiler's text is kept, names the sources where they are, and has a command; no libraries are left."""
    tree.write("core/one.cpp", "int one() { return first_mistake; }\n")
    tree.write("core/two.cpp", "int two() { return second_mistake; }\n")
    with pytest.raises(errors.BuildFailed) as caught:
        tree.build()
    text = str(caught.value)
    assert "first_mistake" in text
    assert "second_mistake" in text
    assert f"{tree.sources}/core/one.cpp:1" in text
    assert caught.value.command.startswith(tree.environ["CXX"])
    assert not list((tree.cache / "homes").iterdir())


@needs_compiler
def test_what_compiled_beside_a_mistake_is_kept(tree):
    """After a mistake is corrected, only that file is compiled."""
    tree.write("core/one.cpp", "mistake\n")
    with pytest.raises(errors.BuildFailed):
        tree.build()
    tree.compiled()
    tree.write("core/one.cpp", FILES["core/one.cpp"])
    tree.build()
    assert tree.compiled() == ["core/one.cpp"]


@needs_compiler
def test_a_function_that_is_nowhere_is_an_error_of_the_build(tree):
    """A missing function is found by the linker, not by a program that runs."""
    tree.write("core/one.cpp", '#include "numbers.h"\nint nowhere();\nint one() { return nowhere(); }\n')
    with pytest.raises(errors.BuildFailed, match="nowhere"):
        tree.build()
    assert not list((tree.cache / "homes").iterdir())


@needs_compiler
def test_processes_build_side_by_side(tree):
    """Three processes that need the same libraries get the same ones, and each source is compiled once."""
    command = [sys.executable, "-c", BUILD, str(tree.sources)]
    started = [
        subprocess.Popen(command, env=tree.environ, stdout=subprocess.PIPE, text=True)  # noqa: S603 - our own code
        for _ in range(3)
    ]
    found = {process.communicate()[0] for process in started}
    assert {process.returncode for process in started} == {0}
    assert found == {f"{tree.build()}\n"}
    assert tree.compiled() == ["core/one.cpp", "core/two.cpp", "operators/three.cpp"]
    assert not list((tree.cache / "objects").glob("*.lock"))


@needs_compiler
def test_sanitizers_are_built_beside(tree):
    """A library with sanitizers is another one, and finds them in a process that loads them first."""
    libraries = tree.build(sanitize="address,undefined")
    assert libraries != tree.build()
    preload = ":".join(map(str, Toolchain.find(tree.environ).preloads("address,undefined")))
    environ = {**tree.environ, "LD_PRELOAD": preload, "ASAN_OPTIONS": "detect_leaks=0"}
    code = "import ctypes, sys; print(ctypes.CDLL(sys.argv[1]).two(), hasattr(ctypes.CDLL(None), '__asan_init'))"
    command = [sys.executable, "-c", code, str(libraries / "libascendcl.so")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)  # noqa: S603 - our own code
    assert done.stdout == "2 True\n"


@needs_compiler
def test_a_cache_that_cannot_be_written_to(tree):
    """The error names the directory, and the variable that chooses another one."""
    tree.cache.write_text("a file, not a directory")
    with pytest.raises(errors.RuntimeUnavailable, match=r"cache cannot be written to .* NPUGRAPH_SIM_CACHE"):
        tree.build()


def test_an_unknown_sanitizer_is_refused(tmp_path):
    """The error lists those that there are."""
    with pytest.raises(errors.InvalidSetting, match="address,undefined"):
        build(tmp_path, sanitize="memory")


def test_without_a_compiler_the_error_helps(tmp_path):
    """It says what was looked for, how to get a compiler, and what works without one."""
    with pytest.raises(errors.RuntimeUnavailable) as caught:
        build(environ={"PATH": str(tmp_path)})
    for part in ("c++, g++, clang++", "apt install g++", "CXX", "SimulatedRuntime"):
        assert part in str(caught.value)


def test_a_compiler_that_is_named_has_to_be_there(tmp_path):
    """A wrong ``CXX`` is an error even where another compiler is installed."""
    with pytest.raises(errors.RuntimeUnavailable, match="'no-such-compiler', which CXX names"):
        build(environ={**os.environ, "CXX": "no-such-compiler -m64", "NPUGRAPH_SIM_CACHE": str(tmp_path)})


def test_torch_is_found_without_importing_it():
    """With torch_npu installed and no libraries yet, importing torch fails; the build must not need it."""
    code = (
        "import sys; from npugraph_strategies.simulator._toolchain import torch_directory as t; print(t(), "
        "'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == f"{torch_directory()} False\n"


def test_the_package_has_its_sources():
    """The C++ sources are installed with the package."""
    assert (SOURCES / "core" / "abi.h").is_file()


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"NPUGRAPH_SIM_CACHE": "/chosen", "XDG_CACHE_HOME": "/caches"}, "/chosen"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/npugraph-strategies/simulator"),
        ({"XDG_CACHE_HOME": "relative"}, "/home/someone/.cache/npugraph-strategies/simulator"),
        ({}, "/home/someone/.cache/npugraph-strategies/simulator"),
    ],
)
def test_the_cache_is_where_it_is_expected(environ, expected, monkeypatch):
    """Our own variable wins over the convention's, and that over the home directory."""
    monkeypatch.setenv("HOME", "/home/someone")
    assert str(cache_directory(environ)) == expected


def test_a_lock_is_held_by_one_at_a_time(tmp_path):
    """Of many threads, one at a time is inside; none is forgotten, and the file is gone at the end."""
    inside, most, done = 0, 0, 0

    def enter():
        nonlocal inside, most, done
        with locked(tmp_path / "lock"):
            inside += 1
            most = max(most, inside)
            time.sleep(0.002)
            inside -= 1
            done += 1

    threads = [threading.Thread(target=enter) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most, done) == (1, 20)
    assert not list(tmp_path.iterdir())


def test_what_nobody_uses_is_removed(tmp_path):
    """Files and directories are removed 30 days after their last use."""
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "inside").touch()
        (tmp_path / f"{name}.o").touch()
    month_ago = time.time() - 31 * 24 * 3600
    for name in ("old", "old.o"):
        os.utime(tmp_path / name, (month_ago, month_ago))
    prune(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "new.o"]
