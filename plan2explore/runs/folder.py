"""A run's folder: what is in it, who writes it, and how each start of it came about."""

import errno
import fcntl
import importlib.metadata
import json
import os
import platform
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from plan2explore import __version__
from plan2explore.atomic import remove_side_files
from plan2explore.untrusted import NewerFormat, check_links, parse_object, read_file, read_versioned

from .files import LARGEST_JSON, append_line, write_json
from .machine import commit, cpu_name

FORMAT = 1
"""Number of the format of `run.json`. Larger ones are refused."""
KINDS = ("explore", "adapt")
PACKAGES = ("jax", "jaxlib", "numpy", "mujoco", "dm_control")
NAMED = 5  # runs that a sentence names
READ_ONLY = (errno.EACCES, errno.EROFS, errno.EPERM)
NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class RunError(ValueError):
    """A folder that cannot be used as asked; the text says why and what to do."""


class LockedError(RunError):
    """Another process writes it, `holder`."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(f"{path} is being written by {holder}. Wait for it, or stop it.")
        self.holder = holder


class RunFolder:
    """A run on disk. Make one with `create` or `open`."""

    def __init__(self, path: Path, content: dict[str, Any]) -> None:
        self.path = path
        self.kind: str = content["kind"]
        """`explore` or `adapt`."""
        self.id: str = content["id"]
        """Twelve random hexadecimal digits that tell runs apart, wherever their folders are."""
        self.created = str(content.get("created", ""))
        """When the run was made, UTC: later ones sort behind."""
        self.episodes = path / "episodes"
        self.checkpoints = path / "checkpoints"
        self.snapshots = path / "snapshots"
        self.adapt = path / "adapt"
        self.videos = path / "videos"
        self.tensorboard = path / "tensorboard"
        self.metrics_file = path / "metrics.jsonl"
        self.evaluations_file = path / "evaluations.jsonl"
        self.finished = path / "finished"
        """There when an adaptation has come to its end."""
        self._content = content

    @classmethod
    def create(cls, path: Path | str, kind: str, settings: dict[str, Any]) -> "RunFolder":
        """Makes a new run. Refuses a folder that is one already, or that has anything else in it."""
        path = Path(path)
        if kind not in KINDS:
            raise RunError(f"A run is of kind {' or '.join(KINDS)}, not {kind!r}.")
        _refuse_used(path)
        about = {"format": FORMAT, "version": __version__, "kind": kind, "id": secrets.token_hex(6), "created": _now()}
        run = cls(path, about | {"settings": _as_json(settings)})
        path.mkdir(parents=True, exist_ok=True)
        with run.lock():
            _refuse_used(path)  # again: another process may have been quicker
            run._write()
        return run

    @classmethod
    def open(cls, path: Path | str) -> "RunFolder":
        """The run in a folder. Writes nothing."""
        path = Path(path)
        file = path / "run.json"
        if not path.is_dir():
            raise RunError(f"{path} is not a folder." if path.exists() else f"There is no folder {path}.")
        if not file.exists():
            found = sorted(str(each.parent) for below in ("*", "runs/*") for each in path.glob(f"{below}/run.json"))
            more = f" and {len(found) - NAMED} more" if found[NAMED:] else ""
            hint = f"Runs in it: {', '.join(found[:NAMED])}{more}" if found else "Give the folder that a run was written to"
            raise RunError(f"{path} is not a run: it has no run.json. {hint}.")
        _check_links(path)
        try:
            kinds = {"kind": str, "id": str, "settings": dict}
            content = read_versioned(file, read_file(file, LARGEST_JSON), FORMAT, kinds)
            if content["kind"] not in KINDS:
                raise ValueError(f"{file} is damaged: no proper 'kind' in it")
        except NewerFormat as error:
            raise RunError(f"{error}.") from None
        except ValueError as error:
            raise RunError(f"{error}. Put back a copy of it: the rest of the run may well be whole.") from None
        return cls(path, content)

    @staticmethod
    def is_run(path: Path | str) -> bool:
        """Whether there is a run in this folder, be it whole or damaged."""
        return (Path(path) / "run.json").is_file()

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as used."""
        return self._content["settings"]

    def change_settings(self, settings: dict[str, Any]) -> None:
        """Replaces the settings, for a run that is resumed with others (more steps, say). Hold the lock."""
        self._content |= {"settings": _as_json(settings)}
        self._write()

    def _write(self) -> None:
        remove_side_files(self.path)
        write_json(self.path / "run.json", self._content)

    def lock(self) -> AbstractContextManager[None]:
        """Keeps other processes from writing this run."""
        return hold(self.path / "lock", self.path)

    def is_locked(self) -> bool:
        """Whether a process writes this run now."""
        try:
            with (self.path / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # no lock file, or a file system without locks
            return False
        return False

    def record_start(self, command: Sequence[str]) -> None:
        """Adds a line to `starts.jsonl`: when, which command, which versions, which commit, what machine."""
        import jax  # late: it takes a second, and readers of runs need none

        versions = {"plan2explore": __version__, "python": platform.python_version()}
        versions |= {name: importlib.metadata.version(name) for name in PACKAGES}
        machine = {
            "cpu": cpu_name(),
            "cores": len(os.sched_getaffinity(0)),
            "memory": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            "devices": [device.device_kind for device in jax.devices()],
            "system": f"{platform.system()} {platform.release()} {platform.machine()}",
            "host": socket.gethostname(),
        }
        line = {"time": _now(), "command": list(command), "versions": versions, "commit": commit(), "machine": machine}
        append_line(self.path / "starts.jsonl", line)


@contextmanager
def hold(file: Path, path: Path, wait: bool = False) -> Iterator[None]:
    """Keeps other processes from writing `path`, by a lock on a file. However this process ends, the kernel frees it."""
    with ExitStack() as stack:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            raise LockedError(path, _read_holder(descriptor)) from None
        except OSError as error:
            if error.errno in READ_ONLY:
                raise RunError(f"{path} cannot be written: {error.strerror}. Copy it to a place of yours.") from None
            if error.errno in NO_LOCKS:
                raise RunError(
                    f"The file system of {path} has no locks (flock: {error.strerror}), so two processes could write the "
                    "same run. Put the run on a local disk."
                ) from None
            raise
        holder = {"process": os.getpid(), "host": socket.gethostname(), "since": _now()}
        with suppress(OSError):  # a full disk: it is a courtesy only
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(holder).encode() + b"\n", 0)
        yield
        os.ftruncate(descriptor, 0)


