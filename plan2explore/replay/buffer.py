"""Replay: the steps of many episodes, and batches of sequences drawn from them.

Steps are kept on the device where they fit, so that drawing a batch moves nothing to it, or else in the host's
memory. Both places draw the same sequences with the same key.
"""

import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from ..config import Spaces
from .episode import Episode

Place = Literal["device", "host"]
Rows = Mapping[str, np.ndarray]
RESERVE = 8 * 10**9
"""Bytes of the device left for training: an update of the paper's sizes was measured to need 5 GB."""
HOST_SHARE = 0.9
"""The part of the free host memory that replay may fill."""


class Column(NamedTuple):
    """What is stored of each step under one name."""

    shape: tuple[int, ...]
    dtype: np.dtype


def columns_of(spaces: Spaces) -> dict[str, Column]:
    """What an agent with these spaces learns from.

    `is_first` marks the first observation of an episode, `is_terminal` the last one of an episode that terminated.
    """
    flag = Column((), np.dtype(bool))
    columns = {"is_first": flag, "is_terminal": flag}
    if spaces.image is not None:
        columns["image"] = Column((spaces.image, spaces.image, 3), np.dtype(np.uint8))
    sizes = {"action": spaces.action, "proprio": spaces.proprio, "features": spaces.features, "reward": spaces.tasks or None}
    return columns | {name: Column((size,), np.dtype(np.float32)) for name, size in sizes.items() if size is not None}


def replay_rows(
    episode: Episode, spaces: Spaces, rewards: Float[np.ndarray, "steps tasks"], start: int = 0
) -> dict[str, np.ndarray]:
    """An episode's steps from `start` on, in the form that replay takes."""
    is_first, is_terminal = np.zeros((2, len(episode)), bool)
    is_first[0], is_terminal[-1] = True, episode.meta.get("terminated", False)  # older files do not say
    rows = {"action": episode.action[start:], "is_first": is_first[start:], "is_terminal": is_terminal[start:]}
    if spaces.image is not None:
        rows["image"] = episode.image[start:]
    if spaces.proprio is not None:
        rows["proprio"] = episode.proprio[start:]
    if spaces.tasks:
        rows["reward"] = rewards.astype(np.float32)
    return rows


