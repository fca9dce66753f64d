"""A file is whole or as it was, and an error names it."""

import errno
import os

import pytest

from plan2explore.atomic import remove_side_files, write_file


def test_whatever_stops_a_writer_the_old_file_stays(tmp_path, monkeypatch):
    file = tmp_path / "file"
    write_file(file, [b"o", memoryview(b"ld")])
    real = os.write

    def full(where, data):
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(where, data[: len(data) // 2])

    def interrupted():
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_file(file, interrupted())
    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match=r"No space left on device: .*/file'"):
        write_file(file, [b"x" * 100])
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_side_files_of_killed_writers_are_removed_and_nothing_else(tmp_path):
    for name in (".file.77.part", ".hidden", "mine.part"):
        (tmp_path / name).write_bytes(b"x")
    remove_side_files(tmp_path)
    assert sorted(each.name for each in tmp_path.iterdir()) == [".hidden", "mine.part"]
