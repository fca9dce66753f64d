"""The control suite's worlds in random states, for comparing renderers; states can be stored."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import mujoco
import numpy as np
from dm_control import suite
from skimage.metrics import structural_similarity

from mjraycast import Renderer

SIZES = (64, 84)
LEAST_PSNR = 37.0  # decibels, mean over a world's states
LEAST_SSIM = 0.98

# Everything in a model that a task may draw at the start of an episode and that a picture shows.
DRAWN_FIELDS = (
    "geom_pos", "geom_quat", "geom_size", "geom_rgba", "site_pos", "site_size", "site_rgba", "body_pos",
    "body_quat", "light_pos", "cam_pos", "mat_rgba",
)  # fmt: skip
REFERENCES = Path(__file__).parent / "references.npz"


class World(NamedTuple):
    """A task of the suite and the camera that looks at it."""

    domain: str
    task: str
    camera: int = 0


WORLDS = (
    World("acrobot", "swingup"),
    World("ball_in_cup", "catch"),
    World("cartpole", "swingup"),
    World("cheetah", "run"),
    World("finger", "turn_hard"),
    World("hopper", "hop"),
    World("humanoid", "run"),
    World("pendulum", "swingup"),
    World("point_mass", "easy"),
    World("quadruped", "run", camera=2),
    World("reacher", "hard"),
    World("swimmer", "swimmer6"),
    World("walker", "walk"),
)

State = dict[str, np.ndarray]  # positions, and fields of the model that are not as it was loaded


def load(world: World, seed: int = 0) -> Any:
    """The suite's environment of a world."""
    return suite.load(world.domain, world.task, task_kwargs={"random": seed})


def random_states(world: World, count: int, seed: int) -> Iterator[State]:
    """States of episodes of random actions: every fourth at its start, the others 1 to 100 steps later."""
    env, loaded = load(world, seed), load(world, seed).physics.model
    random = np.random.default_rng(seed)
    actions = env.action_spec()
    for number in range(count):
        env.reset()
        for _ in range(0 if number % 4 == 0 else random.integers(1, 100)):
            env.step(random.uniform(actions.minimum, actions.maximum))
        state = {name: getattr(env.physics.model, name).copy() for name in DRAWN_FIELDS}
        changed = {name: value for name, value in state.items() if np.any(value != getattr(loaded, name))}
        yield {"qpos": env.physics.data.qpos.copy(), **changed}


def set_state(physics: Any, state: State) -> None:
    """Puts a world into a stored state."""
    physics.data.qpos[:] = state["qpos"]
    for name in DRAWN_FIELDS:
        if name in state:
            getattr(physics.model, name)[:] = state[name]
    mujoco.mj_forward(physics.model.ptr, physics.data.ptr)


def pictures(world: World, states: list[State], size: int, renderer: type = Renderer) -> np.ndarray:
    """Pictures of a world's states, drawn by a kind of renderer."""
    physics = load(world).physics
    drawer = renderer(physics.model.ptr, size, size)
    drawn = np.empty((len(states), size, size, 3), np.uint8)
    for state, picture in zip(states, drawn, strict=True):
        set_state(physics, state)
        picture[:] = drawer.render(physics.data.ptr, world.camera)
    return drawn


def psnr(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Peak signal-to-noise ratio of two 8-bit pictures, in decibels."""
    error = np.mean((ours.astype(float) - theirs.astype(float)) ** 2)
    return float(10 * np.log10(255**2 / max(error, 1e-10)))


def ssim(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Structural similarity of two pictures."""
    return float(structural_similarity(ours, theirs, channel_axis=-1))


def store_references(references: dict[tuple[str, int], list[tuple[State, np.ndarray]]]) -> None:
    """Writes states and their pictures, by domain and size.

    Neighbouring pixels' differences take half of the room that the pixels would.
    """
    arrays = {}
    for (domain, size), pairs in references.items():
        states, drawn = zip(*pairs, strict=True)
        stacked = np.stack(drawn)
        arrays[f"{domain}/{size}/pictures"] = np.diff(stacked, axis=2, prepend=np.uint8(0))
        for name in states[0]:
            arrays[f"{domain}/{size}/{name}"] = np.stack([state[name] for state in states])
    np.savez_compressed(REFERENCES, **arrays)


def load_references(domain: str, size: int) -> list[tuple[State, np.ndarray]]:
    """The stored states of a domain and their pictures of a size."""
    prefix = f"{domain}/{size}/"
    with np.load(REFERENCES) as file:
        arrays = {name.removeprefix(prefix): file[name] for name in file.files if name.startswith(prefix)}
    drawn = np.cumsum(arrays.pop("pictures"), axis=2, dtype=np.uint8)
    return [({name: values[number] for name, values in arrays.items()}, picture) for number, picture in enumerate(drawn)]
