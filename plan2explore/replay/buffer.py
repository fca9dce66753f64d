"""Replay: the frames of many episodes, and batches of sequences drawn from them.

Frames are kept on the device where they fit, so that drawing a batch moves nothing to it, or else in the host's
memory. Both places draw the same sequences with the same key.
"""

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Int, PRNGKeyArray

from ..config import Spaces

Place = Literal["device", "host"]
Rows = Mapping[str, np.ndarray]
RESERVE = 8 * 10**9
"""Bytes of the device left for training: an update of the paper's sizes was measured to need 5 GB."""
HOST_SHARE = 0.9
"""The part of the free host memory that episodes may fill."""


class Column(NamedTuple):
    """What is stored of each step under one name."""

    shape: tuple[int, ...]
    dtype: np.dtype


def columns_of(spaces: Spaces) -> dict[str, Column]:
    """What an agent with these spaces learns from."""
    columns = {"action": Column((spaces.action,), np.dtype(np.float32))}
    if spaces.image is not None:
        columns["image"] = Column((spaces.image, spaces.image, 3), np.dtype(np.uint8))
    if spaces.proprio is not None:
        columns["proprio"] = Column((spaces.proprio,), np.dtype(np.float32))
    if spaces.tasks:
        columns["reward"] = Column((spaces.tasks,), np.dtype(np.float32))
    return columns


class Replay:
    """Episodes in numbered slots. Any episode of at least `length` steps may be drawn, a running one too.

    Sampling is uniform over those episodes, then over the places in them where a sequence fits. Shorter
    episodes are kept, since they may grow, but never drawn. What is drawn depends on the key, on the episodes
    and on the order in which they were opened, and on nothing else. One thread may sample while another
    extends.
    """

    def __init__(self, place: Place, capacity: int, frames: int, spaces: Spaces, batch: int, length: int) -> None:
        if frames < length:
            raise ValueError(f"Sequences of {length} steps do not fit into episodes of {frames}: use a smaller length")
        self.place, self.capacity, self.frames, self.batch, self.length = place, capacity, frames, batch, length
        self.columns = columns_of(spaces)
        self._store = (DeviceStore if place == "device" else HostStore)(self.columns, capacity, frames)
        self._steps: dict[int, int] = {}  # of each slot in use, in the order in which they were opened
        self._dropped: list[int] = []
        self.largest_rewards = np.zeros(spaces.tasks)
        """Of each task: the size of the largest reward that a step ever had here."""
        self._lock = threading.Lock()

    @property
    def episodes(self) -> int:
        """Episodes that can be drawn."""
        with self._lock:
            return sum(steps >= self.length for steps in self._steps.values())

    def open(self) -> int:
        """A slot for a new episode."""
        with self._lock:
            if len(self._steps) == self.capacity:
                raise ValueError(f"Memory has room for {self.capacity:,} episodes, and all of it is in use")
            slot = self._dropped.pop() if self._dropped else len(self._steps)
            self._steps[slot] = 0
            return slot

    def add(self, rows: Rows) -> int:
        """Opens a slot for these steps."""
        slot = self.open()
        self.extend(slot, rows)
        return slot

    def extend(self, slot: int, rows: Rows) -> None:
        """Appends steps, (steps, ...) under each name, to an episode. Names that nobody learns from are left out."""
        count, rows = self._check(rows)
        if not count:
            return
        with self._lock:
            start = self._steps[slot]
            if start + count > self.frames:
                raise ValueError(f"An episode of {start} steps cannot grow by {count}: memory was made for {self.frames}")
            if "reward" in rows:
                self.largest_rewards = np.maximum(self.largest_rewards, np.abs(rows["reward"]).max(0))
            self._store.write(slot, start, rows)
            self._steps[slot] = start + count

    def make_room(self, keep: Collection[int] = ()) -> bool:
        """If every slot is in use, forgets the oldest episode that is not one to `keep`; whether it did."""
        with self._lock:
            full = len(self._steps) == self.capacity
            oldest = next((slot for slot in self._steps if slot not in keep), None)
        if not full or oldest is None:
            return False
        self.drop(oldest)
        return True

    def drop(self, slot: int) -> None:
        """Forgets an episode; its slot is the next to be used."""
        with self._lock:
            del self._steps[slot]
            self._dropped.append(slot)
            self._store.forget(slot)

    def sample(self, key: PRNGKeyArray, count: int) -> dict[str, Array]:
        """`count` batches on the device, (count, batch, length, ...) under each name."""
        with self._lock:
            table, episodes = self._drawable()
            key = jax.device_put(key, self._store.draws_on)
            slots, offsets = draw_sequences(key, table, episodes, count=count, batch=self.batch)
            finish = self._store.gather(slots, offsets, self.length)
        return finish()  # the long part of it where frames are in host memory: others may write meanwhile

    def batches(self, count: int) -> dict[str, jax.ShapeDtypeStruct]:
        """The form of what `sample` returns."""
        form = (count, self.batch, self.length)
        return {name: jax.ShapeDtypeStruct((*form, *shape), dtype) for name, (shape, dtype) in self.columns.items()}

    def newest(self, episodes: int, steps: int) -> dict[str, Array]:
        """The last steps of the newest episodes, the newest first, on the device: (episodes, steps, ...) under each name.

        There are always as many, so that whoever takes them is compiled once: if fewer episodes are long enough, they
        repeat. Only where no episode has `steps`, the steps are those of the longest.
        """
        with self._lock:
            steps = min(steps, max(self._steps.values()))
            found = [(slot, known - steps) for slot, known in reversed(self._steps.items()) if known >= steps]
            slots, offsets = np.transpose((found * episodes)[:episodes]).astype(np.int32)[:, None]
            finish = self._store.gather(slots, offsets, steps)
        return {name: rows[0] for name, rows in finish().items()}

    def _drawable(self) -> tuple[Int[np.ndarray, "2 capacity"], int]:
        """Slots that can be drawn, below them the number of places where a sequence fits, and how many they are.

        The table always has the same size, so that memory can grow and nothing is compiled again.
        """
        found = [(slot, steps - self.length + 1) for slot, steps in self._steps.items() if steps >= self.length]
        if not found:
            raise ValueError(
                f"No episode in memory has the {self.length} steps of a sequence: {len(self._steps)} in all, "
                f"and the longest has {max(self._steps.values(), default=0)}. Collect more first, or use a smaller length."
            )
        table = np.zeros((2, self.capacity), np.int32)
        table[:, : len(found)] = np.transpose(found)
        return table, len(found)

    def _check(self, rows: Rows) -> tuple[int, dict[str, np.ndarray]]:
        """The number of steps in these rows, and the rows as they are stored: copied, each step flat."""
        missing = self.columns.keys() - rows.keys()
        if missing:
            raise ValueError(f"Memory needs {', '.join(sorted(missing))} of each step")
        count = len(rows["action"])
        checked = {}
        for name, (shape, dtype) in self.columns.items():
            if rows[name].shape != (count, *shape) or (dtype == np.uint8 and rows[name].dtype != dtype):
                raise ValueError(f"{name} is {rows[name].dtype} {rows[name].shape}; {dtype} {(count, *shape)} is expected")
            # A copy: the device may read it after the caller has written the next step to the same place.
            checked[name] = np.array(rows[name], dtype).reshape(count, prod(shape))
        return count, checked


