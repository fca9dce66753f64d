"""What the phases need to know of a world before the first step, and how to make many of it."""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from ..config import Spaces, WorldConfig, read_config
from ..envs import Task, VectorEnv, make
from ..envs.names import DATASET, GYMNASIUM, domain_of, full_name, is_suite, read_arguments, split_name
from ..replay import Episode
from ..replay.buffer import TooLittleMemoryError, gigabytes, host_room
from ..runs.folder import RunError, RunFolder

log = logging.getLogger("plan2explore.phases")

MANY = 64  # environments: what more of them need is found out before they are made


@dataclass(frozen=True)
class WorldInfo:
    """Sizes and facts of a world that come from its environment."""

    action: int
    proprio: int
    renderer: str
    fps: float
    episode: int
    """Env steps of an episode that nothing ends early."""
    action_repeat: int
    discrete: tuple[int, ...] = ()
    """Choices of each discrete action; empty for continuous ones."""
    terminates: bool = False
    """Whether an episode can end before its time."""

    @property
    def frames(self) -> int:
        """Stored steps of a whole episode: the first observation and one for each action."""
        return -(-self.episode // self.action_repeat) + 1


def named_world(config: WorldConfig) -> WorldConfig:
    """The configuration with the world's full name, its arguments in it."""
    return replace(config, world=full_name(config.world, read_arguments(config.env_arg)), env_arg=())


def inspect_world(config: WorldConfig) -> WorldInfo:
    """Makes the world once to inspect it. A wrong name, size or renderer is an error here, before anything is written."""
    env = make_world(config)
    try:
        if config.world.startswith(GYMNASIUM):
            env.reset(seed=0)  # draws its first image, if it is to, perhaps with a package that is not installed
        (proprio,) = env.observation_space["proprio"].shape or (0,)
        return WorldInfo(
            env.action_size, proprio, env.renderer, env.fps, env.episode, config.action_repeat, env.discrete, env.terminates
        )
    finally:
        env.close()


def world_info(folder: RunFolder, config: WorldConfig) -> WorldInfo:
    """What a run needs to know of its world; of a data set it is in the run's settings."""
    data = folder.settings.get("data")
    return inspect_world(config) if data is None else read_config(WorldInfo, data)


def check_simulator(world: str) -> None:
    """A data set cannot be played in."""
    if world.startswith(DATASET):
        raise RunError(f"{world} is a data set: there is no simulator to play in. Give policy.act an environment of yours.")


def make_world(config: WorldConfig) -> Any:
    """One environment of the world."""
    return make(config.world, **_options(config))


def check_room(config: WorldConfig, count: int, setting: str) -> None:
    """Environments that host memory has no room for are refused by name: else the system would kill their processes."""
    if count <= MANY:
        return
    each, room = bytes_of_one(config), host_room()
    if count * each > room:
        raise TooLittleMemoryError(
            f"{count:,} environments at once need about {gigabytes(count * each)} ({gigabytes(each)} each), and host memory "
            f"has {gigabytes(room)} free: use fewer ({setting})."
        )


def bytes_of_one(config: WorldConfig) -> int:
    """Host memory that one more environment takes, by what a process of ten has more than one of two.

    The first process may compile the ray-caster, which takes more memory than environments do, and is not counted.
    """
    pages = []
    for count in (1, 2, 10):
        with make_collecting(config, count, seed=0, workers=1) as envs:
            envs.reset()
            pages.append(int(Path(f"/proc/{envs.processes[0]}/statm").read_text().split()[1]))
    return max(0, pages[2] - pages[1]) * os.sysconf("SC_PAGE_SIZE") // 8


def agent_spaces(config: WorldConfig, info: WorldInfo, tasks: int) -> Spaces:
    """What the agent sees and does in this world."""
    image = None if config.obs == "proprio" else config.size
    proprio = None if config.obs == "pixels" else info.proprio or None  # a world may observe an image alone
    return Spaces(info.action, image, proprio, tasks, info.discrete, info.terminates)


def check_tasks(world: str, tasks: Sequence[Task]) -> None:
    """A task of another body cannot be computed from this world's states: say so before anything is done."""
    for task in tasks:
        if task.reward is None and (domain := split_name(task.name)[0]) != domain_of(world):
            raise ValueError(f"Task {task.name!r} belongs to {domain}; the world here is {world}")
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise ValueError(f"Each task must have a name of its own; got {', '.join(names)}")


def check_origin(file: Path, episode: Episode, config: WorldConfig) -> None:
    """An episode names its world, which is made to label it: an untrusted file must not name any other."""
    if episode.world != config.world:
        raise RunError(f"{file} is an episode of {episode.world!r}; this run is in {config.world!r}. Move it elsewhere.")


def parse_task(text: str) -> Task:
    """A task from the command line: a name of the suite, or `file.py:function`."""
    return Task.from_file(text) if ".py:" in text else Task.named(text)


def make_collecting(
    config: WorldConfig,
    count: int,
    seed: int,
    first_episode: int = 0,
    workers: int | None = None,
    task: Task | None = None,
) -> VectorEnv:
    """Environments to collect in; with a task, episodes begin as the task's do."""
    if task is not None:
        makes = [partial(make_task, config, task, frames=False)] * count
        return VectorEnv(makes, count, workers, seed=seed, first_episode=first_episode)
    return VectorEnv(config.world, count, workers, seed=seed, first_episode=first_episode, **_options(config))


def make_for_tasks(config: WorldConfig, tasks: Sequence[Task], episodes: int, seed: int) -> VectorEnv:
    """Environments to evaluate in: `episodes` of each task in turn, in the order of the tasks.

    The first of each task draws frames for a video whatever the agent observes.
    """
    makes = [partial(make_task, config, task, frames=index == 0) for task in tasks for index in range(episodes)]
    return VectorEnv(makes, len(makes), seed=seed)


def make_task(config: WorldConfig, task: Task, frames: bool = True) -> Any:
    """The world with this task's own reward and initial states, observed as the run's world is.

    With `frames`, images are drawn in any case.
    """
    name, own = (task.name, None) if task.reward is None else (domain_of(config.world), task)
    options = _options(config) | ({"observe_as": config.world} if is_suite(name) else {})
    if frames and config.obs == "proprio":
        try:
            env = make(name, task=own, **options | {"obs": "both"})
            env.reset(seed=0)
            return env
        except Exception as error:  # of any package that draws
            log.warning("%s cannot be drawn (%s): its videos stay black.", name, error)
    return make(name, task=own, **options)


def _options(config: WorldConfig) -> dict[str, Any]:
    return {name: getattr(config, name) for name in ("size", "action_repeat", "renderer", "obs", "camera")}
