"""How the building of the libraries is shown: a bar on a terminal, else one line for each file."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["progress"]


@contextmanager
def progress(total: int) -> Iterator[Callable[[str], None]]:
    """Yield a function that is to be called with the name of each file that is done."""
    if sys.stderr.isatty():
        try:
            from rich.console import Console  # noqa: PLC0415 - an extra, and slow to load
            from rich.progress import Progress  # noqa: PLC0415 - as above
        except ModuleNotFoundError:
            pass
        else:
            with Progress(console=Console(stderr=True), transient=True) as bar:
                task = bar.add_task("building the NPU simulator", total=total)
                yield lambda name: bar.update(task, advance=1, description=f"compiled {name}")
            return
    yield _lines(total)


def _lines(total: int) -> Callable[[str], None]:
    done = 0

    def report(name: str) -> None:
        nonlocal done
        done += 1
        sys.stderr.write(f"npu simulator: compiled {name} ({done} of {total})\n")
        sys.stderr.flush()

    return report
