"""The parts of the documentation that follow from the code.

A page holds such a part between ``<!-- generated: name -->`` and ``<!-- end -->``. A test compares;
``python tests/support/generated.py`` writes.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import re
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from npugraph_strategies import errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import ModuleType

__all__ = ["PARTS", "parts_of", "renewed"]

_ROOT = Path(__file__).resolve().parents[2]
_CSRC = _ROOT / "src/npugraph_strategies/simulator/csrc"
_OPERATOR = re.compile(r"^(?:ACLNN\w*|[A-Z_]+)\((?!NAME)(\w+),", re.MULTILINE)
_PART = re.compile(r"(<!-- generated: ([\w.-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


def _code(text: object) -> str:
    return f"`{text}`"


def operators() -> str:
    """Return one table for each operator, from what the command ``ops --json`` writes."""
    from click.testing import CliRunner  # noqa: PLC0415 - the other parts need no command line

    from npugraph_strategies.cli._group import cli  # noqa: PLC0415 - as above

    found = json.loads(CliRunner().invoke(cli, ["ops", "--json"]).output)
    same: dict[str, list[str]] = {}
    for operator in found:
        rows = [[_code(p["name"]), p["position"], _code(p["type"]), p["kind"]] for p in operator["parameters"]]
        workspace = operator["workspace"]
        made_by = f", sized by `{workspace['helper']}`" if workspace["helper"] else ""
        text = _table(["parameter", "position", "type", "kind"], rows)
        same.setdefault(f"\n{text}\nWorkspace: `{workspace['policy']}`{made_by}.\n\n", []).append(operator["op"])
    return "".join(f"### {', '.join(map(_code, ops))}\n{text}" for text, ops in same.items())


def error_tree() -> str:
    """Return the tree that the module of errors draws."""
    lines = inspect.getdoc(errors).splitlines()
    start = lines.index("::") + 2
    tree = lines[start : lines.index("", start)]
    return "```text\n" + "".join(f"{line[4:]}\n" for line in tree) + "```\n"


def choices() -> str:
    """Return the table of what the simulated device does where nothing is documented."""
    module = importlib.import_module("npugraph_strategies.runtimes._simulated._choices")
    texts = _field_texts(module, "Choices")
    rows = ([_code(f.name), _code(f.default), texts[f.name]] for f in attrs.fields(module.Choices))
    return _table(["choice", "default", "what it decides"], rows)


def _field_texts(module: ModuleType, name: str) -> dict[str, str]:
    """Return what stands below each field of a class of `module`."""
    classes = (node for node in ast.parse(inspect.getsource(module)).body if isinstance(node, ast.ClassDef))
    body = next(node.body for node in classes if node.name == name)
    return {
        field.target.id: re.sub(r"``([^`]*)``", r"`\1`", " ".join(text.value.value.split()))
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def simulator_settings() -> str:
    """Return the table of the settings of the CANN simulator."""
    module = importlib.import_module("npugraph_strategies.simulator._config")
    texts = _field_texts(module, "SimulatorConfig")
    rows = (
        [_code(f.name), _code(f.metadata["variable"]), _code(f.default), texts[f.name]]
        for f in attrs.fields(module.SimulatorConfig)
    )
    return _table(["field", "variable", "default", "what it sets"], rows)


def driver_codes() -> str:
    """Return the table of the codes of the simulated driver, read from its source."""
    rows = ([number, _code(name), what] for _, number, name, what in _driver_codes())
    return _table(["code", "name", "what it means"], rows)


def driver_choices() -> str:
    """Return the table of what the simulated driver does where nothing is documented, read from its source."""
    found = re.findall(r"((?:^// .*\n)+)constexpr [\w ]+ k(\w+) = ([^;]+);", _source("core/choices.h"), re.MULTILINE)
    numbers = {constant: number for constant, number, _, _ in _driver_codes()}
    rows = (
        [_code(name), _code(numbers.get(value, value)), " ".join(text.replace("// ", "").split())]
        for text, name, value in found
    )
    return _table(["choice", "value", "what it decides"], rows)


def driver_operators() -> str:
    """Return the list of the operators that the simulated driver has, by the file they stand in."""
    rows = []
    for path in sorted((_CSRC / "operators").glob("*.cpp")):
        names = sorted(set(_OPERATOR.findall(path.read_text(encoding="utf-8"))))
        if names:
            rows.append([_code(path.name), " ".join(names)])
    return _table(["file", "operators (`aclnn` and this name)"], rows)


def _driver_codes() -> list[tuple[str, str, str, str]]:
    """Return constant, number, name and meaning of each code."""
    return re.findall(r'X\((\w+), (\d+), "(\w+)",\s*(?:\\\s*)?"([^"]*)"\)', _source("core/codes.h"))


def _source(name: str) -> str:
    return (_CSRC / name).read_text(encoding="utf-8")


def codes() -> str:
    """Return the table of the device's error codes."""
    module = importlib.import_module("npugraph_strategies.runtimes._codes")
    rows = ([str(c.number), _code(c.name), c.cause, c.remedy] for c in module.CODES.values())
    return _table(["code", "name", "cause", "what to do"], rows)


