"""Episodes of other programs and for other programs: Minari data sets, and plain NumPy archives.

Both say what Gymnasium says: T actions, rewards, terminations and truncations of an episode, and T + 1 observations.
In a NumPy archive the episodes follow one another; docs/data.md describes it.
"""

import io
import json
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from gymnasium import spaces as gym

from ..atomic import write_file
from ..config import Spaces
from ..envs.names import DATASET
from ..envs.spaces import ActionVector, ObservationParts, discrete_space, space_from_json, space_to_json
from ..untrusted import parse_object
from .buffer import TooLittleMemoryError, gigabytes, host_room
from .episode import Episode

MINARI = "minari:"
NO_IMAGE = np.zeros((8, 8, 3), np.uint8)
STEPS = ("actions", "rewards", "terminations", "truncations")


class Trajectory(NamedTuple):
    """An episode as Gymnasium has it. Observations and actions are arrays, or dictionaries or tuples of such."""

    observations: Any
    actions: Any
    rewards: np.ndarray
    terminated: bool

    def __len__(self) -> int:
        return len(self.rewards)


class Source:
    """A data set that somebody else collected."""

    def __init__(
        self, name: str, observed: gym.Space[Any], acted: gym.Space[Any], trajectories: Callable[[], Iterator[Trajectory]]
    ) -> None:
        self.name, self._trajectories = name, trajectories
        self.parts, self.actions = ObservationParts(observed, name), ActionVector(acted, name)
        described = {"observation": space_to_json(self.parts.vector_space), "action": space_to_json(acted)}
        self._meta = {"renderer": "data", "action_repeat": 1, "policy": name, "terminates": True, "spaces": described}
        self._meta |= {"discrete": list(self.actions.discrete)} if self.actions.discrete else {}

    def episodes(self, size: int) -> Iterator[Episode]:
        """Its episodes, with images of `size` pixels."""
        parts, actions = self.parts, self.actions
        for each in self._trajectories():
            if not (count := len(each)):
                continue
            observations = [_at(each.observations, step) for step in range(count + 1)]
            vectors = np.stack([parts.vector(seen) for seen in observations])
            taken = [_at(each.actions, step) for step in range(count)]
            flat = np.stack([np.zeros(actions.size), *map(actions.flatten, taken)])
            yield Episode(
                world=DATASET + self.name,
                image=np.stack([parts.image(seen, size) if parts.has_image else NO_IMAGE for seen in observations]),
                proprio=vectors.astype(np.float32),
                action=np.stack([np.zeros(actions.size, np.float32), *map(actions.to_vector, taken)]),
                reward=np.concatenate([[0.0], np.asarray(each.rewards, np.float64)]),
                state=np.concatenate([vectors, flat], 1)[:, None],
                drawn=np.zeros(0),
                meta=self._meta | {"env_steps": count, "terminated": bool(each.terminated)},
            )


def _at(tree: Any, step: int) -> Any:
    """One step of arrays that have a leading axis of steps."""
    return jax.tree.map(lambda array: array[step], tree)


# --- In ---


def open_source(name: str) -> Source:
    """The data set `minari:ID`, or that of an archive FILE.npz."""
    if name.startswith(MINARI):
        return _open_minari(name.removeprefix(MINARI))
    path = Path(name)
    if path.suffix != ".npz" or not path.is_file():
        raise ValueError(f"A data set is minari:ID, a file FILE.npz, or the folder of a run; got {name!r}, which is none.")
    return _open_npz(path)


def _import_minari() -> Any:
    try:
        import minari
    except ImportError:
        raise ValueError("Minari is not installed: pip install 'plan2explore[data]'") from None
    return minari


