"""A sweep's folder on object storage (s3, gs, ...), through fsspec.

A cell runs in a scratch folder of its machine. What there is of its run is fetched first; whenever the run has a new
checkpoint, and at the end, what has changed is copied back: so the cell can be resumed on any machine. Storage has no locks,
so whoever runs a cell holds a lease, which others take once it shows no sign of life.
"""

import json
import logging
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..device import cache_folder
from ..runs.folder import LockedError, RunError
from ..untrusted import parse_object

log = logging.getLogger("plan2explore.scale")
BEAT = 5.0  # seconds between a holder's signs of life
DEAD = 45.0  # seconds without one after which others may take a lease
TAIL = 65_536  # bytes at the end of a run's metrics that are fetched while it runs
LOGS = ("cells.jsonl", "results.csv")
DESCRIPTION = re.compile(r"(.*/)?(checkpoints|snapshots)/\d+\.json")
"""Files that make a checkpoint exist: written last, removed first."""
LOCAL = re.compile(r"(.*/)?(lock|\..*\.part)")
"""Files of a process: never copied."""


def place_of(out: Path | str) -> Path | str:
    """A sweep's folder as it was given: an address of fsspec's, such as s3://bucket/sweep, or else a path."""
    return out if isinstance(out, str) and re.match(r"[a-z][a-z0-9+]+://", out) else Path(out)


def local_copy(address: str, bulk: bool = False) -> Path:
    """Copies a sweep or a run from storage, to be read here; its folder in the user's cache.

    Without checkpoints, and without episodes and snapshots unless `bulk` is asked for. What is there already stays.
    """
    storage = Storage(address)
    left_out = {"locks", "checkpoints", "tensorboard"} | (set() if bulk else {"episodes", "snapshots"})
    names = [name for name in storage.files("") if not left_out & set(name.split("/"))]
    if not names:
        raise ValueError(f"There is nothing at {address}.")
    folder = cache_folder() / "storage" / re.sub(r"[^\w.=+-]", "_", address)
    there = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}
    for name in there - set(names):
        (folder / name).unlink()
    storage.fetch([name for name in names if name not in there or not name.endswith((".npz", ".safetensors"))], folder)
    return folder


class Storage:
    """The folder of a sweep at an address."""

    def __init__(self, address: str) -> None:
        try:
            import fsspec

            folders = {"auto_mkdir": True} if address.startswith("file:") else {}  # object storage has none
            self.fs, self.root = fsspec.url_to_fs(address.rstrip("/"), **folders)
        except (ImportError, ValueError) as error:
            raise ValueError(
                f"{address} cannot be opened ({error}): pip install 'plan2explore[scale]', and s3fs for s3, gcsfs for gs."
            ) from None
        self.address = address
        self._first_beats: dict[str, bytes] = {}

    def at(self, name: str) -> str:
        """Where a file is, as the file system calls it."""
        return f"{self.root}/{name}"

    def files(self, below: str) -> list[str]:
        """Names of all files below a folder."""
        self.fs.invalidate_cache()
        return sorted(path.removeprefix(f"{self.root}/") for path in self.fs.find(self.at(below).rstrip("/")))

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """The contents of those files that are there."""
        places = {self.at(name): name for name in names}
        found = self.fs.cat(list(places), on_error="return") if places else {}
        for error in found.values():
            if isinstance(error, Exception) and not isinstance(error, FileNotFoundError):
                raise error
        return {places[place]: content for place, content in found.items() if isinstance(content, bytes)}

    def fetch(self, names: Iterable[str], folder: Path) -> None:
        """Copies files into a folder."""
        files = {name: (folder / name).resolve() for name in names}
        for file in files.values():
            if not file.is_relative_to(folder.resolve()):
                raise ValueError(f"{self.address} has a file that leads out of it, to {file}.")
            file.parent.mkdir(parents=True, exist_ok=True)
        if files:
            self.fs.get([self.at(name) for name in files], [str(file) for file in files.values()])

    @contextmanager
    def logs(self, cells: Iterable[str]) -> Iterator[Path]:
        """A folder for a while, with what tells which cells are finished. What is added there is added to the storage.

        Unless the work there raises: a cell is not finished before all of its run is stored.
        """
        with TemporaryDirectory(prefix="plan2explore-") as scratch:
            folder = Path(scratch)
            (folder / "locks").mkdir()
            before = self.read([*LOGS, *(f"runs/{cell}/run.json" for cell in cells)])
            for name, content in before.items():
                _write(folder / name, content)
            yield folder
            files = [folder / name for name in LOGS if (folder / name).exists()]
            added = {file.name: file.read_bytes()[len(before.get(file.name, b"")) :] for file in files}
            if not any(added.values()):
                return
            with Lease(self, "files").held(wait=True):
                now = self.read(added)
                for name, lines in added.items():
                    if name.endswith(".csv") and name in now and name not in before:  # others wrote its header meanwhile
                        lines = lines.partition(b"\n")[2]
                    self.fs.pipe_file(self.at(name), now.get(name, b"") + lines)

    @contextmanager
    def mirrored(self, name: str, folder: Path, lease: "Lease") -> Iterator[None]:
        """A cell's run in a folder: fetched, and meanwhile and at the end copied back."""
        self.fetch(self.files(f"runs/{name}"), folder)
        mirror = Mirror(self, f"runs/{name}", folder, lease)
        try:
            with repeated(1.0, mirror.copy_checkpoint):
                yield
        finally:
            mirror.copy()

    def fetch_progress(self, cells: Collection[str], folder: Path) -> None:
        """Fetches who has which cells, and how far they are."""
        newest = {name.split("/")[1]: name for name in self.files("locks")}
        for name, text in self.read(name for cell, name in newest.items() if cell in cells).items():
            cell = name.split("/")[1]
            if text == self._first_beats.setdefault(cell, text):  # of a process that died before: no sign of life
                continue
            _write(folder / "locks" / cell, text)
            for file in (f"runs/{cell}/metrics.jsonl", f"runs/{cell}/evaluations.jsonl"):
                with suppress(FileNotFoundError):
                    start = max(0, self.fs.size(self.at(file)) - TAIL)
                    _write(folder / file, self.fs.cat_file(self.at(file), start=start))


