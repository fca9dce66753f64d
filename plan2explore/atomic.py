"""Files that are whole or not there at all, whenever the process ends: a side file, fsync, rename.

Side files begin with a dot and end in `.part`; the next writer of the folder may remove them.
"""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


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
        with suppress(OSError):  # what went wrong first is what is told
            side.unlink()
        raise (_named(error, path) if isinstance(error, OSError) else error) from None


def append(path: Path, data: bytes) -> None:
    """Adds to the end of a file, all or nothing: a full disk leaves it as it was."""
    with open(path, "ab", buffering=0) as file:
        size = file.tell()
        try:
            _write_all(file.fileno(), data)
        except OSError as error:
            file.truncate(size)
            raise _named(error, path) from None


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


def set_aside(files: Iterable[Path]) -> Path:
    """Moves files of one name, whatever their endings, to `set-aside/` beside them; the place of the first."""
    there = [file for file in files if os.path.lexists(file)]
    name, aside, count = there[0].name.split(".")[0], there[0].parent / "set-aside", 0
    aside.mkdir(exist_ok=True)
    free = name
    while any(aside.glob(f"{free}.*")):  # the name was used again after an earlier one was set aside
        count += 1
        free = f"{name}-{count}"
    for file in there:
        os.replace(file, aside / file.name.replace(name, free, 1))
    sync(aside.parent)
    return aside / there[0].name.replace(name, free, 1)


def remove_side_files(folder: Path) -> None:
    """Removes what writers left that were killed. Only for whoever may write the folder."""
    for side in folder.glob(".*.part"):
        side.unlink(missing_ok=True)
