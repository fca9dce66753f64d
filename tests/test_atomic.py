"""A file is whole or as it was, and an error names it."""

import errno
import subprocess
import sys

import pytest
from patience import PATIENCE

from plan2explore.atomic import remove_side_files, write_file

FILLS_THE_DISK = """
import resource, signal, sys
from pathlib import Path
from plan2explore.atomic import append, write_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
for write in (lambda file: write_file(file, [b"x" * 900, b"x" * 900]), lambda file: append(file, b"x" * 1800)):
    try:
        write(Path(sys.argv[1]))
    except OSError as error:
        print(error.errno, error.filename)
"""


def test_a_file_that_cannot_grow_stays_as_it_was(tmp_path):
    """A file that may not grow fails as one on a full disk does: in the middle, after a part of it was written."""
    file = tmp_path / "file"
    file.write_bytes(b"old")
    done = subprocess.run([sys.executable, "-c", FILLS_THE_DISK, file], capture_output=True, text=True, timeout=PATIENCE)
    assert done.stdout.splitlines() == [f"{errno.EFBIG} {file}"] * 2, done.stderr
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_whatever_stops_a_writer_the_old_file_stays(tmp_path):
    file = tmp_path / "file"
    write_file(file, [b"o", memoryview(b"ld")])

    def interrupted():
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(file, interrupted())
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_side_files_of_killed_writers_are_removed_and_nothing_else(tmp_path):
    for name in (".file.77.part", ".hidden", "mine.part"):
        (tmp_path / name).write_bytes(b"x")
    remove_side_files(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".hidden", "mine.part"]
