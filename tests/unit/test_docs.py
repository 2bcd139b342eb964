"""The documentation: its code runs, its links lead somewhere, its tables say what the code says."""

from __future__ import annotations

import doctest
import importlib
import inspect
from pathlib import Path

import pytest
from click.testing import CliRunner

import npugraph_strategies
from npugraph_strategies import errors
from npugraph_strategies.cli._group import cli
from support import generated, pages

SOURCE = Path(npugraph_strategies.__path__[0])


def modules_with_examples():
    """Return the names of the package's modules in whose docstrings something is to be tried."""
    return [
        ".".join((SOURCE.name, *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        if ">>> " in path.read_text(encoding="utf-8")
    ]


def public_objects():
    """Return what someone calls, and can call without an NPU: neither protocols nor errors."""
    found = {
        name: value
        for module in map(importlib.import_module, generated.PUBLIC)
        for name in module.__all__
        for value in [getattr(module, name)]
        if inspect.isclass(value) or inspect.isroutine(value)
    }
    kept = (name for name, value in found.items() if not getattr(value, "_is_protocol", False))
    return {name: found[name] for name in sorted(kept) if name not in {*errors.__all__, "NpuRuntime", "Control"}}


def shell_lines(page):
    """Return the lines of a page's shell blocks."""
    return [line for block in pages.blocks(page) if block.info == "sh" for line in block.code.splitlines()]


def text_of(page):
    """Return a page's text."""
    return (pages.ROOT / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", [page for page in pages.PAGES if any(b.runs for b in pages.blocks(page))])
def test_the_code_on_a_page_runs(page):
    """The code blocks of a page, run in order, do what the page says."""
    pages.run(page)


@pytest.mark.parametrize("page", pages.PAGES)
def test_every_fence_is_of_a_known_kind(page):
    """No block escapes execution by a misspelled fence."""
    kinds = {"python", "python npu", "python no-run", "pycon", "console", "sh", "text", "mermaid"}
    assert {block.info for block in pages.blocks(page)} <= kinds


@pytest.mark.parametrize("page", pages.PAGES)
def test_what_is_not_run_says_so(page):
    """A Python block that is only compiled gives its reason in the line before it."""
    lines = text_of(page).splitlines()
    for block in pages.blocks(page):
        if block.info == "python no-run":
            assert "only compiled" in lines[block.line - 4]


@pytest.mark.parametrize("page", pages.PAGES)
def test_links_lead_somewhere(page):
    """A link to another page, or to a heading on one, resolves."""
    for link in pages.links(page):
        if "://" in link:
            continue
        target, _, fragment = link.partition("#")
        path = ((pages.ROOT / page).parent / target).resolve() if target else pages.ROOT / page
        assert path.exists(), f"{page} links to {link}"
        if fragment:
            assert fragment in pages.anchors(path.relative_to(pages.ROOT).as_posix()), f"{page} links to {link}"


@pytest.mark.parametrize(
    "page", [page for page in pages.PAGES if page.startswith("docs/") and page != "docs/README.md"]
)
def test_the_index_lists_every_page(page):
    """Each page can be reached from the index."""
    assert page.removeprefix("docs/") in {link.partition("#")[0] for link in pages.links("docs/README.md")}


@pytest.mark.parametrize("page", [page for page in pages.PAGES if generated.parts_of(text_of(page))])
def test_generated_parts_are_up_to_date(page):
    """What follows from the code agrees with the code."""
    assert generated.renewed(text_of(page)) == text_of(page), "run: python tests/support/generated.py"


def test_every_generated_part_stands_on_some_page():
    """No table is made for nobody."""
    assert {part for page in pages.PAGES for part in generated.parts_of(text_of(page))} == set(generated.PARTS)


def test_every_public_package_is_in_the_reference():
    """The page of public names covers each package that declares some."""
    declaring = {
        f"{SOURCE.name}.{name}".removesuffix(".__init__")
        for path in sorted(SOURCE.rglob("*.py"))
        for name in [".".join(path.relative_to(SOURCE).with_suffix("").parts)]
        if not any(part.startswith("_") and part != "__init__" for part in name.split(".")) and name != "__init__"
        if "__all__ = [" in path.read_text(encoding="utf-8")
    } | {SOURCE.name}
    assert set(generated.PUBLIC) == {name for name in declaring if not name.startswith(f"{SOURCE.name}.cli")}


def test_every_error_has_a_remedy():
    """The page of errors says what to do about each class that is raised."""
    rows = [line for line in text_of("docs/reference/errors.md").splitlines() if line.startswith("| `")]
    families = {base.__name__ for name in errors.__all__ for base in getattr(errors, name).__bases__}
    raised = {name for name in errors.__all__ if name not in families or name == "DeviceError"}
    assert {row.split("`")[1] for row in rows} >= raised


def test_every_command_is_on_its_page():
    """The page of the command line has a heading for each command, and names each of its options and arguments."""
    text = text_of("docs/reference/cli.md")
    for name, command in ((name, cli.get_command(None, name)) for name in cli.list_commands(None)):
        assert f"\n## {name}\n" in text
        for parameter in command.params:
            called = parameter.opts[0] if parameter.param_type_name == "option" else parameter.name.upper()
            assert f"`{called}" in text


def test_readme_and_ci_run_the_same_tests():
    """The one line that passes all tests is the same for people and for CI."""
    script = text_of(".ci/run").splitlines()
    assert [line for line in shell_lines("README.md") if "tox" in line] == [line for line in script if "tox" in line]


def test_the_readme_shows_the_verdict_of_the_demo():
    """The last line in the README is the last line of the demo."""
    shown = next(b.code for b in pages.blocks("README.md") if "Decode steps" in b.code).splitlines()[-1]
    assert CliRunner().invoke(cli, ["demo"]).output.splitlines()[-1] == shown


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples_run(name):
    """The examples in a module's docstrings give what they show."""
    failed, tried = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert tried
    assert not failed


@pytest.mark.parametrize("name", public_objects())
def test_every_public_object_has_an_example(name):
    """The docstring of what one calls shows a call; the test above runs it."""
    assert ">>> " in public_objects()[name].__doc__
