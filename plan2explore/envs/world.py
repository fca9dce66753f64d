"""A MuJoCo simulation and what is done in it: of the suite, a maze, a model file, or behind a Gymnasium environment."""

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mujoco
import numpy as np

import mjraycast.scene

POSES = ("body_pos", "body_quat", "geom_pos", "geom_quat", "geom_size", "site_pos", "site_quat", "site_size")
"""Fields of a model that environments of any kind may write at the start of an episode, and rewards may read."""
# What MuJoCo integrates or is told. Everything else that belongs to positions and velocities follows from it.
PARTS: dict[str, int] = {
    part: getattr(mujoco.mjtState, f"mjSTATE_{part}").value
    for part in ("TIME", "QPOS", "QVEL", "ACT", "CTRL", "MOCAP_POS", "MOCAP_QUAT")  # as MuJoCo orders them: by their bits
}
SPEC = sum(PARTS.values())
# These belong to the physics step that led here (accelerations, torques, touch), not to the state itself: they
# cannot be computed again from it, so they are kept as they were.
STORED = ("sensordata", "qacc", "actuator_force")


class Snapshot:
    """A compact vector of all that a reward can depend on, read from one simulation and put back exactly."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.model = model
        self.data = data
        self._integrated = mujoco.mj_stateSize(model, SPEC)
        self._stored: list[tuple[np.ndarray, slice]] = []
        self.size = self._integrated
        for name in STORED:
            array = getattr(data, name)
            if array.size:
                self._stored.append((array, slice(self.size, self.size + array.size)))
            self.size += array.size

    def layout(self) -> dict[str, int]:
        """Names and lengths of the vector's parts, in order."""
        sizes = {part.lower(): mujoco.mj_stateSize(self.model, flag) for part, flag in PARTS.items()}
        return sizes | {name: getattr(self.data, name).size for name in STORED}

    def read(self, out: np.ndarray) -> None:
        """Writes the current state into `out`, a float64 vector of `size`."""
        mujoco.mj_getState(self.model, self.data, out[: self._integrated], SPEC)
        for array, place in self._stored:
            out[place] = array

    def replay(self, states: np.ndarray) -> Iterator[None]:
        """Puts stored states, (n, size), back one after the other, with all that follows from each."""
        integrated = np.ascontiguousarray(states[:, : self._integrated])
        stored = [(array, states[:, place]) for array, place in self._stored]
        for index, state in enumerate(integrated):
            mujoco.mj_setState(self.model, self.data, state, SPEC)
            # What dm_control has computed when a task is asked for its reward: position and velocity stages.
            mujoco.mj_step1(self.model, self.data)
            for array, values in stored:
                array[:] = values[index]
            yield


@dataclass(frozen=True)
class World:
    """A simulator, in dm_control's own objects, and one of its tasks."""

    physics: Any
    task: Any
    substeps: int  # physics steps in one env step
    fields: tuple[str, ...] = ()  # of the model: what the task draws at the start of an episode
    episode: int = 1000  # env steps, unless something ends it early
    camera: int | str = 0

    @property
    def model(self) -> mujoco.MjModel:
        """MuJoCo's own model."""
        return self.physics.model.ptr

    @property
    def data(self) -> mujoco.MjData:
        """MuJoCo's own data."""
        return self.physics.data.ptr

    @functools.cached_property
    def snapshot(self) -> Snapshot:
        """Reads and replays states."""
        return Snapshot(self.model, self.data)

    def reset(self) -> None:
        """Starts an episode: the task draws the initial state."""
        with self.physics.reset_context():
            self.task.initialize_episode(self.physics)

    def drawn(self) -> np.ndarray:
        """What the task drew into the model at the start of the episode, as one vector."""
        return read_fields(self.model, self.fields)

    def restore_drawn(self, drawn: np.ndarray) -> None:
        """Writes back into the model what `drawn` returned in the same world."""
        start = 0
        for field in self.fields:
            array = getattr(self.model, field)
            array[...] = drawn[start : start + array.size].reshape(array.shape)
            start += array.size

    def replay(self, states: np.ndarray, drawn: np.ndarray) -> Iterator[None]:
        """Puts stored states of one episode, (n, size), back one after the other."""
        self.restore_drawn(drawn)
        return self.snapshot.replay(states)


def read_fields(model: mujoco.MjModel, fields: tuple[str, ...]) -> np.ndarray:
    """Fields of a model as one vector."""
    parts = [getattr(model, field).ravel() for field in fields]
    return np.concatenate(parts, dtype=np.float64) if parts else np.zeros(0)


def find_camera(model: mujoco.MjModel, camera: int | str) -> mujoco.MjvCamera:
    """A camera by its name or number, which may be written as text; `free` is MuJoCo's default view."""
    if camera == "free":
        camera = -1
    elif isinstance(camera, str) and camera.lstrip("-").isdigit():
        camera = int(camera)
    return mjraycast.scene.find_camera(model, camera)
