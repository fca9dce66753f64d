"""`--config FILE`: options of a command in a TOML or YAML file."""

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

REPEATED = ("probe", "env-arg", "vary")
"""Options of several values whose flag is repeated; that of others is followed by all of them."""


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
        elif isinstance(value, list) and name in REPEATED:
            yield from (word for each in value for word in (flag, str(each)))
        elif isinstance(value, list):
            yield from (flag, *map(str, value))
        else:
            yield from (flag, str(value))