@contextmanager
def begin_run(path: Path | str, kind: str, settings: dict[str, Any]) -> Iterator[RunFolder]:
    """The run in a folder, or a new one there, which is removed if it fails before it has anything worth keeping.

    Else it would stand in the way of the same command without the mistake.
    """
    if RunFolder.is_run(path):
        yield RunFolder.open(path)
        return
    run = RunFolder.create(path, kind, settings)
    try:
        yield run
    except Exception:
        if not any(any(part.glob("*")) for part in (run.episodes, run.checkpoints, run.snapshots)):
            with suppress(RunError, OSError), run.lock():
                shutil.rmtree(run.path)
                print(f"Nothing was collected or learned yet: {run.path} was removed.", file=sys.stderr)
        raise


def _refuse_used(path: Path) -> None:
    """Raises unless a run can be made here: in a new or an empty folder."""
    if RunFolder.is_run(path):
        raise RunError(f"{path} is a run already. To resume it, give the folder alone; or choose another folder.")
    if not path.exists():
        return
    if not path.is_dir():
        raise RunError(f"{path} is a file. Choose another folder for the run.")
    _check_links(path)
    # A process that was killed here before its run.json was written leaves no more than these.
    if others := [file.name for file in path.iterdir() if not re.fullmatch(r"lock|\.run\.json\..*\.part", file.name)]:
        raise RunError(f"{path} is no run, but it is not empty either ({min(others)}, ...). Choose another folder.")


def _check_links(path: Path) -> None:
    try:
        check_links(path)
    except ValueError as error:
        raise RunError(str(error)) from None


def _read_holder(file: int) -> str:
    """Who holds the lock, as they wrote it there."""
    holder = parse_object(os.pread(file, 4096, 0)) or {}
    try:
        return f"process {holder['process']:d} on {holder['host']!s:.100} since {holder['since']!s:.40}"
    except (ValueError, LookupError):  # it took the lock this instant
        return "another process"


def _as_json(settings: dict[str, Any]) -> Any:
    """Settings as they will be read: tuples are lists. What JSON has no word for is an error."""
    return json.loads(json.dumps(settings, allow_nan=False))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
