"""What `install()` does to a process; each test that needs a fresh one starts it."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import warnings
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING

import pytest
import torch

from npugraph_strategies import reference
from npugraph_strategies.reference import _install

if TYPE_CHECKING:
    from pathlib import Path

BROKEN = "raise OSError('libascendcl.so: cannot open shared object file')"
WORKING = """
import torch
LIBRARY = torch.library.Library("npu", "DEF")
LIBRARY.define(
    "_npu_fused_infer_attention_score_infer_output(Tensor query, Tensor value, *, str input_layout='BSH', "
    "Tensor? quant_scale2=None, Tensor? block_table=None, int num_heads=1, int num_key_value_heads=0, "
    "bool softmax_lse_flag=False, Tensor? query_rope=None) -> (Tensor, Tensor)"
)
META = torch.library.Library("npu", "IMPL", "Meta")
META.impl(
    "_npu_fused_infer_attention_score_infer_output",
    lambda query, value, **_options: (query.new_empty(7), query.new_empty(8)),
)
"""


def run(program: str, path: Path | None = None) -> str:
    """Run a program in a new process with warnings as errors; return what it prints."""
    search = [entry for entry in (str(path) if path else "", os.environ.get("PYTHONPATH", "")) if entry]
    done = subprocess.run(  # noqa: S603 - the program stands in this file
        [sys.executable, "-W", "error", "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(search), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


without_torch_npu = pytest.mark.skipif(find_spec("torch_npu") is not None, reason="torch_npu is installed")


@pytest.fixture
def torch_npu(tmp_path):
    """Return a function that puts a torch_npu package with the given source on a path, and gives the path."""

    def make(source: str) -> Path:
        package = tmp_path / "torch_npu"
        package.mkdir()
        (package / "__init__.py").write_text(source)
        return tmp_path

    return make


def test_importing_does_nothing():
    """Importing the package registers no operator and imports no torch_npu."""
    program = """
        import sys, torch
        from npugraph_strategies import reference
        found = torch._C._jit_get_schemas_for_operator("npu::npu_fused_infer_attention_score")
        print(reference.installed(), found, "torch_npu" in sys.modules, len(reference.schemas()) > 0)
    """
    assert run(program) == "False [] False True"


def test_installs_once():
    """A second call, and calls from many threads, register nothing and warn of nothing."""
    program = """
        from concurrent.futures import ThreadPoolExecutor
        from npugraph_strategies import reference
        with ThreadPoolExecutor(8) as pool:
            for result in [pool.submit(reference.install) for _ in range(32)]:
                result.result()
        reference.install()
        print(reference.installed())
    """
    assert run(program) == "True"


def test_calling_again_in_this_process_is_silent():
    """An installed process takes further calls without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: reference.install(), range(8)))
    assert reference.installed()


@pytest.mark.parametrize("name", reference.schemas())
def test_every_operator_is_defined_with_its_schema(name):
    """The dispatcher holds each operator with the schema that is published, to the last default."""
    base, _, overload = name.partition(".")
    found = [s for s in torch._C._jit_get_schemas_for_operator(base) if s.overload_name == overload]
    assert found == [torch._C.parse_schema(reference.schemas()[name])]


@pytest.mark.parametrize("name", reference.schemas())
@pytest.mark.parametrize("key", ["CPU", "Meta"])
def test_every_operator_has_both_kernels(name, key):
    """Each operator runs on CPU tensors and on tensors without data."""
    assert torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def test_a_later_import_of_torch_npu_is_refused(torch_npu):
    """A torch_npu that could not be imported before cannot be imported afterwards, and the error says why."""
    program = """
        from npugraph_strategies import reference
        reference.install()
        try:
            import torch_npu
        except ImportError as error:
            print(error.name, error)
    """
    assert run(program, torch_npu(BROKEN)).startswith("torch_npu torch_npu cannot be imported any more")


@without_torch_npu
def test_probing_for_a_missing_torch_npu_still_works():
    """Where there is no torch_npu, find_spec says so, and importing it fails as it would without us."""
    program = """
        import importlib.util
        from npugraph_strategies import reference
        reference.install()
        print(importlib.util.find_spec("torch_npu"))
        try:
            import torch_npu
        except ModuleNotFoundError as error:
            print(error)
    """
    assert run(program) == "None\nNo module named 'torch_npu'"


def test_operators_of_torch_npu_are_kept(torch_npu):
    """With a working torch_npu its operators get CPU kernels, keep their meta kernels, and none is added to them."""
    program = """
        import sys, torch
        from npugraph_strategies import reference
        reference.install()
        import torch_npu
        row = torch.ones(1, 1, 4)
        helper = torch.ops.npu._npu_fused_infer_attention_score_infer_output
        print([list(t.shape) for t in helper(row, row)])
        print([list(t.shape) for t in helper(row.to("meta"), row.to("meta"))])
        print(torch._C._jit_get_schemas_for_operator("npu::npu_fused_infer_attention_score"))
        print([type(finder).__name__ for finder in sys.meta_path if "Refused" in type(finder).__name__])
    """
    assert run(program, torch_npu(WORKING)).split("\n") == [
        "[[1, 1, 4], [0]]",
        "[[7], [8]]",
        "[]",
        "[]",
    ]


@without_torch_npu
def test_the_finder_refuses_only_what_could_be_imported(torch_npu, monkeypatch):
    """The finder raises for a torch_npu that another finder finds, and knows nothing of other modules."""
    finder = _install._TorchNpuRefused()
    assert finder.find_spec("torch_npu", None) is None
    monkeypatch.syspath_prepend(torch_npu(BROKEN))
    assert finder.find_spec("torch_npu.npu", None) is None
    with pytest.raises(ImportError, match="cannot be imported any more") as caught:
        finder.find_spec("torch_npu", None)
    assert caught.value.name == "torch_npu"


def test_an_imported_torch_npu_is_recognised(monkeypatch):
    """A torch_npu that is imported already is taken for what it is."""
    monkeypatch.setitem(sys.modules, "torch_npu", ModuleType("torch_npu"))
    assert _install._import_torch_npu()
