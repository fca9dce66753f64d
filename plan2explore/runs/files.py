"""JSON in files: one object, or one in each line. What is read may be damaged, and is untrusted."""

import json
import logging
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from plan2explore.atomic import append, write_file
from plan2explore.untrusted import parse_object, read_file

log = logging.getLogger("plan2explore.runs")
LARGEST_JSON, LARGEST_LINES = 2**26, 2**30
"""Bytes. Ours have a few thousand, and a few million; an untrusted file must not fill the memory."""
FILES = (".csv", ".gif", ".html", ".jpg", ".json", ".md", ".mp4", ".pdf", ".png", ".svg")
"""Endings by which a name is taken for a file's."""


def write_json(path: Path, content: Any) -> None:
    """Writes strictly valid JSON (no NaN), whole or not at all."""
    write_file(path, [json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"])


def check_writable(path: Path) -> None:
    """What could not be written in the end is said at the beginning. Makes the folder, but not the file."""
    new = not path.exists()
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        open(path, "ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}.") from None


def check_folder(path: Path) -> None:
    """A folder that could not be made in the end, or was not meant, is said at the beginning. Makes nothing."""
    if path.suffix.lower() in FILES and not path.exists():
        raise ValueError(f"{path} is a file's name, and a folder is wanted: give another --out.")
    for each in (path, *path.parents):
        if each.exists() and not each.is_dir():
            raise ValueError(f"{each} is a file, and a folder is wanted: give another --out.")


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Adds one line of strictly valid JSON, all or nothing."""
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    with suppress(OSError), open(path, "rb") as file:  # it is missing, or empty
        file.seek(-1, os.SEEK_END)
        if file.read() != b"\n":  # its last writer was killed in the middle of a line
            line = b"\n" + line
    append(path, line)


def read_lines(path: Path, parse: Callable[[dict[str, Any]], Any] = dict) -> list[Any]:
    """What `parse` makes of each line's JSON object. Lines that are damaged, or that it refuses, are logged and skipped."""
    found = []
    for number, text in enumerate(split_lines(path)[0], 1):
        try:
            found.append(parse(parse_object(text)))  # type: ignore[arg-type]  # None is refused as all else
        except (LookupError, TypeError, ValueError):
            log.warning("Line %d of %s is damaged and was skipped.", number, path)
    return found


def split_lines(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines of a file, and what follows them: the line that was being written, if any."""
    if not path.is_file():
        return [], b""
    *whole, torn = read_file(path, LARGEST_LINES).split(b"\n")
    return whole, torn


def drop_later(path: Path, last: Mapping[str, float]) -> None:
    """Removes lines of which a number is beyond the last that counts, and a line that was never finished."""
    whole, torn = split_lines(path)

    def is_later(text: bytes) -> bool:
        line = parse_object(text) or {}
        return any(isinstance(line.get(name), int | float) and line[name] > most for name, most in last.items())

    kept = [line for line in whole if not is_later(line)]
    if torn or len(kept) < len(whole):
        write_file(path, [line + b"\n" for line in kept])
