"""The documentation against the package: commands, axes, settings and equations that it names are there."""

import ast
import contextlib
import functools
import io
import re
import tomllib
from pathlib import Path

import pytest

from plan2explore import __version__
from plan2explore.cli import VERBS, main

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
COMMAND = re.compile(r"(?<!import )plan2explore ((?:bench )?[a-z]+)((?:[^`\n#]|\\\n)*)")
ARRAYS = {"Bool", "Float", "Int", "Integer", "Key", "Num", "Real", "Shaped", "UInt", "UInt8"}


def test_the_version_is_the_same_everywhere():
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    latest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    package = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert latest and __version__ == package == cited == latest[1]


def commands() -> dict[str, set[str]]:
    """The flags that pages use with each verb, in blocks and in lines."""
    used: dict[str, set[str]] = {}
    for page in PAGES:
        text = page.read_text()
        shell = re.findall(r"```\w*\n(.*?)```", re.sub(r"```(?:python|text)\n.*?```", "", text, flags=re.S), re.S)
        inline = re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))
        for code in (*shell, *inline):
            for verb, rest in COMMAND.findall(code):
                used.setdefault(verb, set()).update(re.findall(r"(?<!\S)--[a-z][\w.-]*", rest))
    return used


@functools.cache
def flags_of(verb: str) -> set[str]:
    """The flags that a verb's help tells."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed), pytest.raises(SystemExit):
        patch.setenv("COLUMNS", "200")  # no name is cut in two
        asked = "--help-all" if verb in ("explore", "learn", "sweep", "reproduce") else "--help"
        main([*verb.split(), asked])
    return {asked} | set(re.findall(r"--[a-z][\w.-]*", printed.getvalue()))


@pytest.mark.parametrize("verb", sorted(commands()))
def test_commands_that_pages_name_exist_with_their_flags(verb):
    assert verb.split()[0] in VERBS
    missing = commands()[verb] - flags_of(verb)
    assert not missing, f"plan2explore {verb} has no {sorted(missing)}"


def test_flags_that_pages_name_alone_belong_to_some_command():
    known = set.union(*(flags_of(verb) for verb in commands()))
    for page in PAGES:
        for flag in re.findall(r"`(--[a-z][\w.-]*)", page.read_text()):
            assert flag in known or flag.startswith("--xla"), f"{page.name} names {flag}"


def test_every_verb_is_in_the_pages():
    assert {verb.split()[0] for verb in commands()} >= set(VERBS)


def axes_in_use() -> set[str]:
    """Names of axes in the package's annotations; numbers, `...`, `_` and the star of `*batch` are no names."""
    found = set()
    for file in ROOT.glob("plan2explore/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Subscript) and getattr(node.value, "id", "") in ARRAYS:
                assert isinstance(node.slice, ast.Tuple), f"{file}:{node.lineno} has no axes"
                shape = ast.literal_eval(node.slice.elts[-1])
                found |= {axis.lstrip("*") for axis in shape.split()}
    return {axis for axis in found if axis.isidentifier() and axis != "_"}


def test_the_legend_has_every_axis_once_and_no_other():
    rows = re.findall(r"^\| (`[^|]*`) \|", (ROOT / "docs" / "axes.md").read_text(), re.M)
    listed = [axis for row in rows for axis in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    assert set(listed) == axes_in_use() and "horizon" in listed


def test_switches_of_the_algorithm_page_are_settings():
    named = set(re.findall(r"`(agent\.[\w.]+)`", (ROOT / "docs" / "algorithm.md").read_text()))
    assert len(named) > 10 and {"--" + name.replace("_", "-") for name in named} <= flags_of("explore")


def test_functions_of_the_algorithm_page_are_in_the_package():
    links = re.findall(r"api(?:_agent)?\.md#(plan2explore[\w.]+)", (ROOT / "docs" / "algorithm.md").read_text())
    assert len(links) > 20
    for link in links:
        *_, name = link.split(".")
        files = [ROOT.joinpath(*link.split(".")[:depth]).with_suffix(".py") for depth in range(2, 6)]
        (file,) = [each for each in dict.fromkeys(files) if each.is_file()]
        assert re.search(rf"^ *(def|class) {name}\b", file.read_text(), re.M), link
