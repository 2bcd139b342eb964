"""The documentation as data: its pages, their code blocks and links, and a way to run the blocks.

What a fence says after its language decides what becomes of it: ``python`` is run, ``pycon`` is run as a doctest,
``console`` runs a command of ours and compares what it writes, ``python npu`` is run where there is an NPU and compiled
elsewhere, ``python no-run`` is only compiled. The rest is text. All blocks of a page share one namespace and run in
order.
"""

from __future__ import annotations

import doctest
import re
import shlex
import sys
import types
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
from click.testing import CliRunner

from npugraph_strategies.cli._group import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["PAGES", "ROOT", "Block", "anchors", "blocks", "links", "run", "run_on_npu", "title"]

ROOT = Path(__file__).resolve().parents[2]
PAGES = tuple(
    sorted(path.relative_to(ROOT).as_posix() for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
)

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@attrs.frozen
class Block:
    """One fenced block: where it stands, what its fence says, what is in it."""

    page: str
    line: int
    info: str
    code: str

    @property
    def runs(self) -> bool:
        """Tell whether it is executed."""
        return self.info in {"python", "pycon", "console"}


def _text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks of a page, in order; `line` is that of the first line inside the fence."""
    text = _text(page)
    return [
        Block(page, text.count("\n", 0, match.start()) + 2, match["info"].strip(), match["code"])
        for match in _FENCE.finditer(text)
    ]


def _prose(page: str) -> str:
    return _FENCE.sub("", _text(page))


def links(page: str) -> list[str]:
    """Return the targets of a page's links, those in code left out."""
    return _LINK.findall(_prose(page))


def title(page: str) -> str:
    """Return the first heading of a page."""
    return _HEADING.findall(_prose(page))[0]


def anchors(page: str) -> set[str]:
    """Return the fragments that a page's headings make, as GitHub spells them."""
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(_prose(page)))
    return {heading.replace(" ", "-") for heading in kept}


def run(page: str) -> None:
    """Execute a page."""
    with _module(page) as module:
        for block in blocks(page):
            if block.info == "python":
                exec(_compiled(block), module.__dict__)  # noqa: S102 - our own pages
            elif block.info == "pycon":
                _doctest(block, module)
            elif block.info == "console":
                _console(block)
            elif block.info.startswith("python"):
                _compiled(block)


def run_on_npu(page: str) -> None:
    """Execute those blocks of a page that need an NPU."""
    with _module(page) as module:
        for block in blocks(page):
            if block.info == "python npu":
                exec(_compiled(block), module.__dict__)  # noqa: S102 - our own pages


@contextmanager
def _module(page: str) -> Iterator[types.ModuleType]:
    """Make a module for a page, known to the interpreter while it runs, since classes look for theirs."""
    name = f"page_{re.sub(r'[^a-z0-9]', '_', page.lower())}"
    module = sys.modules[name] = types.ModuleType(name)
    try:
        yield module
    finally:
        del sys.modules[name]


def _compiled(block: Block) -> types.CodeType:
    """Compile a block so that tracebacks give the page's own line numbers."""
    return compile("\n" * (block.line - 1) + block.code, str(ROOT / block.page), "exec")


def _doctest(block: Block, module: types.ModuleType) -> None:
    test = doctest.DocTestParser().get_doctest(block.code, {}, block.page, str(ROOT / block.page), block.line - 1)
    test.globs = module.__dict__
    doctest.DebugRunner(optionflags=_FLAGS).run(test, clear_globs=False)


def _console(block: Block) -> None:
    """Run each ``$ npugraph-strategies ...`` of a block in this process, and compare its output if some is shown."""
    for part in re.split(r"^\$ ", block.code, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        program, *arguments = shlex.split(command, comments=True)
        assert program == "npugraph-strategies", f"{block.page}:{block.line}: only our own command is run"
        result = CliRunner(env={"COLUMNS": "80"}).invoke(cli, arguments, prog_name=program)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        shown = doctest.OutputChecker().check_output(expected, result.output, _FLAGS)
        assert not expected.strip() or shown, f"{block.page}:{block.line}: {command} wrote\n{result.output}"
