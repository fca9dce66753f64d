"""Episodes on disk: one compressed NumPy archive each, which holds arrays and text and nothing that could run.

The format is described in docs/formats.md. A file is never half written: it gets its name when all of it is on
disk. What is read is untrusted: nothing is believed before it was checked.
"""

import errno
import io
import json
import logging
import re
import stat
import zipfile
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..atomic import remove_side_files, set_aside, write_file
from ..untrusted import check_counters, read_versioned
from .episode import Episode, env_steps

log = logging.getLogger("plan2explore.replay")

FORMAT = 1
"""The version of the format. A reader refuses files of a later one."""
LIMIT = 2**30
"""Most bytes of an episode: 170 times those of 501 images of 64 x 64."""
AXES = {"image": 4, "proprio": 2, "action": 2, "reward": 1, "state": 3, "drawn": 1}
KINDS = {"image": "uint8", "proprio": "float32", "action": "float32"}
DTYPES: dict[str, np.dtype[Any]] = {name: np.dtype(KINDS.get(name, "float64")) for name in AXES}
COUNTERS = ("env_steps", "seed", "environment", "episode", "updates", "run_env_steps")
"""Numbers of the description that are used."""
LARGEST = 10**15
THREADS = 4


class BadEpisode(ValueError):
    """A file that is not an episode, or not all of one."""


# --- Writing ---


def save_episode(path: Path, episode: Episode) -> None:
    """Writes an episode as one compressed archive, or nothing at all."""
    arrays: dict[str, Any] = {}
    for name, dtype in DTYPES.items():
        array = np.asarray(getattr(episode, name))
        if not np.can_cast(array.dtype, dtype, "safe"):
            raise ValueError(f"The episode's {name} is {array.dtype}; {dtype} is expected")
        arrays[name] = np.asarray(array, dtype, order="C")
    about = {"format": FORMAT, "world": episode.world, **episode.meta}
    text = json.dumps(about, default=lambda number: number.tolist(), allow_nan=False)  # NumPy's numbers as plain ones
    _check(arrays, json.loads(text))  # or it could not be loaded again
    buffer = io.BytesIO()
    np.savez_compressed(buffer, meta=np.array(text), **arrays)  # at level 6: a seventh of the time that playing takes
    write_file(path, [buffer.getbuffer()])


# --- Reading ---


def load_episode(path: Path, images: bool = True) -> Episode:
    """Reads and checks an episode; anything wrong with it is a `BadEpisode`. Runs nothing that is in the file.

    Without `images` those are neither read nor checked: `image` is an array (steps, 0, 0, 3).
    """
    try:
        return _load(path, images)
    except SystemError:  # CPython 3.11.7's `ast`, by which NumPy reads headers, can fail where two threads use it at once
        return _load(path, images)


