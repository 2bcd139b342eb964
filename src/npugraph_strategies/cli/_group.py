"""The group of commands. Each command's module is loaded when it is needed."""

from __future__ import annotations

import importlib
from typing import Final, final

import click

__all__ = ["cli"]

_COMMANDS: Final = {
    "demo": "npugraph_strategies.cli._demo",
    "ops": "npugraph_strategies.cli._ops",
    "selftest": "npugraph_strategies.cli._selftest",
    "simulate": "npugraph_strategies.cli._simulate",
}
"""Modules by command; each has a click command called `command`."""


@final
class _Commands(click.Group):
    """A group that finds its commands in a table."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's hook
        """Return the names, sorted."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's hook
        """Load a command, or return None for an unknown name."""
        module = _COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = importlib.import_module(module).command
        assert isinstance(found, click.Command)  # noqa: S101 - narrows the type of a dynamic attribute
        return found


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="npugraph-strategies")
def cli() -> None:
    """Handlers for NPU graph operators, held in injected registries.

    No command needs an NPU: the default device is a simulated one.
    """