def _open_minari(name: str) -> Source:
    minari = _import_minari()
    try:
        found = minari.load_dataset(name)
    except (FileNotFoundError, ValueError) as error:
        raise ValueError(f"Minari has no data set {name!r} here ({error}); fetch it first: minari download {name}") from None

    def trajectories() -> Iterator[Trajectory]:
        for each in found.iterate_episodes():
            yield Trajectory(each.observations, each.actions, each.rewards, bool(each.terminations[-1:].any()))

    return Source(name, found.observation_space, found.action_space, trajectories)


def _open_npz(path: Path) -> Source:
    try:
        with np.load(path, allow_pickle=False) as file:
            need, room = sum(each.file_size for each in file.zip.infolist()), host_room()
            if need > room:
                raise TooLittleMemoryError(f"{path} needs {gigabytes(need)}, and host memory has {gigabytes(room)} free.")
            arrays = dict(file)
    except TooLittleMemoryError:
        raise
    except Exception as error:  # a damaged archive fails in a dozen ways
        raise ValueError(f"{path} is no data set: {error}") from None
    observations = {name: array for name, array in arrays.items() if name.partition("/")[0] == "observations"}
    missing = [name for name in ("actions", "terminations") if name not in arrays]
    if missing or not observations:
        raise ValueError(f"{path} is no data set: it has no array {(missing or ['observations'])[0]!r}")
    action = arrays["actions"]
    steps = len(action)
    ends = arrays["terminations"].astype(bool) | arrays.get("truncations", np.zeros(steps)).astype(bool)
    stops = np.flatnonzero(ends) + 1
    stops = stops if len(stops) and stops[-1] == steps else np.append(stops, steps)
    needed = {name: steps for name in STEPS if name in arrays} | dict.fromkeys(observations, steps + len(stops))
    for name, rows in needed.items():
        if len(arrays[name]) != rows:
            about = f"where {steps} actions in {len(stops)} episodes need {rows}"
            raise ValueError(f"{path} is no data set: {name} has {len(arrays[name])} rows, {about}")
    rewards = arrays.get("rewards", np.zeros(steps))

    def trajectories() -> Iterator[Trajectory]:
        for number, (start, stop) in enumerate(zip([0, *stops[:-1]], stops, strict=True)):
            seen = {name: array[start + number : stop + number + 1] for name, array in observations.items()}
            whole = seen.get("observations", {name.partition("/")[2]: each for name, each in seen.items()})
            yield Trajectory(whole, action[start:stop], rewards[start:stop], bool(arrays["terminations"][stop - 1]))

    if known := parse_object(str(arrays.get("spaces"))):
        observed, acted = (space_from_json(known.get(name)) for name in ("observation", "action"))
    else:
        observed, acted = _observation_space(observations), _action_space(path, arrays)
    return Source(path.stem, observed, acted, trajectories)


def _observation_space(observations: dict[str, np.ndarray]) -> gym.Space[Any]:
    def box(array: np.ndarray) -> gym.Space[Any]:
        low, high = (0, 255) if array.dtype == np.uint8 else (-np.inf, np.inf)
        return gym.Box(low, high, array.shape[1:], np.uint8 if array.dtype == np.uint8 else np.float64)

    if "observations" in observations:
        return box(observations["observations"])
    return gym.Dict({name.partition("/")[2]: box(array) for name, array in observations.items()})


def _action_space(path: Path, arrays: dict[str, np.ndarray]) -> gym.Space[Any]:
    """Whole numbers are choices; other numbers have bounds, -1 and 1 unless `action_low` and `action_high` are there."""
    action = arrays["actions"]
    if action.dtype.kind in "iu":
        return gym.Discrete(int(action.max()) + 1) if action.ndim == 1 else gym.MultiDiscrete(action.max(0) + 1)
    low, high = (
        np.broadcast_to(arrays.get(f"action_{name}", value), action.shape[1:]) for name, value in (("low", -1), ("high", 1))
    )
    if (action < low - 1e-6).any() or (action > high + 1e-6).any():
        found = f"from {action.min():g} to {action.max():g}"
        raise ValueError(f"{path} has actions {found}: add their bounds, arrays action_low and action_high")
    return gym.Box(low.astype(np.float64), high.astype(np.float64), action.shape[1:], np.float64)


