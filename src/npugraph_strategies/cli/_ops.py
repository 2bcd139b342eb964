"""The command ``ops``: the built-in operators, what may be updated in them, and whether they are installed here."""

from __future__ import annotations

import json

import attrs
import click
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

from npugraph_strategies import reference
from npugraph_strategies.cli._catalogue import Operator, catalogue
from npugraph_strategies.handlers import BUILTIN

__all__ = ["command"]


@click.command(name="ops")
@click.option(
    "--reference/--no-reference",
    "with_reference",
    default=True,
    show_default=True,
    help="Define the operators that are not installed, from the schemas that this package ships.",
)
@click.option("--json", "as_json", is_flag=True, help="Write a JSON list instead of a table.")
def command(*, with_reference: bool, as_json: bool) -> None:
    """List the built-in operators and their update parameters.

    Positions are the schema's, counted from 0: 7K is keyword-only, 6P positional. A "host list" is a list of numbers,
    a "host tensor" a tensor on the host, a "rebind" a device tensor that may be exchanged for another of its form.
    "By" says whose operator it is: torch_npu's, the reference kernels', or of another extension.

    Without torch_npu and with --no-reference no schema is known, and positions are left out.
    """
    if with_reference:
        reference.install()
    found = catalogue(BUILTIN)
    if as_json:
        click.echo(json.dumps([attrs.asdict(operator) for operator in found], indent=2))
    else:
        console = Console(highlight=False)
        for operator in found:
            console.print(_block(operator))


def _block(operator: Operator) -> Group:
    """Return a line on the operator, and one on each of its parameters."""
    workspace = "none" if operator.workspace is None else operator.workspace.policy
    facts = f"  by {operator.provider or 'nobody: not installed'}, workspace {workspace}"
    rows = Table.grid(Column(min_width=28), Column(min_width=5), Column(min_width=9), "", padding=(0, 1))
    for parameter in operator.parameters:
        rows.add_row(parameter.name, parameter.position or "-", parameter.type or "-", parameter.kind)
    return Group(Text(operator.op, style="bold"), Text(facts), Padding(rows, (0, 0, 1, 2)))
