"""Fixtures of the tests of the command line."""

from __future__ import annotations

import json

import pytest
import torch
from click.testing import CliRunner

from npugraph_strategies import reference
from npugraph_strategies.cli._group import cli


@pytest.fixture(autouse=True, scope="session")
def _installed():
    reference.install()


@pytest.fixture(autouse=True, scope="module")
def _one_thread():
    """Compute small tensors on one thread: handing them to others takes longer, above all on a busy machine."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def run():
    """Run a command line; give what click saw."""

    def invoke(*arguments):
        return CliRunner().invoke(cli, [str(argument) for argument in arguments])

    return invoke


@pytest.fixture
def run_json(run):
    """Run a command line with ``--json``; give the status and what stdout, which is JSON and nothing else, holds."""

    def invoke(*arguments):
        result = run(*arguments, "--json")
        return result.exit_code, json.loads(result.stdout)

    return invoke
