"""Runs on a file system that is too small, then makes room. A process of its own: the file system is seen by it alone."""

import contextlib
import errno
import hashlib
import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from nano import command, in_turn, parameters
from sizes import quick

from plan2explore import atomic
from plan2explore.cli import main
from plan2explore.replay.files import EpisodeFolder


class SmallFileSystem:
    """A file system in memory, of a size that can be changed."""

    def __init__(self, path: Path, kilobytes: int) -> None:
        self.path = path
        path.mkdir()
        self._mount(f"size={kilobytes}k")

    def make_room(self) -> None:
        self._mount("remount,size=50m")

    def _mount(self, options: str) -> None:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", str(self.path)], check=True, capture_output=True)


class CountedBytes:
    """Where nothing can be mounted: writes fail when so many bytes were written, as they do on a full disk."""

    def __init__(self, path: Path, kilobytes: int) -> None:
        path.mkdir()
        self.left: float = 1024 * kilobytes
        write_all = atomic._write_all

        def counted_all(file: int, piece: Any) -> None:
            self.spend(len(piece))
            write_all(file, piece)

        atomic._write_all = counted_all

    def spend(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")

    def make_room(self) -> None:
        self.left = float("inf")


DISKS = {"mounted": SmallFileSystem, "counted": CountedBytes}


def run(arguments: list[str]) -> tuple[int, str]:
    """Status and last words of the command."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        try:
            main(arguments)
        except SystemExit as end:
            return int(end.code or 0), said.getvalue()
    return 0, said.getvalue()


def fill_up(disk: Any, path: Path) -> dict[str, Any]:
    """What happens on a small disk, and what is there before and after room is made."""
    arguments = command(path / "run", in_turn(checkpoint_seconds=0.0, evaluate_episodes=0))
    status, said = run(arguments)
    numbers = EpisodeFolder(path / "run" / "episodes", read_only=True).numbers()
    loaded = [number for number, _ in EpisodeFolder(path / "run" / "episodes", read_only=True).load_all()]
    updates = int(parameters(path / "run")["update"])
    disk.make_room()
    after, _ = run(arguments)
    digest = hashlib.sha256(b"".join(array.tobytes() for array in parameters(path / "run").values())).hexdigest()
    return {
        "status": status, "said": said.strip().splitlines()[-1], "episodes": numbers,
        "loaded": loaded, "updates": updates, "after": after, "parameters": digest,
    }  # fmt: skip


if __name__ == "__main__":
    with quick():
        folder, kind, *sizes = Path(sys.argv[1]), DISKS[sys.argv[2]], *sys.argv[3:]
        print(json.dumps([fill_up(kind(folder / size, int(size)), folder / size) for size in sizes]))