def _load(path: Path, images: bool) -> Episode:
    about = path.stat()
    if not stat.S_ISREG(about.st_mode):
        raise BadEpisode(f"{path} is not a plain file")
    if about.st_size > LIMIT:
        raise BadEpisode(f"{path} is too large for an episode: {about.st_size:,} bytes, more than {LIMIT:,}")
    with path.open("rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive, images)
        except (MemoryError, SystemError):
            raise  # not the file's fault: sizes were checked
        except OSError as error:
            if error.errno not in (errno.EIO, errno.EINVAL):  # a bad disk, an offset that cannot be
                raise
            raise BadEpisode(f"{path} cannot be read as an episode: {error}") from error
        except Exception as error:  # a damaged archive fails in a dozen ways within zipfile, zlib and NumPy
            raise BadEpisode(f"{path} cannot be read as an episode: {str(error) or type(error).__name__}") from error


def _read(archive: zipfile.ZipFile, images: bool) -> Episode:
    members = archive.infolist()
    if (size := sum(member.file_size for member in members)) > LIMIT:
        raise ValueError(f"its arrays have {size:,} bytes, more than {LIMIT:,}")
    # First: a newer format may have other arrays.
    meta = read_versioned("its meta", str(_read_array(archive, "meta", None)), FORMAT, {"world": str})
    del meta["format"]
    names, expected = sorted(member.filename for member in members), sorted(f"{name}.npy" for name in (*DTYPES, "meta"))
    if names != expected:
        raise ValueError(f"it holds {', '.join(map(repr, names[:20]))}; expected are {', '.join(expected)}")
    arrays = {name: _read_array(archive, name, dtype) for name, dtype in DTYPES.items() if images or name != "image"}
    if not images:
        arrays["image"] = np.zeros((len(arrays["action"]), 0, 0, 3), np.uint8)
    world = meta.pop("world")
    _check(arrays, meta)
    return Episode(world=world, meta=meta, **arrays)


def _read_array(archive: zipfile.ZipFile, name: str, dtype: np.dtype | None) -> np.ndarray:
    """An array of this type, or text. No more is read than the archive says, and no room made for what is not there."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others are unpacked without a limit
        raise ValueError(f"its {name} is compressed by a method that is not in use here")
    with archive.open(member) as opened:
        file = io.BytesIO(opened.read(member.file_size))  # the last byte read, zipfile compares the checksum
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"its {name} is in an unknown version of NumPy's format")
    header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, found = header(file)
    if found.kind != "U" if dtype is None else found != dtype:
        raise ValueError(f"its {name} is {found}; {dtype or 'text'} is expected")
    rest = member.file_size - file.tell()
    if min(shape, default=0) < 0 or prod(shape) * found.itemsize != rest:
        raise ValueError(f"its {name} claims to be {shape}, but has {rest:,} bytes")
    file.seek(0)
    return np.asarray(np.lib.format.read_array(file, allow_pickle=False), order="C")


# --- What an episode must be ---


def _check(arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    shapes = {name: array.shape for name, array in arrays.items()}
    for name, axes in AXES.items():
        if len(shapes[name]) != axes:
            raise ValueError(f"its {name} is {shapes[name]}; {axes} axes are expected")
    lengths = {name: shape[0] for name, shape in shapes.items() if name != "drawn"}
    if len(set(lengths.values())) > 1 or not lengths["action"]:
        raise ValueError(f"its arrays do not have the same number of steps, or none: {lengths}")
    height, width, colours = shapes["image"][1:]
    if height != width or colours != 3:
        raise ValueError(f"its image is {shapes['image']}; (steps, size, size, 3) is expected")
    if not shapes["state"][1]:
        raise ValueError("its state has no room for env steps")
    for name in ("proprio", "action", "reward", "drawn"):
        if not np.isfinite(arrays[name]).all():
            raise ValueError(f"its {name} is not finite everywhere")
    if arrays["action"][0].any() or arrays["reward"][0]:
        raise ValueError("its first action and reward are not zero, as they are when nothing was done yet")
    state = arrays["state"]
    if state.shape[-1] and np.isnan(state[:, 0]).all(-1).any():
        raise ValueError("its state lacks a step")
    repeat = meta.get("action_repeat", state.shape[1])
    if repeat != state.shape[1]:
        raise ValueError(f"its action_repeat is {repeat!r}, but it has {state.shape[1]} states a step")
    if not isinstance(meta.get("terminated", False), bool):
        raise ValueError(f"its terminated is {meta['terminated']!r}; true or false is expected")
    check_counters(meta, {name: LARGEST for name in COUNTERS if name in meta})
    if meta.get("env_steps", steps := env_steps(state)) != steps:
        raise ValueError(f"its env_steps is {meta['env_steps']}, but it has {steps} states after the first")


# --- Many of them ---


class EpisodeFolder:
    """Numbered episodes in a folder. Opening it to write removes what a killed process left half written.

    Bad ones are moved to `set-aside/` when they are met, and never deleted; a folder that is `read_only` is
    left exactly as it is.
    """

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path, self.read_only = Path(path), read_only
        if not read_only:
            self.path.mkdir(parents=True, exist_ok=True)
            remove_side_files(self.path)

    def path_of(self, number: int) -> Path:
        """Where an episode is, or would be."""
        return self.path / f"{number:06}.npz"

    def numbers(self) -> list[int]:
        """The numbers of all episodes here, in order."""
        names = (re.fullmatch(r"(\d{6,15})\.npz", file.name) for file in self.path.glob("*.npz"))
        return sorted(int(found[1]) for found in names if found)

    def save(self, number: int, episode: Episode) -> None:
        """Saves an episode under this number, in place of the one that may be there."""
        save_episode(self.path_of(number), episode)

    def load(self, number: int, images: bool = True) -> Episode:
        """One episode, or a `BadEpisode`."""
        return load_episode(self.path_of(number), images)

    def load_all(self, up_to: int | None = None, images: bool = True, first: int = 0) -> Iterator[tuple[int, Episode]]:
        """Episodes from `first` on, below `up_to` (none: all) in order, without the bad ones, which are named."""
        numbers = iter([number for number in self.numbers() if first <= number and (up_to is None or number < up_to)])
        with ThreadPoolExecutor(THREADS) as pool:  # zlib lets other threads run meanwhile

            def start(count: int) -> list[tuple[int, Future[Episode]]]:
                return [(number, pool.submit(self.load, number, images)) for number in islice(numbers, count)]

            ahead = deque(start(2 * THREADS))  # no more: they fill the machine's memory
            while ahead:
                number, future = ahead.popleft()
                ahead.extend(start(1))
                try:
                    episode = future.result()
                except BadEpisode as error:
                    said = "" if self.read_only else f"; it was set aside as {set_aside([self.path_of(number)])}"
                    log.warning("%s%s; continuing without it", error, said)
                else:
                    yield number, episode
