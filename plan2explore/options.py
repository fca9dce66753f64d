"""What the options of all commands have in common: how they are read, also from a file, and a help that is short."""

import functools
import inspect
import tomllib
from argparse import ArgumentParser
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, make_dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro
import yaml
from docstring_parser import parse_from_object
from tyro.conf import UseAppendAction, arg

from .config import rename_flags

CONFIG = "A TOML or YAML file of options; those on the command line win."
IMPORT = "A module to import first: it may register environments and objectives, or start episodes. May be repeated."
COMMON = [
    ("config", Annotated[Path | None, arg(metavar="FILE", help=CONFIG)], None),
    ("import_", Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", metavar="MODULE", help=IMPORT)], ()),
]
"""Options of every command, which `take_option` takes out before the others are read."""
REPEATED = ("import", "probe", "env-arg", "vary", "agent")
"""Options of several values whose flag is repeated; that of others is followed by all of them."""


def parse(kind: Any, verb: str, arguments: list[str], brief: Sequence[str] = (), **defaults: Any) -> Any:
    """The options of a command, a dataclass; or what a function returns that is called with its options.

    Where `brief` names options, `--help` shows these alone, in this order, and `--help-all` shows all.
    """
    about = (inspect.getdoc(kind) or "").partition("\nArgs:")[0]
    options: dict[str, Any] = {"default": kind(**defaults)} if defaults else {}
    if brief and {"-h", "--help"} & set(arguments):
        kind, arguments, about = short(options["default"], brief), ["--help"], f"{about}\n\n--help-all shows every option."
        options = {}
    else:
        about += f"\n\n--config FILE: {CONFIG}\n\n--import MODULE: {IMPORT}"
    given = ["--help" if word == "--help-all" else word for word in rename_flags(arguments)]
    return tyro.cli(kind, prog=f"plan2explore {verb}", description=about, args=given, **options)


def command(function: Callable[..., int]) -> Callable[[list[str]], int]:
    """Makes a function of options one of a command's arguments."""

    @functools.wraps(function)
    def run(arguments: list[str]) -> int:
        return parse(function, function.__name__, arguments)

    return run


def short(default: Any, names: Sequence[str]) -> type:
    """A command with some of its options alone."""
    found: dict[str, tuple[Any, str | None, Any]] = {}

    def search(config: Any) -> None:
        hints = get_type_hints(type(config), include_extras=True)
        docs = {each.arg_name: " ".join((each.description or "").split()) for each in parse_from_object(type(config)).params}
        for each in fields(config):
            value = getattr(config, each.name)
            if is_dataclass(value):
                search(value)
            elif each.name == "objective":  # by its short name only
                found["method"] = str, docs[each.name], value
            else:
                found.setdefault(each.name, (hints[each.name], docs.get(each.name), value))

    search(default)
    shown = [(name, Annotated[hint, arg(help=text)], value) for name in names for hint, text, value in [found[name]]]
    return make_dataclass("Short", [*shown, *COMMON])


def take_option(arguments: list[str], flag: str) -> tuple[list[str], list[str]]:
    """The values of an option that every command takes, and the other arguments."""
    parser = ArgumentParser("plan2explore", add_help=False, allow_abbrev=False)
    parser.add_argument(flag, action="append", default=[], dest="values")
    found, others = parser.parse_known_args(arguments)
    return found.values, others


def flags_of(file: Path) -> list[str]:
    """The options of a file as the command line has them: `[agent.model] deter = 512` is `--agent.model.deter 512`."""
    try:
        text = file.read_text()
        content = tomllib.loads(text) if file.suffix == ".toml" else yaml.safe_load(text)
    except OSError as error:
        raise ValueError(f"--config {file} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"--config {file} is neither TOML (.toml) nor YAML: {error}.") from None
    if not isinstance(content, Mapping):
        raise ValueError(f"--config {file} has no options in it: write name = value (TOML) or name: value (YAML).")
    return list(_flags(content, "--"))


def _flags(content: Mapping[Any, Any], prefix: str) -> Iterator[str]:
    for key, value in content.items():
        name = str(key).replace("_", "-")
        flag = prefix + name
        if isinstance(value, Mapping):
            yield from _flags(value, f"{flag}.")
        elif isinstance(value, bool):
            yield flag if value else f"{prefix}no-{name}"
        else:
            words = list(map(str, value if isinstance(value, list) else [value]))
            yield from (word for each in words for word in (flag, each)) if name in REPEATED else (flag, *words)
