"""The package as a whole: what importing it loads, and what it says it offers."""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import subprocess
import sys

import pytest

import npugraph_strategies
from npugraph_strategies import errors

PACKAGES = ["npugraph_strategies"] + [
    info.name
    for info in pkgutil.walk_packages(npugraph_strategies.__path__, "npugraph_strategies.")
    if not any(part.startswith("_") or part == "cli" for part in info.name.split("."))  # the cli is a program
]


IMPORTING = """
import json, sys, torch
import npugraph_strategies, npugraph_strategies.handlers, npugraph_strategies.runtimes, npugraph_strategies.reference
schemas = torch._C._jit_get_schemas_for_operator("npu::npu_fused_infer_attention_score")
print(json.dumps({"modules": sorted(sys.modules), "schemas": len(schemas)}))
"""


@pytest.fixture(scope="module")
def imported():
    """Import the package in a new interpreter, in which torch loads no device backend by itself."""
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", IMPORTING], capture_output=True, text=True, env=environment, check=True
    )
    return json.loads(done.stdout)


def test_importing_loads_neither_torch_npu_nor_hypothesis(imported):
    """The package, its handlers and its runtimes can be imported on any machine, without test libraries."""
    assert not {"torch_npu", "hypothesis", "pytest", "click", "rich"} & set(imported["modules"])


def test_importing_does_not_load_the_compiler(imported):
    """Torch's compiler takes as long to load as the rest of torch, and is not needed before a capture."""
    assert "torch._dynamo" not in imported["modules"]


def test_importing_alone_does_not_load_torch():
    """Torch loads torch_npu, which needs a driver; the launcher of the simulator has to start without."""
    code = "import sys, npugraph_strategies, npugraph_strategies.simulator; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 - ours
    assert done.stdout == "False\n"


def test_public_names_are_found_before_they_are_loaded():
    """Names that are loaded when first asked for are listed like the others, and there are no more of them."""
    assert set(npugraph_strategies.__all__) <= set(dir(npugraph_strategies))
    with pytest.raises(AttributeError, match="'npugraph_strategies' has no attribute 'nothing'"):
        _ = npugraph_strategies.nothing


def test_importing_defines_no_operator(imported):
    """Operators are defined by `reference.install()` only, never by an import."""
    assert imported["schemas"] == 0


@pytest.mark.parametrize("name", PACKAGES)
def test_all_is_sorted_and_real(name):
    """A public module lists its names in order, and has each of them."""
    module = importlib.import_module(name)
    names = module.__all__
    assert list(names) == sorted(names, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    assert len(set(names)) == len(names)
    assert all(hasattr(module, each) for each in names)


def test_every_error_is_public():
    """The module of errors lists every class that it defines."""
    defined = {name for name, value in vars(errors).items() if getattr(value, "__module__", None) == errors.__name__}
    assert {name for name in defined if not name.startswith("_")} == set(errors.__all__)
