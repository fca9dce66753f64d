"""The example models in some states, for comparing renderers."""

from pathlib import Path

import mujoco
import numpy as np

FOLDER = Path(__file__).parents[2] / "examples" / "models"
REFERENCES = Path(__file__).parent / "models.npz"
MODELS = ("arm", "rover", "cart")


def load(name: str) -> tuple[mujoco.MjModel, mujoco.MjData]:
    """A model at its key frame, if there is one."""
    model = mujoco.MjModel.from_xml_path(str(FOLDER / f"{name}.xml"))
    data = mujoco.MjData(model)
    if model.nkey:
        mujoco.mj_resetDataKeyframe(model, data, 0)
    return model, data


def states(name: str, count: int = 4) -> np.ndarray:
    """Positions of all joints: (count, nq). From the start on, each half a second of a random action after the last."""
    (model, data), random = load(name), np.random.default_rng(0)
    found = []
    for _ in range(count):
        found.append(data.qpos.copy())
        data.ctrl[:] = random.uniform(*model.actuator_ctrlrange.T)
        mujoco.mj_step(model, data, round(0.5 / model.opt.timestep))
    return np.stack(found)


def pictures(name: str, positions: np.ndarray, size: int, renderer: type) -> np.ndarray:
    """States seen by the free camera and by all of the model: (state, camera, size, size, 3)."""
    model, data = load(name)
    drawer = renderer(model, size, size)
    drawn = []
    for data.qpos[:] in positions:
        mujoco.mj_forward(model, data)
        drawn.append([drawer.render(data, camera) for camera in range(-1, model.ncam)])
    return np.array(drawn)


def store_references(renderer: type) -> None:
    """Writes two states of each model and a renderer's pictures of them, which `load_references` reads."""
    arrays = {}
    for name in MODELS:
        positions = states(name, 2)
        arrays[f"{name}/qpos"] = positions
        arrays[f"{name}/pictures"] = np.diff(pictures(name, positions, 64, renderer), axis=-2, prepend=np.uint8(0))
    np.savez_compressed(REFERENCES, **arrays)


def load_references(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A model's stored states and pictures, as `states` and `pictures` give them."""
    with np.load(REFERENCES) as file:
        return file[f"{name}/qpos"], np.cumsum(file[f"{name}/pictures"], axis=-2, dtype=np.uint8)
