"""Where built files are kept, and how several processes share that place."""

from __future__ import annotations

import fcntl
import os
import shutil
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["cache_directory", "locked", "prune", "touch"]

_KEPT_SECONDS: Final = 30 * 24 * 3600


def cache_directory(environ: Mapping[str, str]) -> Path:
    """Return the cache's directory: ``NPUGRAPH_SIM_CACHE``, or a directory of ours among the user's caches."""
    if chosen := environ.get("NPUGRAPH_SIM_CACHE"):
        return Path(chosen).absolute()
    caches = environ.get("XDG_CACHE_HOME", "")
    # The convention for this variable is that a relative path is ignored.
    base = Path(caches) if Path(caches).is_absolute() else Path.home() / ".cache"
    return base / "npugraph-strategies" / "simulator"


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other processes and threads respect. Its file is gone afterwards."""
    while True:
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if not _is_at(file.fileno(), path):
                continue  # the one before removed the file while this one waited for it
            try:
                yield
            finally:
                path.unlink()
            return


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def touch(path: Path) -> None:
    """Note that an entry is in use."""
    with suppress(OSError):  # a cache that is read-only is not pruned either
        os.utime(path)


def prune(directory: Path) -> None:
    """Remove the entries that nobody has used for 30 days."""
    for entry in directory.iterdir():
        with suppress(FileNotFoundError):  # another process prunes too
            if time.time() - entry.stat().st_mtime > _KEPT_SECONDS:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
