"""What is demanded of files that others may have written, whoever reads them. Nothing in them is executed."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

LARGEST = 2**64
"""Whole numbers beyond it are nobody's: no array could hold them."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters by which text could steer a terminal: all control characters but tab and newline."""
FOREIGN = "wandb"
"""A folder of a run that Weights & Biases writes and nothing here reads."""


def parse_object(text: bytes | str) -> dict[str, Any] | None:
    """An object of strict JSON, or none: no NaN, no number that is not finite or too large, no control characters."""
    try:
        content = json.loads(text, parse_float=_finite, parse_int=_moderate, parse_constant=_refuse)
        if not isinstance(content, dict) or any(map(CONTROL.search, _texts(content))):
            return None
    except (ValueError, RecursionError):
        return None
    return content


def _finite(word: str) -> float:
    number = float(word)
    return number if abs(number) < float("inf") else _refuse(word)


def _moderate(word: str) -> int:
    return int(word) if len(word) <= len(str(LARGEST)) and abs(int(word)) < LARGEST else _refuse(word)


def _refuse(word: str) -> Any:
    raise ValueError(f"{word:.40} is no number")


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for part in content:
            yield from _texts(part)
        if isinstance(content, dict):
            for part in content.values():
                yield from _texts(part)


def check_counters(values: Mapping[str, Any], most: Mapping[str, int]) -> None:
    """Raises a `ValueError` unless these are whole numbers from 0 to the most that each can be."""
    for name, limit in most.items():
        value = values.get(name)
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"its {name} is {value!r:.40}; a whole number from 0 to {limit:,} is expected")


def check_links(folder: Path, root: str | None = None) -> None:
    """Raises a `ValueError` for a link that leads out of a folder, and for pipes and devices in it: nothing is followed."""
    root = root or os.path.realpath(folder)
    with suppress(FileNotFoundError, PermissionError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink():
                target = os.path.realpath(entry.path)
                if os.path.commonpath([root, target]) != root:
                    raise ValueError(f"{entry.path} is a link out of the run, to {target}: put a copy in its place.")
            elif entry.is_dir():
                if entry.name != FOREIGN:
                    check_links(Path(entry.path), root)
            elif not entry.is_file():
                raise ValueError(f"{entry.path} is neither a file nor a folder: remove it.")


def printable(text: str) -> str:
    """Text as a terminal may have it: control characters as `\\x1b`."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