class Mirror:
    """Copies to storage what has changed in a folder since it was fetched from there."""

    def __init__(self, storage: Storage, below: str, folder: Path, lease: "Lease") -> None:
        self.storage, self.below, self.folder, self.lease = storage, below, folder, lease
        self.sent = self._local()

    def _local(self) -> dict[str, tuple[int, int]]:
        """Size and time of the folder's files, descriptions of checkpoints last."""
        found = {}
        for file in (self.folder / self.below).rglob("*"):
            name = file.relative_to(self.folder).as_posix()
            with suppress(FileNotFoundError):
                if file.is_file() and not LOCAL.fullmatch(name):
                    found[name] = (file.stat().st_size, file.stat().st_mtime_ns)
        return dict(sorted(found.items(), key=lambda item: bool(DESCRIPTION.fullmatch(item[0]))))

    def copy_checkpoint(self) -> None:
        """Copies all, if there is a new checkpoint."""
        if any(self.sent.get(name) != stat for name, stat in self._local().items() if DESCRIPTION.fullmatch(name)):
            try:
                self.copy()
            except FileNotFoundError:  # a file was replaced by a newer one meanwhile
                pass
            except Exception as error:  # of whatever library speaks with the storage
                log.warning("%s is tried again: %s", self.storage.address, error)

    def copy(self) -> None:
        """Copies what has changed, so that all that a checkpoint needs is there before its description."""
        local = self._local()
        for name, stat in local.items():
            if self.sent.get(name) != stat:
                self.lease.check()
                self.storage.fs.put_file(str(self.folder / name), self.storage.at(name))
                self.sent[name] = stat
        for name in sorted(self.sent.keys() - local.keys(), key=lambda name: not DESCRIPTION.fullmatch(name)):
            with suppress(FileNotFoundError):
                self.storage.fs.rm_file(self.storage.at(name))
            del self.sent[name]


class Lease:
    """The right to write a cell, or the sweep's own files.

    It is a numbered file, and the highest number holds. Storage makes a file only if there is none of its name, so each
    number has one holder, who writes it again every few seconds. One who could not for too long has lost it.
    """

    def __init__(self, storage: Storage, name: str) -> None:
        self.storage, self.name, self.number = storage, name, 0
        self._alive = 0.0  # when it was last known to be ours
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._holder: dict[str, Any] = {"process": os.getpid(), "host": socket.gethostname(), "since": now, "beat": 0}

    @contextmanager
    def held(self, wait: bool = False) -> Iterator["Lease"]:
        """Takes it once it is free, or its holder dead. A `LockedError` if the holder lives, but with `wait`."""
        seen, since = None, 0.0
        while True:
            number, text = found = self._newest()
            holder = parse_object(text) or {}
            dead = found == seen and time.monotonic() - since > DEAD
            if not number or holder.get("free") or dead:
                if self._claim(number + 1):
                    break
            elif found != seen:
                if seen is not None and not wait:
                    who = f"process {holder.get('process')} on {holder.get('host')} since {holder.get('since')}"
                    raise LockedError(Path(self.name), who)
                seen, since = found, time.monotonic()
            time.sleep(BEAT / 4)
        try:
            with repeated(BEAT, self._renew):
                yield self
        finally:
            if self._newest()[0] == self.number:
                self.storage.fs.pipe_file(self._file(), b'{"free": true}')

    def check(self) -> None:
        """Raises if another may have it."""
        if time.monotonic() - self._alive > DEAD / 2:
            raise RunError(f"{self.storage.address} was not reached for too long: another process may have {self.name}.")

    def _newest(self) -> tuple[int, bytes]:
        """The highest number, 0 if there is none, and what its holder wrote."""
        names = self.storage.files(f"locks/{self.name}")
        if not names:
            return 0, b""
        return int(names[-1].rpartition("/")[2]), self.storage.read(names[-1:]).get(names[-1], b"")

    def _claim(self, number: int) -> bool:
        self.number, self._alive = number, time.monotonic()
        try:
            with self.storage.fs.open(self._file(), "xb") as file:
                file.write(json.dumps(self._holder).encode())
        except FileExistsError:
            return False
        *older, newest = self.storage.files(f"locks/{self.name}")
        if not self._file().endswith(newest):  # ours is an old number that was removed meanwhile
            return False
        for name in older:
            with suppress(FileNotFoundError):
                self.storage.fs.rm_file(self.storage.at(name))
        return True

    def _renew(self) -> None:
        """A sign of life. If it comes too late, another may have the cell, and this process stops as on Ctrl-C."""
        began = time.monotonic()
        try:
            if self._newest()[0] == self.number:
                self._holder["beat"] += 1
                self.storage.fs.pipe_file(self._file(), json.dumps(self._holder).encode())
                self._alive = began
                return
            self._alive = -DEAD
        except Exception as error:  # of whatever library speaks with the storage
            log.warning("%s cannot be reached: %s", self.storage.address, error)
        if began - self._alive > DEAD / 2:
            os.kill(os.getpid(), signal.SIGTERM)

    def _file(self) -> str:
        return self.storage.at(f"locks/{self.name}/{self.number:010d}")


@contextmanager
def repeated(seconds: float, work: Callable[[], None]) -> Iterator[None]:
    """Does something every few seconds meanwhile, in a thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(seconds):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