@partial(jax.jit, static_argnames=("count", "batch"))
def draw_sequences(
    key: PRNGKeyArray, table: Int[Array, "2 capacity"], episodes: Int[Array, ""], count: int, batch: int
) -> tuple[Int[Array, "count batch"], Int[Array, "count batch"]]:
    """Slots and first steps of sequences: any of the first `episodes` slots, any of its places."""
    slots, places = table
    episode_key, place_key = jax.random.split(key)
    episode = jax.random.randint(episode_key, (count, batch), 0, episodes)
    return slots[episode], jax.random.randint(place_key, (count, batch), 0, places[episode])


# --- The two places ---


class DeviceStore:
    """Frames in one array per name on the device. Steps are flat: a last axis of three would be padded on a TPU."""

    def __init__(self, columns: Mapping[str, Column], capacity: int, frames: int) -> None:
        # Tied to no device by name: arrays that are would make everything that learns from them compile once more.
        self.draws_on = None
        self._shapes = tuple(sorted((name, column.shape) for name, column in columns.items()))
        self._stored = {
            name: jnp.zeros((capacity, frames, prod(shape)), dtype) for name, (shape, dtype) in columns.items()
        }

    def write(self, slot: int, start: int, rows: dict[str, np.ndarray]) -> None:
        self._stored = write_steps(self._stored, slot, start, rows)

    def forget(self, slot: int) -> None:
        """The next episode is written over it."""

    def gather(self, slots: Array, offsets: Array, length: int) -> Callable[[], dict[str, Array]]:
        batches = gather_sequences(self._stored, slots, offsets, length=length, shapes=self._shapes)
        return lambda: batches


