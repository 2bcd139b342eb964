"""Entry point of the command line: ``npugraph-strategies``, or ``python -m npugraph_strategies.cli``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_USAGE: Final = 2
_NO_DRIVER: Final = """\
torch cannot be imported, since torch_npu is installed and does not load here: {reason}
Without an NPU, start on the simulated driver: npugraph-strategies simulate -- npugraph-strategies ...
Or leave torch_npu alone, for commands that need none of it: set TORCH_DEVICE_BACKEND_AUTOLOAD=0
"""
_EXTRAS: Final = {"click": "cli", "rich": "cli", "hypothesis": "testing", "pytest": "testing"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments` (default: the process's own).

    Raises SystemExit with the command's status. Returns 2, having said what to install, where an extra is missing.
    """
    try:
        from npugraph_strategies.cli._group import cli  # noqa: PLC0415 - click may be missing, which is to be said

        return cli.main(args=arguments, prog_name="npugraph-strategies")
    except ModuleNotFoundError as error:
        extra = _EXTRAS.get((error.name or "").partition(".")[0])
        if extra is None:
            raise
        sys.stderr.write(f"{error.name} is missing: pip install 'npugraph-strategies[{extra}]'\n")
        return _USAGE
    except RuntimeError as error:
        if "backend extension" not in str(error):
            raise
        sys.stderr.write(_NO_DRIVER.format(reason=error.__cause__ or error))
        return _USAGE


if __name__ == "__main__":
    sys.exit(main())