def api(name: str) -> Callable[[], str]:
    """Return what makes the table of the public names of a module."""

    def text() -> str:
        module = importlib.import_module(name)
        return _table(["name", "what it is"], ([_code(n), _summary(n, getattr(module, n))] for n in module.__all__))

    return text


def _summary(name: str, value: object) -> str:
    """Return the first sentence of a docstring; a constant is described by its value."""
    if inspect.isclass(value) or inspect.isroutine(value) or inspect.ismodule(value):
        first = inspect.getdoc(value).partition("\n\n")[0]
        return " ".join(re.sub(r"``([^`]*)``", r"`\1`", first).split())
    return _CONSTANTS[name]


_CONSTANTS = {
    "ATTENTION": "The registry of the attention handlers.",
    "BUILTIN": "The registry of every handler of this package.",
    "FIA_V1": "The handler of `npu::npu_fused_infer_attention_score`.",
    "FIA_V2": "The handler of `npu::npu_fused_infer_attention_score_v2`.",
    "KEEP": "For a record: its last values stand, its event is signalled.",
    "MLA": "The handler of `atb::npu_multi_head_latent_attention`.",
    "PAGED_ATTENTION": "The handler of `atb::_npu_paged_attention`.",
}

PUBLIC = (
    "npugraph_strategies",
    "npugraph_strategies.handlers",
    "npugraph_strategies.runtimes",
    "npugraph_strategies.reference",
    "npugraph_strategies.simulator",
    "npugraph_strategies.errors",
)


def launcher_options() -> str:
    """Return the table of the options of the simulator's launcher."""
    module = importlib.import_module("npugraph_strategies.simulator._launcher")
    rows = (
        [", ".join([_code(o.flag)] + [_code(f"--no-{o.flag[2:]}")] * o.negatable), o.default or "", o.meaning]
        for o in module.OPTIONS
    )
    return _table(["option", "default", "meaning"], rows)


PARTS: dict[str, Callable[[], str]] = {
    "operators": operators,
    "error-tree": error_tree,
    "choices": choices,
    "codes": codes,
    "launcher-options": launcher_options,
    "simulator-settings": simulator_settings,
    "driver-codes": driver_codes,
    "driver-choices": driver_choices,
    "driver-operators": driver_operators,
    **{name: api(name) for name in PUBLIC},
}


def parts_of(text: str) -> list[str]:
    """Return the names of the generated parts in a page's text."""
    return [match[2] for match in _PART.finditer(text)]


def renewed(text: str) -> str:
    """Return a page's text with every generated part made anew."""
    return _PART.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}{match[3]}", text)


def main() -> int:
    """Renew all pages; say which ones changed."""
    for path in sorted((_ROOT / "docs").rglob("*.md")):
        before = path.read_text(encoding="utf-8")
        after = renewed(before)
        if after != before:
            path.write_text(after, encoding="utf-8")
            sys.stdout.write(f"renewed {path.relative_to(_ROOT)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
