"""Checkpoints: arrays in safetensors, everything else in JSON. Nothing in them can be executed.

A checkpoint NAME is two files. The arrays are written first; NAME.json comes last, has their size and checksum,
and is what makes the checkpoint exist. Each file is written under another name and renamed.
"""

import hashlib
import re
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from plan2explore import __version__
from plan2explore.agent.actor_critic import Stats
from plan2explore.agent.learner import LearnerState
from plan2explore.agent.optimizer import TrainState
from plan2explore.atomic import remove_side_files, set_aside, write_file
from plan2explore.replay.buffer import TooLittleMemoryError, gigabytes, host_room
from plan2explore.untrusted import NewerFormat, read_file, read_versioned

from .files import LARGEST_JSON, log, write_json

FORMAT = 2
"""Number of the format written. Larger ones are refused; names of format 1 are translated."""
RENAMED = {"novelty": "intrinsic", "rows": "params", "memory": "opt_state"}
"""Names of arrays in format 1, and what they are called now."""
NAME = "[0-9]{10,18}"
Arrays = dict[str, np.ndarray]


class BadCheckpoint(ValueError):
    """A checkpoint that cannot be used; the text says which and why."""


class NewerCheckpoint(BadCheckpoint):
    """A checkpoint that a newer version of this package made. Nothing is wrong with it."""


# --- One checkpoint ---


