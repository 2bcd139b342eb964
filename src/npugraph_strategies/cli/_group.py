"""The group of commands. Each command's module is loaded when it is needed."""

from __future__ import annotations

import importlib
from typing import Final, final

import click

__all__ = ["cli"]

_COMMANDS: Final = {
    "demo": "Decode text with a captured graph and compare every step with eager.",
    "ops": "List the built-in operators and their update parameters.",
    "selftest": "Observe the device's rules one by one, and compare them with what is known.",
    "simulate": "Run a command with torch_npu on a simulated NPU.",
}
"""What each command does, in a line; its module here is named like it and has a click command called `command`."""


@final
class _Commands(click.Group):
    """A group that finds its commands in a table."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's hook
        """Return the names, sorted."""
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's hook
        """Load a command, or return None for an unknown name."""
        if cmd_name not in _COMMANDS:
            return None
        found = importlib.import_module(f"npugraph_strategies.cli._{cmd_name}").command
        assert isinstance(found, click.Command)  # noqa: S101 - narrows the type of a dynamic attribute
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's hook
        """List the commands without loading them: some load torch, which may not be possible here."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(_COMMANDS.items()))


@click.command(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="npugraph-strategies")
def cli() -> None:
    """Handlers for NPU graph operators, held in injected registries.

    No command needs an NPU: the default device is a simulated one.
    """