class Replay:
    """A ring of steps for each stream, and windows of `length` steps drawn from them.

    A stream is the sequence of consecutive episodes of one environment; when it is full, its oldest steps are overwritten.
    All stored steps, stream after stream and each from its oldest to its newest, form one circular sequence, and a window
    may start at any of them: every step is drawn equally often, and windows run across the ends of episodes.
    `is_first` says where; it is set at the oldest step of each stream too.

    What is drawn depends on the key and on what the streams hold, and on nothing else. One thread may sample while another
    appends.
    """

    def __init__(self, place: Place, capacity: int, streams: int, spaces: Spaces, batch: int, length: int) -> None:
        self.batch, self.length = batch, length
        self.ring = -(-capacity // streams)
        """Steps for which each stream has room."""
        self.columns = columns_of(spaces)
        self._store = (DeviceStore if place == "device" else HostStore)(self.columns, streams * self.ring)
        self._counts = np.zeros(streams, np.int32)
        self._ends = np.zeros(streams, np.int32)  # where the next step of each stream is written
        self._is_first = np.zeros((streams, self.ring), bool)
        self.episodes = 0
        """Episodes begun here so far, overwritten ones included."""
        self._lock = threading.Lock()

    @property
    def steps(self) -> int:
        """Steps stored now."""
        return int(self._counts.sum())

    def append(self, stream: int, rows: Rows) -> None:
        """Appends steps, (steps, ...) under each name, to a stream. Names that nobody learns from are left out."""
        rows = self._checked(rows)
        if not len(rows["action"]):
            return
        with self._lock:
            self.episodes += int(rows["is_first"].sum())
            rows = {name: array[-self.ring :] for name, array in rows.items()}
            count = len(rows["action"])
            places = (self._ends[stream] + np.arange(count)) % self.ring
            self._store.write(stream * self.ring + places, rows)
            self._is_first[stream, places] = rows["is_first"][:, 0]
            self._ends[stream] = (self._ends[stream] + count) % self.ring
            self._counts[stream] = min(self._counts[stream] + count, self.ring)

    def add_episode(self, rows: Rows, stream: int | None = None) -> None:
        """Appends a whole episode, by default to the stream with the fewest steps."""
        self.append(int(self._counts.argmin()) if stream is None else stream, rows)

    def retract(self, stream: int, count: int) -> None:
        """Drops the newest steps of a stream: those of an episode that will never end."""
        with self._lock:
            count = min(count, int(self._counts[stream]))
            start = (self._ends[stream] - count) % self.ring
            self.episodes -= int(self._is_first[stream, (start + np.arange(count)) % self.ring].sum())
            self._ends[stream] = start
            self._counts[stream] -= count

    def sample(self, key: PRNGKeyArray, count: int) -> dict[str, Array]:
        """`count` batches on the device, (count, batch, length, ...) under each name."""
        with self._lock:
            if not self._counts.any():
                raise ValueError("Replay is empty: collect some steps first")
            key = jax.device_put(key, self._store.draws_on)
            form = (count, self.batch, self.length)
            return self._store.gather(*draw_windows(key, self._table(), form=form, ring=self.ring))

    def batches(self, count: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The form of what `sample` returns."""
        form = (count, self.batch, self.length)
        return {name: jax.ShapeDtypeStruct((*form, *shape), dtype) for name, (shape, dtype) in self.columns.items()}

    def newest(self, episodes: int, steps: int) -> dict[str, Array]:
        """The last steps of the newest episodes, the newest first, on the device: (episodes, steps, ...) under each name.

        Streams take turns. Episodes of fewer steps are left out where there are longer ones, or else come with what is
        stored before them. There are always as many, so that whoever takes them is compiled once: too few repeat.
        """
        with self._lock:
            table, found = self._table(), []
            for stream, (count, oldest) in enumerate(table.T):
                is_first = self._is_first[stream, (oldest + np.arange(count)) % self.ring]
                is_first[:1] = True
                bounds = table[0, :stream].sum() + np.append(np.flatnonzero(is_first), count)
                ends = zip(bounds[-2::-1], bounds[:0:-1], strict=True)
                found += [(stop - start < steps, age, stop) for age, (start, stop) in enumerate(ends)]
            enough = [each for each in sorted(found) if not each[0]] or sorted(found)
            stops = np.array([stop for _, _, stop in (enough * episodes)[:episodes]])
            return self._store.gather(*locate(stops[:, None] + np.arange(-steps, 0), table, self.ring))

    def _table(self) -> Int[np.ndarray, "2 streams"]:
        """The number of steps of each stream, and below it the place of its oldest."""
        return np.stack([self._counts, (self._ends - self._counts) % self.ring])

    def _checked(self, rows: Rows) -> dict[str, np.ndarray]:
        """The rows as they are stored: copied, each step flat."""
        if missing := self.columns.keys() - rows.keys():
            raise ValueError(f"Replay needs {', '.join(sorted(missing))} of each step")
        count = len(rows["action"])
        checked = {}
        for name, (shape, dtype) in self.columns.items():
            if rows[name].shape != (count, *shape) or (dtype == np.uint8 and rows[name].dtype != dtype):
                raise ValueError(f"{name} is {rows[name].dtype} {rows[name].shape}; {dtype} {(count, *shape)} is expected")
            # A copy: the device may read it after the caller has written the next step to the same place.
            checked[name] = np.array(rows[name], dtype).reshape(count, prod(shape))
        return checked


@partial(jax.jit, static_argnames=("form", "ring"))
def draw_windows(
    key: PRNGKeyArray, table: Int[Array, "2 streams"], form: tuple[int, int, int], ring: int
) -> tuple[Int[Array, "count batch time"], Bool[Array, "count batch time"]]:
    """The places of windows that start at any stored step, and which of their steps are the oldest of a stream."""
    starts = jax.random.randint(key, form[:-1], 0, table[0].sum())
    return locate(starts[..., None] + jnp.arange(form[-1]), table, ring)


def locate(steps: Any, table: Any, ring: int) -> tuple[Any, Any]:
    """Where steps of the circular sequence are stored, and which are the oldest of their stream. For NumPy and JAX."""
    counts, oldest = table
    ends = counts.cumsum()
    steps = steps % ends[-1]
    stream = (steps[..., None] >= ends).sum(-1)
    offset = steps - (ends - counts)[stream]
    return stream * ring + (oldest[stream] + offset) % ring, offset == 0


# --- The two places ---


class DeviceStore:
    """Steps in one array per name on the device. They are flat: a last axis of three would be padded on a TPU."""

    def __init__(self, columns: Mapping[str, Column], capacity: int) -> None:
        # Tied to no device by name: arrays that are would make everything that learns from them compile once more.
        self.draws_on = None
        self._shapes = tuple(sorted((name, column.shape) for name, column in columns.items()))
        self._capacity = capacity
        self._stored = {name: jnp.zeros((capacity, prod(shape)), dtype) for name, (shape, dtype) in columns.items()}

    def write(self, places: np.ndarray, rows: dict[str, np.ndarray]) -> None:
        # Padded to powers of two, which few programs are compiled for; places beyond the last one are dropped.
        count, size = len(places), 1 << (len(places) - 1).bit_length()
        padded = np.arange(self._capacity, self._capacity + size, dtype=np.int32)
        padded[:count] = places
        rows = {name: np.pad(array, ((0, size - count), (0, 0))) for name, array in rows.items()}
        self._stored = write_steps(self._stored, padded, rows)

    def gather(self, places: Any, is_oldest: Any) -> dict[str, Array]:
        return gather_steps(self._stored, places, is_oldest, shapes=self._shapes)


@partial(jax.jit, donate_argnums=0)
def write_steps(stored: dict[str, Array], places: Int[Array, " steps"], rows: dict[str, Array]) -> dict[str, Array]:
    """Writes rows to their places, in place: the old arrays are given away."""
    return {name: array.at[places].set(rows[name], mode="drop", unique_indices=True) for name, array in stored.items()}


@partial(jax.jit, static_argnames="shapes")
def gather_steps(
    stored: dict[str, Array],
    places: Int[Array, "*batch time"],
    is_oldest: Bool[Array, "*batch time"],
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
) -> dict[str, Array]:
    """The steps at these places."""
    gathered = {name: array.at[places].get(mode="promise_in_bounds") for name, array in stored.items()}
    batches = {name: gathered[name].reshape(*places.shape, *shape) for name, shape in shapes}
    return batches | {"is_first": batches["is_first"] | is_oldest}


class HostStore:
    """Steps in host memory, which the system gives as they come."""

    def __init__(self, columns: Mapping[str, Column], capacity: int) -> None:
        self._columns = columns
        self._stored = {name: np.empty((capacity, prod(shape)), dtype) for name, (shape, dtype) in columns.items()}
        # An accelerator would first finish the updates that wait in its queue.
        self.draws_on = jax.devices()[0]
        with suppress(RuntimeError):  # JAX was told to leave the CPU alone
            self.draws_on = jax.local_devices(backend="cpu")[0]

    def write(self, places: np.ndarray, rows: dict[str, np.ndarray]) -> None:
        for name, array in self._stored.items():
            array[places] = rows[name]

    def gather(self, places: Any, is_oldest: Any) -> dict[str, Array]:
        places = np.asarray(places)
        batches = {}
        for name, (shape, dtype) in self._columns.items():
            flat = aligned((places.size, prod(shape)), dtype)
            np.take(self._stored[name], places.ravel(), axis=0, out=flat, mode="clip")  # other modes copy twice
            batches[name] = flat.reshape(*places.shape, *shape)
        batches["is_first"] |= np.asarray(is_oldest)
        return jax.device_put(batches)


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array at an address that JAX on a CPU takes as it is, where it would copy any other."""
    size = prod(shape) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


# --- Where there is room ---


class Plan(NamedTuple):
    """Where steps will be kept, and the sentence that says so."""

    place: Place
    sentence: str


class TooLittleMemoryError(ValueError):
    """The steps of a run would fit nowhere."""


ADVICE = "Explore for fewer steps, with smaller images (--size), or observe vectors (--obs proprio)"


def plan_replay(
    place: Literal["auto", "device", "host"],
    capacity: int,
    spaces: Spaces,
    reserve: int = RESERVE,
    advice: str = ADVICE,
) -> Plan:
    """Decides before a run where its steps will be kept: on the accelerator if they fit, or else in host memory.

    `reserve` bytes of the accelerator stay free for training. Fitting nowhere is a `TooLittleMemoryError` with `advice`.
    """
    need = capacity * sum(prod(shape) * dtype.itemsize for shape, dtype in columns_of(spaces).values())
    says = f"Replay: {capacity:,} steps need {gigabytes(need)}"
    device, host = device_room(reserve), int(HOST_SHARE * host_room())
    name = jax.devices()[0].device_kind
    there = f"the device ({name}, {gigabytes(device)} free)"
    if place == "device" or (place == "auto" and jax.default_backend() != "cpu"):
        if need <= device:
            return Plan("device", f"{says}; kept on {there}")
        if place == "device":
            raise TooLittleMemoryError(f"{says}, more than there is on {there}. {advice}, or keep them on the host.")
        says += f", more than there is on {there}"
    if need <= host:
        return Plan("host", f"{says}; kept in host memory ({gigabytes(host)} free)")
    raise TooLittleMemoryError(f"{says}, and host memory has {gigabytes(host)} free. {advice}.")


def gigabytes(count: int) -> str:
    """A number of bytes for people."""
    value, unit = (count / 1e9, "GB") if count >= 1e9 else (count / 1e6, "MB")
    return f"{value:.0f} {unit}" if value >= 100 else f"{value:.1f} {unit}"


def device_room(reserve: int) -> int:
    """Bytes of the default device that replay may fill. A device that does not tell has none; a CPU is the host."""
    if jax.default_backend() == "cpu":
        return int(HOST_SHARE * host_room())
    stats = jax.devices()[0].memory_stats() or {}
    return max(0, stats.get("bytes_limit", 0) - stats.get("bytes_in_use", 0) - reserve)


def host_room(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Bytes of host memory that this process could still take: those of the machine, or of its control groups."""
    found = [line.split() for line in (proc / "meminfo").read_text().splitlines()]
    rooms = [1024 * int(line[1]) for line in found if line[0] == "MemAvailable:"]
    for line in (proc / "self/cgroup").read_text().splitlines():
        _, kinds, path = line.split(":", 2)
        if kinds in ("", "memory"):  # version 2, version 1
            group = groups / kinds / path.lstrip("/")
            rooms += [room for each in (group, *group.parents) if (room := group_room(each)) is not None]
    return min(rooms)


def group_room(group: Path) -> int | None:
    """Bytes that a control group leaves, if it limits memory. Cached files do not count: the kernel drops them."""
    for limit, usage in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
        with suppress(OSError):
            most, used = (group / limit).read_text(), (group / usage).read_text()
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            if most.strip() != "max":
                return max(0, int(most) - int(used) + int(stat.get("total_inactive_file", stat.get("inactive_file", 0))))
    return None
