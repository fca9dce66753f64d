"""Files that are whole or not there at all, whenever the process ends: a side file, fsync, rename.

Side files begin with a dot, end in `.part` and are nobody's: the next writer of the folder may remove them.
"""

import json
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

log = logging.getLogger("plan2explore.runs")
LARGEST_JSON = 64 * 2**20
"""Bytes. Ours have a few thousand; a stranger's must not fill the memory."""


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Writes a file under another name and renames it. After a failure the old file is as it was."""
    side = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(side, "wb", buffering=0) as file:
            for piece in pieces:
                _write_all(file.fileno(), piece)
            os.fsync(file.fileno())
        os.replace(side, path)
        sync(path.parent)
    except BaseException as error:
        side.unlink(missing_ok=True)
        raise (_named(error, path) if isinstance(error, OSError) else error) from None


def _write_all(file: int, piece: bytes | memoryview) -> None:
    """A full disk takes a part of what it is given and complains only about the rest."""
    rest = memoryview(piece)
    while rest.nbytes:
        rest = rest[os.write(file, rest) :]


def _named(error: OSError, path: Path) -> OSError:
    """The same error, saying which file it was about."""
    return error if error.filename else type(error)(error.errno, error.strerror, str(path))


def sync(path: Path) -> None:
    """Makes what was written to a file, or renamed and removed in a folder, last through a power cut."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def remove_side_files(folder: Path) -> None:
    """Removes what writers left that were killed. Only for whoever may write the folder."""
    for side in folder.glob(".*.part"):
        side.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Writes strictly valid JSON (no NaN), whole or not at all."""
    write_file(path, [json.dumps(content, indent=1, allow_nan=False).encode() + b"\n"])


def read_json(path: Path) -> dict[str, Any]:
    """Reads a JSON object. Anything else is a `ValueError` that says what is wrong, without the file's name."""
    if not path.is_file():  # a pipe or a device would keep us waiting
        raise ValueError("is missing")
    if path.stat().st_size > LARGEST_JSON:
        raise ValueError(f"is larger than {LARGEST_JSON >> 20} MiB, so it is none of ours")
    content = parse_object(path.read_bytes())
    if content is None:
        raise ValueError("is damaged: it is not a JSON object")
    return content


def parse_object(text: bytes) -> dict[str, Any] | None:
    """A JSON object, or none if it is anything else."""
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def append(path: Path, data: bytes) -> None:
    """Adds to the end of a file, all or nothing: a full disk leaves it as it was."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        size = os.fstat(file).st_size
        try:
            _write_all(file, data)
        except OSError as error:
            os.ftruncate(file, size)
            raise _named(error, path) from None
    finally:
        os.close(file)


def append_line(path: Path, content: dict[str, Any]) -> None:
    """Adds one line of strictly valid JSON, all or nothing."""
    line = json.dumps(content, allow_nan=False).encode() + b"\n"
    append(path, b"\n" + line if _is_torn(path) else line)


def _is_torn(path: Path) -> bool:
    """Whether a file's last line has no end, since its writer was killed in the middle."""
    if not path.is_file() or path.stat().st_size == 0:
        return False
    with open(path, "rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read() != b"\n"


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All JSON objects of a file with one in each line. Damaged lines are named in the log and skipped."""
    whole, _ = split_lines(path)
    found = []
    for number, text in enumerate(whole, 1):
        content = parse_object(text)
        if content is None:
            log.warning("Line %d of %s is damaged and was skipped.", number, path)
        else:
            found.append(content)
    return found


def split_lines(path: Path) -> tuple[list[bytes], bytes]:
    """The whole lines of a file, and what follows them: the line that was being written, if any."""
    *whole, torn = path.read_bytes().split(b"\n") if path.is_file() else [b""]
    return whole, torn


def keep_lines(path: Path, wanted: Iterable[bytes]) -> None:
    """Replaces a file by some of its lines."""
    write_file(path, [line + b"\n" for line in wanted])
