"""The command ``simulate``: run a command with torch_npu on the CANN simulator."""

from __future__ import annotations

from typing import Any, Final

import click

from npugraph_strategies.simulator._launcher import DESCRIPTION, OPTIONS, Option, Request, launch

__all__ = ["command", "request"]


def _parameter(option: Option) -> click.Option:
    """Return click's form of an option. None is what was not given."""
    both = f"{option.flag}/--no-{option.flag[2:]}" if option.negatable else option.flag
    return click.Option(
        [both, option.name], help=option.help, metavar=option.metavar, is_flag=option.metavar is None, default=None
    )


def request(context: click.Context) -> Request:
    """Return what the arguments of a context ask for."""
    given = dict(context.params)
    return Request.of(given, given.pop("command"))


def _simulate(context: click.Context, **_: Any) -> None:
    context.exit(launch(request(context)))


command: Final = click.Command(
    "simulate",
    help=DESCRIPTION,
    callback=click.pass_context(_simulate),
    params=[
        *map(_parameter, OPTIONS),
        click.Argument(["command"], nargs=-1, type=click.UNPROCESSED, metavar="COMMAND..."),
    ],
    context_settings={"allow_interspersed_args": False},
)
