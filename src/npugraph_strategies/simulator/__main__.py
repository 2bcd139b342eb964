"""Entry point of the launcher: ``python -m npugraph_strategies.simulator``. Needs no extra."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from npugraph_strategies.simulator._launcher import DESCRIPTION, OPTIONS, Request, launch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["parser", "request"]


def parser() -> argparse.ArgumentParser:
    """Return the parser of the launcher's own options."""
    made = argparse.ArgumentParser(
        prog="python -m npugraph_strategies.simulator",
        usage="%(prog)s [OPTIONS] -- COMMAND [ARGUMENTS]...",
        description=DESCRIPTION,
        allow_abbrev=False,
    )
    for option in OPTIONS:
        if option.metavar is None:
            action = argparse.BooleanOptionalAction if option.negatable else "store_true"
            made.add_argument(option.flag, dest=option.name, action=action, default=None, help=option.help)
        else:
            made.add_argument(option.flag, dest=option.name, metavar=option.metavar, help=option.help)
    made.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND", help="what to run, with its arguments")
    return made


def request(arguments: Sequence[str] | None = None) -> Request:
    """Return what `arguments` (default: the process's own) ask for."""
    given = vars(parser().parse_args(arguments))
    command = given.pop("command")
    return Request.of(given, command[1:] if command[:1] == ["--"] else command)


if __name__ == "__main__":
    sys.exit(launch(request()))