# --- Out ---


def export_spaces(observed: Spaces) -> tuple[gym.Space[Any], gym.Space[Any]]:
    """What an agent observes and does, as Gymnasium's spaces."""
    parts: dict[str, gym.Space[Any]] = {}
    if observed.image is not None:
        parts["image"] = gym.Box(0, 255, (observed.image, observed.image, 3), np.uint8)
    if observed.proprio is not None:
        parts["proprio"] = gym.Box(-np.inf, np.inf, (observed.proprio,), np.float32)
    continuous = gym.Box(-1.0, 1.0, (observed.action,), np.float32)
    action = discrete_space(observed.discrete) if observed.discrete else continuous
    return gym.Dict(parts) if len(parts) > 1 else next(iter(parts.values())), action


def trajectory_of(episode: Episode, observed: Spaces) -> Trajectory:
    """An episode of ours as Gymnasium has it."""
    names = [name for name in ("image", "proprio") if getattr(observed, name) is not None]
    seen = {name: getattr(episode, name) for name in names}
    action = episode.action[1:]
    if observed.discrete:
        ends = np.cumsum(observed.discrete)[:-1]
        action = np.stack([part.argmax(-1) for part in np.split(action, ends, -1)], -1)
        action = action[:, 0] if len(observed.discrete) == 1 else action
    terminated = bool(episode.meta.get("terminated", False))
    return Trajectory(seen if len(names) > 1 else seen[names[0]], action, episode.reward[1:], terminated)


def export_npz(path: Path, episodes: Iterable[Episode], observed: Spaces) -> None:
    """Writes all episodes as one archive. They are in memory together."""
    found = [trajectory_of(episode, observed) for episode in episodes]
    observations: Any = jax.tree.map(lambda *parts: np.concatenate(parts), *(each.observations for each in found))
    named = {f"/{key}": part for key, part in observations.items()} if isinstance(observations, dict) else {"": observations}
    arrays = {f"observations{name}": part for name, part in named.items()}
    last = np.concatenate([np.arange(len(each)) == len(each) - 1 for each in found])
    terminated = np.repeat([each.terminated for each in found], [len(each) for each in found])
    observation, action = map(space_to_json, export_spaces(observed))
    arrays |= {
        "actions": np.concatenate([each.actions for each in found]),
        "rewards": np.concatenate([each.rewards for each in found]),
        "terminations": last & terminated,
        "truncations": last & ~terminated,
        "spaces": np.array(json.dumps({"observation": observation, "action": action})),
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    write_file(path, [buffer.getbuffer()])


def export_minari(name: str, episodes: Iterable[Episode], observed: Spaces, description: str) -> None:
    """Writes a data set of this name to where Minari keeps its own. Images are not compressed with loss."""
    minari = _import_minari()
    from minari.data_collector import EpisodeBuffer

    def buffer(number: int, episode: Episode) -> Any:
        each = trajectory_of(episode, observed)
        last = np.arange(len(each)) == len(each) - 1
        return EpisodeBuffer(
            id=number, seed=episode.meta.get("seed"), observations=each.observations, actions=each.actions,
            rewards=each.rewards, terminations=last & each.terminated, truncations=last & (not each.terminated),
        )  # fmt: skip

    if name in minari.list_local_datasets():
        raise ValueError(f"Minari has a data set {name!r} already: give another --out, or minari delete {name}")
    observation_space, action_space = export_spaces(observed)
    with warnings.catch_warnings(action="ignore"):  # no environment, author or link is told
        minari.create_dataset_from_buffers(
            name, (buffer(number, episode) for number, episode in enumerate(episodes)), observation_space=observation_space,
            action_space=action_space, algorithm_name="plan2explore", description=description, jpeg_encoding=False,
        )  # fmt: skip
