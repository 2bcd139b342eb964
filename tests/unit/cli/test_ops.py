"""The command ``ops``, the catalogue behind it, and the group of commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import types

import pytest
import torch

from npugraph_strategies import HandlerRegistry, UpdateParams
from npugraph_strategies.cli.__main__ import main
from npugraph_strategies.cli._catalogue import Parameter, Workspace, catalogue
from npugraph_strategies.cli._group import cli
from npugraph_strategies.handlers import BUILTIN

V2 = "npu::npu_fused_infer_attention_score_v2.default"


def test_every_builtin_operator_is_listed(run_json):
    """The JSON has one object for each overload that the registry serves, all installed."""
    status, found = run_json("ops")
    assert status == 0
    assert [operator["op"] for operator in found] == list(BUILTIN.ops)
    assert all(operator["installed"] for operator in found)
    assert {operator["provider"] for operator in found} <= {"reference", "torch_npu"}


def test_parameters_have_schema_facts(run_json):
    """Positions, types and kinds are those of the schema and of the handler."""
    _, found = run_json("ops")
    by_op = {operator["op"]: operator for operator in found}
    facts = {p["name"]: (p["position"], p["type"], p["kind"]) for p in by_op[V2]["parameters"]}
    assert facts["actual_seq_qlen"] == ("7K", "int[]?", "host list")
    assert facts["actual_seq_kvlen"] == ("8K", "int[]?", "host list")
    assert facts["block_table"] == ("9K", "Tensor?", "rebind")
    assert by_op[V2]["workspace"]["policy"] == "MaxWorkspace"
    assert by_op[V2]["workspace"]["helper"].startswith("npu::_npu_fused_infer_attention_score_v2_get_max_workspace")
    paged = {p["name"]: (p["position"], p["kind"]) for p in by_op["atb::_npu_paged_attention.default"]["parameters"]}
    assert paged["context_lens"] == ("7P", "host tensor")


def test_the_listing_shows_the_same(run):
    """Without ``--json`` each operator has a line, followed by its parameters."""
    lines = run("ops").stdout.splitlines()
    at = lines.index(V2)
    assert "workspace MaxWorkspace" in lines[at + 1]
    assert lines[at + 2].split() == ["actual_seq_qlen", "7K", "int[]?", "host", "list"]


def test_without_reference_and_torch_npu_no_schema_is_known():
    """A fresh process with ``--no-reference`` lists names and policies, and says that nothing is installed."""
    command = [sys.executable, "-m", "npugraph_strategies.cli", "ops", "--no-reference", "--json"]
    # torch's own automatic loading of backends is off: this machine may have torch_npu.
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)  # noqa: S603 - fixed
    found = {operator["op"]: operator for operator in json.loads(done.stdout)}
    assert set(found) == set(BUILTIN.ops)
    assert not any(operator["installed"] or operator["provider"] for operator in found.values())
    facts = {p["name"]: (p["position"], p["type"], p["kind"]) for p in found[V2]["parameters"]}
    assert facts["actual_seq_kvlen"] == (None, None, "host value")
    assert facts["block_table"] == (None, None, "rebind")


def test_torch_npu_is_named_where_it_is_loaded(monkeypatch):
    """Its operators are its own, reference kernels or not."""
    monkeypatch.setitem(sys.modules, "torch_npu", types.ModuleType("torch_npu"))
    assert {operator.provider for operator in catalogue(BUILTIN)} == {"torch_npu"}


def test_operators_of_others(monkeypatch):
    """An operator of another extension is told from one that nobody has; a wrong name has no position."""
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    library = torch.library.Library("cli_catalogue", "FRAGMENT")
    library.define("scale(Tensor x, float by) -> Tensor")
    registry = HandlerRegistry.of(
        UpdateParams("cli_catalogue::scale", ("by", "bye")), UpdateParams("cli_catalogue::absent", "lengths")
    )
    absent, scale = catalogue(registry)
    assert (absent.installed, absent.provider) == (False, None)
    assert (scale.installed, scale.provider) == (True, "another extension")
    assert scale.parameters == (
        Parameter("by", "host value", "1P", "float"),
        Parameter("bye", "host value", None, None),
    )
    assert scale.workspace == Workspace("NoWorkspace", None, ())
    del library


def hook(*_):
    """Stand for any hook: a catalogue calls none."""
    raise AssertionError


class Bare:
    """A handler that has names and hooks, and no policies."""

    ops = ("cli_catalogue::bare.default",)
    params = ("lengths",)
    rebind = ()
    should_handle = prepare_capture = postprocess_result = record_wrap_kwarg = hook
    validate_update = update_args = prepare_update = hook


def test_a_handler_without_a_policy():
    """A handler of somebody's own class need not declare a workspace."""
    assert catalogue(HandlerRegistry.of(Bare()))[0].workspace is None


def test_help_lists_the_commands(run):
    """The group's help has a line on each command; an unknown one is refused with the names at hand."""
    result = run("--help")
    assert result.exit_code == 0
    assert {"demo", "ops"} <= {line.split()[0] for line in result.stdout.splitlines() if line.startswith("  ")}
    assert "keyword-only" in run("ops", "--help").stdout
    refused = run("dema")
    assert refused.exit_code == 2
    assert "dema" in refused.stderr


def test_the_version_is_told(run):
    """``--version`` prints one."""
    assert "version" in run("--version").stdout


def test_main_runs_a_command(capsys):
    """The entry point runs its arguments and exits with the command's status."""
    with pytest.raises(SystemExit) as left:
        main(["ops", "--json"])
    assert left.value.code == 0
    assert json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(("module", "command"), [("click", "_group"), ("rich", "_ops")])
def test_a_missing_extra_is_named(capsys, monkeypatch, module, command):
    """Without click or rich the entry point says what to install."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, f"{module}.console", None)
    monkeypatch.delitem(sys.modules, f"npugraph_strategies.cli.{command}", raising=False)
    assert main(["ops"]) == 2
    assert "npugraph-strategies[cli]" in capsys.readouterr().err


def test_any_other_missing_module_is_an_error(monkeypatch):
    """What no extra brings is not explained away."""
    monkeypatch.setitem(sys.modules, "npugraph_strategies.cli._catalogue", None)
    monkeypatch.delitem(sys.modules, "npugraph_strategies.cli._ops", raising=False)
    with pytest.raises(ModuleNotFoundError, match="_catalogue"):
        main(["ops"])


def test_help_tells_what_each_command_does(run):
    """The list of commands, for which none is loaded, says what their own help says."""
    shown = " ".join(run("--help").stdout.split())
    for name in cli.list_commands(None):
        assert f"{name} {cli.get_command(None, name).get_short_help_str(limit=200)}" in shown


def test_torch_npu_without_a_driver_is_explained(capsys, monkeypatch):
    """Where torch_npu keeps torch from being imported, the entry point names the way onto the simulator."""

    def fail(**_):
        raise RuntimeError("Failed to load the backend extension: torch_npu.") from ImportError("no libhccl.so")

    monkeypatch.setattr(cli, "main", fail)
    assert main(["demo"]) == 2
    told = capsys.readouterr().err
    assert "no libhccl.so" in told
    assert "npugraph-strategies simulate --" in told


def test_any_other_runtime_error_is_left_alone(monkeypatch):
    """What torch_npu has no part in is not explained away."""

    def fail(**_):
        raise RuntimeError("something else")

    monkeypatch.setattr(cli, "main", fail)
    with pytest.raises(RuntimeError, match="something else"):
        main(["demo"])