def save_arrays(path: Path, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
    """Writes `path`.safetensors and then `path`.json; whenever this ends, an older checkpoint or the new one is there."""
    data_file = path.with_suffix(".safetensors")
    if _data_file_of(path) == data_file:  # not overwritten: the old JSON needs it until the new one is there
        data_file = path.with_suffix(".new.safetensors")
    data = safetensors.numpy.save({name: np.asarray(array, order="C") for name, array in arrays.items()})
    description = {
        "format": FORMAT,
        "version": __version__,
        "data": data_file.name,
        "size": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "meta": dict(meta),
    }
    write_file(data_file, [data])
    write_json(path.with_suffix(".json"), description)


def load_arrays(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """The arrays and the meta data of `path`, checked. Raises `BadCheckpoint`; executes nothing."""
    description = _read_description(path)
    arrays = read_arrays(path.with_name(description["data"]), description["size"], description["sha256"])
    return _from_format_1(arrays) if description["format"] == 1 else arrays, description["meta"]


def read_arrays(
    file: Path, size: int | None = None, sha256: str | None = None, expected: Mapping[str, Any] | None = None
) -> Arrays:
    """The arrays of a safetensors file: finite, and of this size, checksum, and shapes and types, as far as they are known.

    `expected` has arrays, or anything else with `shape` and `dtype`. Raises `BadCheckpoint`; executes nothing.
    """
    if not file.is_file():
        raise BadCheckpoint(f"{file} is missing.")
    there, room = file.stat().st_size, host_room()
    if size not in (None, there):
        raise BadCheckpoint(f"{file} is damaged: it has {there:,} bytes instead of {size:,}.")
    if 2 * there > room:
        raise TooLittleMemoryError(f"{file} has {gigabytes(there)}, and host memory has {gigabytes(room)} free.")
    data = file.read_bytes()
    if sha256 not in (None, hashlib.sha256(data).hexdigest()):
        raise BadCheckpoint(f"{file} is damaged: its checksum is not the one that its JSON file has.")
    try:
        arrays = dict(sorted(safetensors.numpy.load(data).items()))
    except safetensors.SafetensorError as error:
        raise BadCheckpoint(f"{file} is no safetensors file: {error}.") from None
    except KeyError as kind:
        raise BadCheckpoint(f"{file} has numbers of an unknown format: {kind}.") from None
    for name, array in arrays.items():
        if jnp.issubdtype(array.dtype, jnp.inexact) and not np.isfinite(array).all():
            raise BadCheckpoint(f"{file} is damaged: {name!r} is not finite everywhere.")
    if expected is not None:
        _check_fit(arrays, expected, str(file))
    return arrays


def _read_description(path: Path) -> dict[str, Any]:
    """Contents of a checkpoint's JSON file, with every field of the expected type."""
    file = path.with_suffix(".json")
    kinds = {"data": str, "size": int, "sha256": str, "meta": dict}
    try:
        description = read_versioned(file, read_file(file, LARGEST_JSON), FORMAT, kinds)
        # The name must be one that we give: an untrusted file could point anywhere.
        if description["data"] not in (f"{path.name}.safetensors", f"{path.name}.new.safetensors"):
            raise ValueError(f"{file} is damaged: no proper 'data' in it")
    except ValueError as error:
        raise (NewerCheckpoint if isinstance(error, NewerFormat) else BadCheckpoint)(f"{error}.") from None
    return description


def _data_file_of(path: Path) -> Path | None:
    """The file with the arrays of a checkpoint that is there already."""
    try:
        return path.with_name(_read_description(path)["data"])
    except BadCheckpoint:
        return None


def _check_fit(arrays: Mapping[str, Any], expected: Mapping[str, Any], name: str = "The checkpoint") -> None:
    """Raises unless there are exactly these arrays, with these shapes and types."""
    for each in (*expected, *arrays):
        theirs, ours = (
            "missing" if (leaf := group.get(each)) is None else f"{np.dtype(leaf.dtype)}{list(leaf.shape)}"
            for group in (arrays, expected)
        )
        if theirs != ours:
            raise BadCheckpoint(
                f"{name} is of another configuration: {each!r} is {theirs} in it and {ours} in this agent. "
                "Use the settings, and the kind of observations, that it was made with."
            )


# --- The learner's state as named arrays ---


def pack(state: LearnerState) -> Arrays:
    """A learner's state as arrays that stay as they are, whatever becomes of the state: `model/params`, ...

    On a CPU they are views of the state's buffers, which JAX then does not reuse; a test makes sure of it.
    """
    return _named_leaves(jax.device_get(_plain(state)))


def unpack(template: LearnerState, arrays: Mapping[str, np.ndarray]) -> LearnerState:
    """The state that `pack` was given. `template` is `jax.eval_shape(learner.init, key)`."""
    expected = _named_leaves(jax.eval_shape(_plain, template))
    _check_fit(arrays, expected)
    leaves = [jnp.array(arrays[name]) for name in expected]
    plain: LearnerState = jax.tree.unflatten(jax.tree.structure(template), leaves)
    return plain._replace(key=jax.random.wrap_key_data(plain.key))


def pack_params(networks: Mapping[str, TrainState]) -> Arrays:
    """The parameters alone, without the optimisers' states."""
    params = jax.device_get({name: state.params for name, state in networks.items()})
    return {f"{name}/params": values for name, values in params.items()}


def unpack_params(arrays: Mapping[str, np.ndarray]) -> Arrays:
    """Parameters by kind of network, out of what `pack_params` or `pack` made."""
    return {name.removesuffix("/params"): params for name, params in arrays.items() if name.endswith("/params")}


def _plain(state: LearnerState) -> LearnerState:
    """The state with its random key as ordinary numbers."""
    return state._replace(key=jax.random.key_data(state.key))


def _named_leaves(state: LearnerState) -> dict[str, Any]:
    """Leaves by name, in their order in the tree.

    Positions in tuples are left out: how deep optax nests its states is not worth remembering.
    """
    found = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        steps = [getattr(step, "name", getattr(step, "key", None)) for step in path]
        name = "/".join(str(step) for step in steps if step is not None).removeprefix("networks/")
        if name in found:
            raise ValueError(f"Two arrays of the state are called {name!r}: the checkpoint could not tell them apart.")
        found[name] = leaf
    return found


def _from_format_1(arrays: Arrays) -> Arrays:
    """Arrays of version 0.1 by their names of today, with the statistics that a state of that version did not have."""
    arrays = {"/".join(RENAMED.get(part, part) for part in name.split("/")): array for name, array in arrays.items()}
    if "key" not in arrays or "critic/params" not in arrays:  # a snapshot
        return arrays
    nothing = np.zeros(len(arrays["critic/params"]), np.float32)
    return arrays | {"slow_critic": np.zeros((0, 0), np.float32)} | {f"stats/{name}": nothing for name in Stats._fields}


# --- All checkpoints of a run ---


class Checkpoints:
    """A folder of checkpoints, named by a number that grows: environment steps, or updates.

    One writer at a time: hold the run's lock. `keep`: how many of the largest numbers stay; none means all.
    """

    def __init__(self, folder: Path, keep: int | None = 2) -> None:
        self.folder, self.keep = folder, keep
        self._writer = ThreadPoolExecutor(1, "checkpoint")
        self._saving: Future[None] | None = None

    def steps(self) -> list[int]:
        """Numbers of all checkpoints, ascending."""
        return sorted(int(file.stem) for file in self.folder.glob("*.json") if re.fullmatch(NAME, file.stem))

    def path(self, steps: int) -> Path:
        """Where a checkpoint is, without the endings of its two files."""
        return self.folder / f"{steps:010d}"

    def save(self, steps: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """Writes a checkpoint (a former one of the same steps is replaced), then removes those that are too many."""
        self.wait()
        self._save(steps, arrays, meta)

    def save_soon(self, steps: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        """`save` in the background, after the previous one. Its error is raised by whatever is called next."""
        self.wait()
        self._saving = self._writer.submit(self._save, steps, arrays, dict(meta))

    def wait(self) -> None:
        """Waits until the last checkpoint is on disk, and raises what stopped it."""
        if (saving := self._saving) is None:
            return
        try:
            saving.result()
        finally:
            if saving.done():  # not so if Ctrl-C ended the waiting
                self._saving = None

    def load(self, steps: int) -> tuple[Arrays, dict[str, Any]]:
        """The checkpoint of exactly these steps."""
        return load_arrays(self.path(self.nearest(steps)))

    def nearest(self, steps: int) -> int:
        """The same number if there is such a checkpoint; else a `BadCheckpoint` that lists what there is."""
        there = self.steps()
        if steps in there:
            return int(steps)
        if not there:
            raise BadCheckpoint(f"{self.folder} has no checkpoint.")
        best = min(there, key=lambda other: abs(other - steps))
        raise BadCheckpoint(
            f"{self.folder} has nothing at {steps} environment steps, but at {', '.join(map(str, there))}. "
            f"The nearest is {best}."
        )

    def load_latest(
        self, check: Callable[[Arrays, dict[str, Any]], None] = lambda arrays, meta: None
    ) -> tuple[Arrays, dict[str, Any]] | None:
        """The newest good checkpoint, or none where there never was one. `check` raises a `ValueError` for others.

        Bad ones that are newer are named in the log and moved to `set-aside/`. If all are bad, or a newer version made
        one, that is an error, and nothing is moved.
        """
        bad: dict[int, ValueError] = {}
        for steps in reversed(self.steps()):
            try:
                found = load_arrays(self.path(steps))
                check(*found)
            except (NewerCheckpoint, TooLittleMemoryError):
                raise
            except ValueError as error:
                known = isinstance(error, BadCheckpoint)
                bad[steps] = error if known else ValueError(f"{self.path(steps)}.json is damaged: {error}.")
                continue
            for newer, fault in bad.items():
                path = self.path(newer)
                place = set_aside(path.with_suffix(end) for end in (".json", ".safetensors", ".new.safetensors"))
                log.warning("%s It was moved to %s. An older checkpoint is used.", fault, place)
            return found
        lost = sorted({path.name for path in self._data_files().values() if not path.with_suffix(".json").exists()})
        if bad or len(lost) > 1:  # a process that was killed at its first checkpoint leaves one
            faults = [*map(str, bad.values()), *(f"{name}.json is missing." for name in lost)]
            raise BadCheckpoint(
                f"No checkpoint in {self.folder} can be read, so the run cannot be resumed. {' '.join(faults)} "
                "No checkpoint, episode, metric or evaluation was touched. "
                f"Put back a copy of a checkpoint, both files; or remove {self.folder} and rerun the command to train anew "
                "from the episodes that are there, with new metrics and evaluations."
            )
        return None

    def _data_files(self) -> dict[Path, Path]:
        """All files with arrays of checkpoints, and the checkpoint that each belongs to."""
        found = {file: file.with_name(file.name.partition(".")[0]) for file in self.folder.glob("*.safetensors")}
        return {file: path for file, path in found.items() if re.fullmatch(NAME, path.name)}

    def _save(self, steps: int, arrays: Mapping[str, np.ndarray], meta: Mapping[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        remove_side_files(self.folder)
        self._remove_lost()  # of killed writers
        save_arrays(self.path(steps), arrays, meta)
        there = self.steps()
        newest = there if self.keep is None else there[-self.keep :]
        for other in set(there) - {*newest, steps}:
            self.path(other).with_suffix(".json").unlink(missing_ok=True)
        self._remove_lost()

    def _remove_lost(self) -> None:
        """Removes arrays that no JSON file names."""
        for file, path in self._data_files().items():
            if not path.with_suffix(".json").exists() or _data_file_of(path) not in (None, file):
                file.unlink(missing_ok=True)
