"""A compact snapshot of all that a reward can depend on, taken from a MuJoCo simulation and put back exactly."""

from collections.abc import Iterator
from typing import Any

import mujoco
import numpy as np

# What MuJoCo integrates or is told. Everything else that belongs to positions and velocities follows from it.
PARTS = ("TIME", "QPOS", "QVEL", "ACT", "CTRL", "MOCAP_POS", "MOCAP_QUAT")
SPEC = int(sum(getattr(mujoco.mjtState, f"mjSTATE_{part}").value for part in PARTS))
# These belong to the physics step that led here (accelerations, torques, touch), not to the state itself: they
# cannot be computed again from it, so they are kept as they were.
STORED = ("sensordata", "qacc", "actuator_force")
FOLLOWS = ("xpos", "xquat", "xmat", "geom_xpos", "geom_xmat", "site_xpos", "site_xmat", "subtree_com", "cvel")
"""What follows from the state and rewards read, as do observations and frames after them."""
ASSETS = ("tex_", "mesh_", "hfield_", "skin_")
"""Prefixes of a model's large arrays, which only drawing and collisions look at."""


class Snapshot:
    """Reads and replays the snapshot vector of one simulation."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData) -> None:
        self.model = model
        self.data = data
        self._integrated = mujoco.mj_stateSize(model, SPEC)
        self._state = np.zeros(self._integrated)
        self._stored: list[tuple[np.ndarray, slice]] = []
        self.size = self._integrated
        for name in STORED:
            array = getattr(data, name)
            if array.size:
                self._stored.append((array, slice(self.size, self.size + array.size)))
            self.size += array.size

    def layout(self) -> dict[str, int]:
        """Names and lengths of the vector's parts, in order."""
        flags = {part: int(getattr(mujoco.mjtState, f"mjSTATE_{part}").value) for part in PARTS}
        ordered = sorted(PARTS, key=flags.__getitem__)  # MuJoCo writes parts in the order of their bits
        sizes = {part.lower(): mujoco.mj_stateSize(self.model, flags[part]) for part in ordered}
        return sizes | {name: getattr(self.data, name).size for name in STORED}

    def read(self, out: np.ndarray) -> None:
        """Writes the current state into `out`, a float64 vector of `size`."""
        mujoco.mj_getState(self.model, self.data, self._state, SPEC)
        out[: self._integrated] = self._state
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


class WriteGuard:
    """Tells whether somebody has written to dm_control's `physics`.

    That is: to what MuJoCo integrates, is told or computes, to its model, or as a new attribute of these objects.
    """

    def __init__(self, physics: Any) -> None:
        self._objects = {name: getattr(physics, name) for name in ("data", "model")} | {"physics": physics}
        self._known = {name: set(vars(each)) for name, each in self._objects.items()}
        self._model, self._data = model, data = physics.model.ptr, physics.data.ptr
        self._spec = int(mujoco.mjtState.mjSTATE_INTEGRATION.value)
        self._state = np.zeros(mujoco.mj_stateSize(model, self._spec))
        self._stored = [getattr(data, name) for name in STORED + FOLLOWS]
        fields = [(part, name) for part in (model, model.opt) for name in dir(part) if not name.startswith(("_", *ASSETS))]
        self._constants = [array for part, name in fields if isinstance(array := getattr(part, name), np.ndarray)]

    def read_state(self) -> bytes:
        """The state, to be compared with that of another moment."""
        mujoco.mj_getState(self._model, self._data, self._state, self._spec)
        return b"".join([self._state.tobytes(), *[array.tobytes() for array in self._stored]])

    def new_attributes(self) -> list[str]:
        """What dm_control's objects have that neither they had before nor their classes have."""
        return [
            name
            for key, each in self._objects.items()
            if len(vars(each)) > len(self._known[key])
            for name in vars(each).keys() - self._known[key]
            if not hasattr(type(each), name)
        ]

    def read_model(self) -> bytes:
        """The model without its assets, likewise."""
        return b"".join([array.tobytes() for array in self._constants])
