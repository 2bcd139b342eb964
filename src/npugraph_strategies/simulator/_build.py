"""How the simulator's libraries are made from their sources, once for each content.

Sources are read first and compiled from a private copy, so that an edit in between cannot put an object under the name
of other contents. An object's name is the hash of all that it is made from; what was built before is found by it.
"""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from npugraph_strategies.errors import BuildFailed, InvalidSetting, RuntimeUnavailable
from npugraph_strategies.simulator._cache import cache_directory, locked, prune, touch
from npugraph_strategies.simulator._progress import progress
from npugraph_strategies.simulator._toolchain import Toolchain, run, torch_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["SANITIZERS", "SOURCES", "build"]

SOURCES: Final = Path(__file__).parent / "csrc"
SANITIZERS: Final = ("address", "undefined", "address,undefined", "thread")

_FLAGS: Final = ("-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra")
_OURS: Final = "-std=c++17"
_TORCHS: Final = "-std=c++20"  # the sources are C++17, but the headers of torch 2.14 refuse it
_INCLUDE: Final = re.compile(rb'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)


@attrs.frozen
class _Library:
    """A library: the directory its sources are in (None: it is empty), and the libraries of ours that it needs."""

    name: str
    directory: str | None
    needs: tuple[str, ...] = ()
    torch: bool = False


# In the order of linking. The empty ones are libraries that torch_npu is linked with or opens by name: it looks the
# functions up in them, and finds those of the library that they depend on.
_EMPTY: Final = "hccl acl_op_compiler ge_runner graph acl_tdt_channel nnopbase msprofiler runtime"
_LIBRARIES: Final = (
    _Library("ascendcl", "core"),
    _Library("opapi", "operators", ("ascendcl",), torch=True),
    _Library("atb", "atb", ("ascendcl", "opapi"), torch=True),
    *(_Library(name, None, ("ascendcl",)) for name in _EMPTY.split()),
)


@attrs.frozen
class _Object:
    """A compiled source: its path below the directory of sources, and the object's name in the cache."""

    source: str
    key: str
    torch: bool


@attrs.frozen
class _Plan:
    """All that the build depends on."""

    place: Path
    files: Mapping[str, bytes]
    toolchain: Toolchain
    torch: Path
    sanitize: str | None

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the flags for compiling and linking."""
        if self.sanitize is None:
            return _FLAGS
        shared = ("-shared-libsan",) * self.toolchain.is_clang
        return (*_FLAGS, f"-fsanitize={self.sanitize}", "-fno-omit-frame-pointer", *shared)

    def objects(self, library: _Library) -> tuple[_Object, ...]:
        """Return a library's objects, sorted."""
        names = sorted(n for n in self.files if n.endswith(".cpp") and n.startswith(f"{library.directory}/"))
        return tuple(_Object(name, self._key(name, torch=library.torch), library.torch) for name in names)

    def _key(self, name: str, *, torch: bool) -> str:
        headers = (self.torch / "version.py").read_bytes() if torch else b""
        parts = [self.toolchain.identity, self.flags, _TORCHS if torch else _OURS, headers]
        return _digest(*parts, *((n, self.files[n]) for n in sorted(self._closure(name))))

    def _closure(self, name: str) -> set[str]:
        """Return a source and all the files of ours that it includes, directly or not."""
        found, waiting = {name}, [name]
        while waiting:
            name = waiting.pop()
            for included in (match.decode() for match in _INCLUDE.findall(self.files[name])):
                beside = posixpath.normpath(posixpath.join(posixpath.dirname(name), included))
                new = {n for n in (beside, included) if n in self.files} - found
                found |= new
                waiting += new
        return found

    def compile_command(self, one: _Object, tree: Path, target: Path) -> list[str]:
        """Return the command that compiles one source of the copy in `tree`."""
        ours = ["-I", str(tree), f"-ffile-prefix-map={tree}={self.place}"]
        theirs = [_TORCHS, "-isystem", str(self.torch / "include")] if one.torch else [_OURS]
        files = ["-c", str(tree / one.source), "-o", str(target)]
        return [*self.toolchain.command, *self.flags, *ours, *theirs, *files]

    def link_command(self, library: _Library, objects: Iterable[Path], directory: Path) -> list[str]:
        """Return the command that links one library in `directory`."""
        ours = [f"-l{name}" for name in library.needs]
        theirs = ["-L", str(self.torch / "lib"), f"-Wl,-rpath,{self.torch / 'lib'}", "-ltorch_cpu", "-lc10"]
        # A sanitizer's functions are in the program, or loaded before it.
        defined = [] if self.sanitize else ["-Wl,-z,defs"]
        return [
            *(*self.toolchain.command, *self.flags, "-shared", *map(str, objects)),
            *("-o", str(directory / f"lib{library.name}.so"), f"-Wl,-soname,lib{library.name}.so"),
            *("-Wl,-rpath,$ORIGIN", "-Wl,--no-as-needed", "-L", str(directory)),
            *(*ours, *(theirs if library.torch else []), "-pthread", "-ldl", *defined),
        ]


def build(
    sources: Path = SOURCES,
    *,
    sanitize: str | None = None,
    core_only: bool = False,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Build the simulator's libraries if these contents were not built before; return their directory.

    They are kept in the directory ``NPUGRAPH_SIM_CACHE``, or else among the user's caches, for 30 days after their
    last use. Several processes may build at once. `sanitize` is ``address``, ``undefined``, ``address,undefined`` or
    ``thread``. `core_only` builds the driver alone, which needs no torch. `environ` (default: the process's own) names
    the compiler, ``CXX``, and the cache.

    >>> build().name  # doctest: +SKIP
    'lib'
    >>> build(environ={"CXX": "no-such-compiler"})
    Traceback (most recent call last):
        ...
    npugraph_strategies.errors.RuntimeUnavailable: the CANN simulator is not available here: ...

    Raises:
        BuildFailed: The compiler rejects the sources.
        RuntimeUnavailable: There is no compiler, torch has no headers, or the cache cannot be written to.

    """
    if sanitize not in (None, *SANITIZERS):
        raise InvalidSetting("sanitize", f"one of {', '.join(SANITIZERS)}", repr(sanitize))
    environ = os.environ if environ is None else environ
    torch = Path() if core_only else torch_directory()
    plan = _Plan(sources, _read(sources), Toolchain.find(environ), torch, sanitize)
    cache = cache_directory(environ)
    made = {library: plan.objects(library) for library in _LIBRARIES if library.directory == "core" or not core_only}
    commands = [plan.link_command(library, [], Path()) for library in made]
    home = cache / "homes" / _digest(*commands, *(o.key for objects in made.values() for o in objects))
    if not home.is_dir():
        try:
            _make(plan, made, cache, home)
        except OSError as error:
            problem = f"{cache} cannot be written to ({error}); name another directory in NPUGRAPH_SIM_CACHE"
            raise RuntimeUnavailable("the CANN simulator", problem) from error
    touch(home)
    return home / "lib"


def _read(sources: Path) -> dict[str, bytes]:
    """Return the contents of all sources and headers, by path."""
    kinds = {".cpp", ".h", ".inc"}
    files = {p.relative_to(sources).as_posix(): p for p in sources.rglob("*") if p.suffix in kinds}
    return {name: path.read_bytes() for name, path in files.items()}


def _digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:32]


def _make(plan: _Plan, made: Mapping[_Library, tuple[_Object, ...]], cache: Path, home: Path) -> None:
    """Compile what is missing, link in a directory of our own, and give it its name when all is done."""
    store = cache / "objects"
    for directory in (store, home.parent):
        directory.mkdir(parents=True, exist_ok=True)
        prune(directory)
    with tempfile.TemporaryDirectory(dir=home.parent, prefix=".building-", ignore_cleanup_errors=True) as name:
        tree, new = Path(name, "csrc"), Path(name, "home")
        for source, content in plan.files.items():
            (tree / source).parent.mkdir(parents=True, exist_ok=True)
            (tree / source).write_bytes(content)
        _compile_all(plan, [o for objects in made.values() for o in objects], tree, store)
        # torch_npu checks that the home of CANN has these.
        for part in ("lib", "runtime", "compiler", "opp"):
            (new / part).mkdir(parents=True)
        for library, objects in made.items():
            if objects or library.directory is None:
                run(plan.link_command(library, (store / f"{o.key}.o" for o in objects), new / "lib"))
        try:
            new.rename(home)
        except OSError:
            if not home.is_dir():
                raise  # else another process was faster, with the same contents


def _compile_all(plan: _Plan, objects: Iterable[_Object], tree: Path, store: Path) -> None:
    """Compile in parallel; where something fails, all the rest is tried before it is reported."""
    missing = [one for one in objects if not (store / f"{one.key}.o").exists()]
    for one in objects:
        touch(store / f"{one.key}.o")
    with progress(len(missing)) as report, ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        waiting = [pool.submit(_compile, plan, one, tree, store, report) for one in missing]
        try:
            failures = [error for future in waiting if (error := future.exception()) is not None]
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    for error in failures:
        if not isinstance(error, BuildFailed):
            raise error
    if failures:
        first = failures[0]
        assert isinstance(first, BuildFailed)  # noqa: S101 - the loop above has raised the others
        raise BuildFailed(first.command, "\n".join(e.output for e in failures if isinstance(e, BuildFailed)))


def _compile(plan: _Plan, one: _Object, tree: Path, store: Path, report: Callable[[str], None]) -> None:
    """Make one object, unless another process has made it while this one waited."""
    target, new = store / f"{one.key}.o", tree / f"{one.source}.o"
    with locked(store / f"{one.key}.lock"):
        if not target.exists():
            try:
                text = run(plan.compile_command(one, tree, new))
            except BuildFailed as error:
                raise BuildFailed(*(t.replace(str(tree), str(plan.place)) for t in attrs.astuple(error))) from None
            sys.stderr.write(text.replace(str(tree), str(plan.place)))
            new.replace(target)
    report(one.source)