@partial(jax.jit, donate_argnums=0)
def write_steps(
    stored: dict[str, Array], slot: Int[Array, ""], start: Int[Array, ""], rows: dict[str, Array]
) -> dict[str, Array]:
    """Writes a slot's rows from its start on, in place: the old arrays are given away."""
    return {
        name: lax.dynamic_update_slice(array, rows[name][None], (slot, start, 0)) for name, array in stored.items()
    }


@partial(jax.jit, static_argnames=("length", "shapes"))
def gather_sequences(
    stored: dict[str, Array],
    slots: Int[Array, "count batch"],
    offsets: Int[Array, "count batch"],
    length: int,
    shapes: tuple[tuple[str, tuple[int, ...]], ...],
) -> dict[str, Array]:
    """The sequences that start there."""
    steps = offsets[..., None] + jnp.arange(length)
    gathered = {name: array.at[slots[..., None], steps].get(mode="promise_in_bounds") for name, array in stored.items()}
    return {name: gathered[name].reshape(*steps.shape, *shape) for name, shape in shapes}


class HostStore:
    """Frames in host memory, which is taken as episodes come."""

    def __init__(self, columns: Mapping[str, Column], capacity: int, frames: int) -> None:
        self._columns, self._frames = columns, frames
        self._stored: dict[int, dict[str, np.ndarray]] = {}
        self.draws_on = host_device()  # an accelerator would first finish the updates that wait in its queue

    def write(self, slot: int, start: int, rows: dict[str, np.ndarray]) -> None:
        if slot not in self._stored:
            self._stored[slot] = {
                name: np.empty((self._frames, prod(shape)), dtype) for name, (shape, dtype) in self._columns.items()
            }
        for name, array in self._stored[slot].items():
            array[start : start + len(rows[name])] = rows[name]

    def forget(self, slot: int) -> None:
        self._stored.pop(slot, None)

    def gather(self, slots: Array, offsets: Array, length: int) -> Callable[[], dict[str, Array]]:
        where = np.asarray(offsets)
        episodes = [self._stored[slot] for slot in np.asarray(slots).ravel().tolist()]

        def finish() -> dict[str, Array]:
            batches = {}
            for name, (shape, dtype) in self._columns.items():
                flat = aligned((where.size, length, prod(shape)), dtype)
                for row, episode, offset in zip(flat, episodes, where.ravel().tolist(), strict=True):
                    row[:] = episode[name][offset : offset + length]
                batches[name] = flat.reshape(*where.shape, length, *shape)
            return jax.device_put(batches)

        return finish


def aligned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An empty array at an address that JAX on a CPU takes as it is, where it would copy any other."""
    size = prod(shape) * dtype.itemsize
    room = np.empty(size + 64, np.uint8)
    start = -room.ctypes.data % 64
    return room[start : start + size].view(dtype).reshape(shape)


def host_device() -> Any:
    """JAX's CPU, or its default device where it was told to leave the CPU alone."""
    try:
        return jax.local_devices(backend="cpu")[0]
    except RuntimeError:
        return jax.devices()[0]


# --- Where there is room ---


@dataclass(frozen=True)
class Plan:
    """Where episodes will be kept, and the sentence that says so."""

    place: Place
    sentence: str


class TooLittleMemoryError(ValueError):
    """The episodes of a run would fit nowhere."""


ADVICE = "Explore for fewer steps, with smaller pictures, or see proprio instead of pixels"


def plan_replay(
    place: Literal["auto", "device", "host"],
    capacity: int,
    frames: int,
    spaces: Spaces,
    reserve: int = RESERVE,
    advice: str = ADVICE,
) -> Plan:
    """Decides before a run where its episodes will be kept: on the accelerator if they fit, or else in host memory.

    `reserve` bytes of the accelerator stay free for training. Fitting nowhere is a `TooLittleMemoryError` with `advice`.
    """
    need = capacity * frames * sum(prod(shape) * dtype.itemsize for shape, dtype in columns_of(spaces).values())
    says = f"Memory: {capacity:,} episodes need {gigabytes(need)}"
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
    """Bytes of the default device that episodes may fill. A device that does not tell has none; a CPU is the host."""
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
        try:
            most, used = (group / limit).read_text(), (group / usage).read_text()
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        except OSError:
            continue
        if most.strip() != "max":
            cached = int(stat.get("total_inactive_file", stat.get("inactive_file", 0)))
            return max(0, int(most) - int(used) + cached)
    return None
