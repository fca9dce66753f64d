"""What is demanded of files that others may have written, whoever reads them. Nothing in them is executed."""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from plan2explore import __version__

LARGEST = 2**64
"""Larger whole numbers are refused: no array could hold them."""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Characters by which text could steer a terminal: all control characters but tab and newline."""
FOREIGN = "wandb"
"""A folder of a run that Weights & Biases writes and nothing here reads."""


def parse_object(text: bytes | str) -> dict[str, Any] | None:
    """An object of strict JSON, or none: no NaN, no number that is not finite or too large, no control characters."""
    try:
        content = json.loads(text, parse_float=_number, parse_int=_number, parse_constant=_number)
        if not isinstance(content, dict) or any(map(CONTROL.search, _texts(content))):
            return None
    except (ValueError, RecursionError):
        return None
    return content


def _number(word: str) -> int | float:
    number, most = (int(word), LARGEST) if word.lstrip("-").isdigit() else (float(word), math.inf)
    if not abs(number) < most:
        raise ValueError(f"{word:.40} is no number")
    return number


def _texts(content: Any) -> Iterator[str]:
    if isinstance(content, str):
        yield content
    elif isinstance(content, dict | list):
        for part in (*content, *content.values()) if isinstance(content, dict) else content:
            yield from _texts(part)


class NewerFormat(ValueError):
    """A file of a newer version of this package. Nothing is wrong with it."""


def read_versioned(name: object, text: bytes | str, known: int, kinds: Mapping[str, type]) -> dict[str, Any]:
    """A strict JSON object with the number of its format, at most `known`, and with fields of these types.

    Anything else is a `ValueError` about `name`; a larger number is a `NewerFormat`.
    """
    content = parse_object(text)
    if content is None:
        raise ValueError(f"{name} is damaged: it is not a JSON object")
    number, version = content.get("format"), content.get("version", "unknown")
    if type(number) is int and number > known:
        raise NewerFormat(
            f"{name} was made by a newer version of plan2explore ({version!s:.20}, format {number}; this is {__version__}, "
            f"format {known}): update plan2explore"
        )
    for field, kind in ({"format": int} | dict(kinds)).items():
        if type(content.get(field)) is not kind or (field == "format" and content[field] < 1):
            raise ValueError(f"{name} is damaged: no proper {field!r} in it")
    return content


def read_file(path: Path, most: int) -> bytes:
    """A plain file of at most so many bytes. Others would fill the memory or, as pipes and devices, keep us waiting."""
    if not path.is_file():
        raise ValueError(f"{path} is missing")
    if (size := path.stat().st_size) > most:
        raise ValueError(f"{path} has {size:,} bytes; at most {most:,} are read")
    return path.read_bytes()


def check_counters(values: Mapping[str, Any], most: Mapping[str, int]) -> None:
    """Raises a `ValueError` unless these are whole numbers from 0 to the most that each can be."""
    for name, limit in most.items():
        value = values.get(name)
        if type(value) is not int or not 0 <= value <= limit:
            raise ValueError(f"its {name} is {value!r:.40}; a whole number from 0 to {limit:,} is expected")


def check_links(folder: Path, foreign: str = FOREIGN) -> None:
    """Raises a `ValueError` for a link that leads out of a folder, and for pipes and devices in it: nothing is followed.

    Folders called `foreign` are not looked into.
    """
    root = os.path.realpath(folder)
    for place, folders, files in os.walk(folder):
        for path in (os.path.join(place, name) for name in (*folders, *files)):
            if os.path.islink(path):
                target = os.path.realpath(path)
                if os.path.commonpath([root, target]) != root:
                    raise ValueError(f"{path} is a link out of {root}, to {target}: put a copy in its place.")
            elif not os.path.isdir(path) and not os.path.isfile(path) and os.path.lexists(path):
                raise ValueError(f"{path} is neither a file nor a folder: remove it.")
        folders[:] = [name for name in folders if name != foreign]


def printable(text: str) -> str:
    """Text as a terminal may have it: control characters as `\\x1b`."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
