"""Learning from a data set: the world model, the ensemble and tasks, of episodes that somebody else collected."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..agent.learner import Learner
from ..config import ExploreConfig, Schedule, WorldConfig, check_counts, read_config
from ..console import counted
from ..device import prepare_device
from ..envs import Task
from ..envs.names import DATASET, folder_name
from ..replay import Episode
from ..replay.exchange import Source, export_minari, export_npz, open_source
from ..replay.files import EpisodeFolder
from ..runs.files import check_writable
from ..runs.folder import RunError, RunFolder, begin_run
from ..runs.reader import stored, stored_config
from .explore import check, check_batch, configure, refuse_other
from .progress import Progress
from .run import Run
from .tasks import as_task, own_tasks, task_settings
from .training import Job, make_replay, open_training, writing
from .world import WorldInfo, agent_spaces, world_info


def learn(
    dataset: str | Path,
    updates: int = 20_000,
    out: str | Path | None = None,
    preset: str = "paper",
    method: str | None = None,
    probes: Sequence[str | Task] = (),
    seed: int = 0,
    obs: str | None = None,
    size: int = 64,
    config: ExploreConfig | None = None,
    wandb: bool = False,
) -> Run:
    """Learns from episodes that are there already, without a simulator. The same command resumes.

    Args:
        dataset: `minari:ID`, a file FILE.npz (docs/data.md), or the folder of a run, whose episodes are taken.
        updates: In all.
        out: The run's folder, by default `runs/NAME`. The episodes are copied there.
        preset: The agent: paper, small, tiny, modern or modern-tiny.
        method: plan2explore, retrospective, max, curiosity or random.
        probes: Tasks that are learned beside the model: of a data set, functions of (observation, action,
            next_observation).
        seed: Random seed.
        obs: `pixels`, `proprio` or `both`; by default all that there is.
        size: Width and height of images, as which they are learned.
        config: Agent and seed at once, instead of preset, method and seed.
        wandb: Also log to Weights & Biases.
    """
    check_counts(updates=updates)
    episodes = Episodes(str(dataset), obs, size)
    config = config or configure(episodes.world.world, preset, method, seed)
    tasks = [as_task(probe) for probe in probes]
    config = replace(config, world=episodes.world, schedule=Schedule(), probes=tuple(task.name for task in tasks))
    check(config, tasks, episodes.info)
    prepare_device()
    check_batch(config.agent, agent_spaces(config.world, episodes.info, len(tasks)))
    path = Path(out) if out is not None else Path("runs") / folder_name(episodes.name)
    settings: dict[str, Any] = {"config": asdict(config), "learned_from": str(dataset), "updates": updates}
    settings |= task_settings(tasks)
    if episodes.source is not None:
        settings["data"] = asdict(episodes.info)
    if RunFolder.is_run(path):
        folder = RunFolder.open(path)
        if "learned_from" not in folder.settings:
            raise RunError(f"{path} is a run that was not learned from a data set: choose another --out.")
        refuse_other(folder, config, "Give the same settings to resume it")
        tasks = own_tasks(folder, config.probes, tasks, resume=True)
    with begin_run(path, "explore", settings) as folder:
        return _work(folder, config, tasks, episodes, updates, wandb)


class Episodes:
    """What is learned from: a data set, or the episodes of a run."""

    def __init__(self, name: str, obs: str | None, size: int) -> None:
        self.source: Source | None = None
        if RunFolder.is_run(name):
            self._run = Run(name)
            self.name = Path(name).name + "-learned"
            stored_world = stored_config(self._run.folder).world
            self.world = stored_world if obs is None else read_config(WorldConfig, asdict(stored_world) | {"obs": obs})
            self.info = world_info(self._run.folder, self.world)
            if self._run.folder.settings.get("data"):
                raise RunError(f"{name} was itself learned from a data set: give that.")
            return
        self.source = open_source(name)
        parts, actions = self.source.parts, self.source.actions
        found = {"pixels": parts.has_image, "proprio": parts.size > 0, "both": parts.has_image and parts.size > 0}
        chosen = obs or max((each for each, is_there in found.items() if is_there), key=("pixels", "proprio", "both").index)
        if not found.get(chosen):
            known = ", ".join(each for each, is_there in found.items() if is_there)
            raise ValueError(f"{name} cannot be observed as {chosen!r}; it has {known}.")
        self.name = self.source.name
        self.world = read_config(WorldConfig, dict(world=DATASET + self.name, obs=chosen, size=size, action_repeat=1))
        self.info = WorldInfo(actions.size, parts.size, "data", 30.0, 1000, 1, actions.discrete, terminates=True)

    def __iter__(self) -> Iterator[Episode]:
        return self.source.episodes(self.world.size) if self.source else self._run.episodes()


def _copy(folder: RunFolder, episodes: Episodes, progress: Progress) -> None:
    """Copies the episodes into the run, unless all of them are there."""
    if folder.settings.get("copied"):
        return
    place, count, steps = EpisodeFolder(folder.episodes), 0, 0
    for number, episode in enumerate(episodes):
        place.save(number, episode)
        count, steps = number + 1, steps + len(episode)
    if not count:
        raise RunError(f"{folder.settings['learned_from']} has no episode to learn from.")
    folder.change_settings(folder.settings | {"copied": [count, steps]})
    progress.say(f"{counted(count, 'episode')} with {counted(steps, 'step')} of {folder.settings['learned_from']}")


def _work(folder: RunFolder, config: ExploreConfig, tasks: list[Task], episodes: Episodes, updates: int, wandb: bool) -> Run:
    """Copies the episodes, resumes from the last checkpoint if there is one, and makes all updates."""
    schedule = replace(
        config.schedule, updates_per_episode=0, environments=1, evaluate_every=0, evaluate_episodes=0, snapshot_every=10**15
    )
    updates = max(updates, stored(folder, "updates", int))
    job = Job(
        folder, config.world, episodes.info, schedule, tasks, config.seed, goal=0, environments=1, head_start=updates,
        policy=config.agent.intrinsic.objective, settings={"updates": updates},
    )  # fmt: skip
    learner = Learner(config.agent, job.spaces)
    with writing(folder), Progress(f"learning from {episodes.name}") as progress:
        progress.say(f"Run folder: {folder.path}")
        _copy(folder, episodes, progress)
        replay = make_replay(schedule, job.spaces, config.agent, stored(folder, "copied", list)[1], progress)
        with open_training(job, learner, replay, progress, wandb) as training:
            training.run()
        progress.say(f"Done: {counted(training.updates, 'update')}. Run folder: {folder.path}")
    return Run(folder.path)


def export(run: Run | str | Path, format: str = "npz", out: str | Path | None = None, obs: str | None = None) -> str:
    """Writes a run's episodes for other programs; where they are.

    Args:
        run: An exploration or its folder.
        format: `npz` (one file, docs/data.md) or `minari` (a data set among Minari's).
        out: The file, by default NAME.npz, or the data set's id, by default `plan2explore/NAME-v0`.
        obs: Observations to write, by default what the agent observes. Episodes have the vector (`proprio`) in any case, and
            images unless the agent observes the vector alone.
    """
    run = run if isinstance(run, Run) else Run(run)
    config = stored_config(run.folder).world
    chosen = read_config(WorldConfig, asdict(config) | ({"obs": obs} if obs else {}))
    if chosen.obs != "proprio" == config.obs:
        raise ValueError(f"{run.path} has no images: its agent observes proprio.")
    spaces = agent_spaces(chosen, world_info(run.folder, config), 0)
    if not EpisodeFolder(run.folder.episodes, read_only=True).numbers():
        raise RunError(f"{run.path} has no episode yet.")
    name = folder_name(run.path.resolve().name)
    if format == "minari":
        found = str(out or f"plan2explore/{name}-v0")
        export_minari(found, run.episodes(), spaces, f"Exploration of {config.world} without a reward")
        return f"minari:{found}"
    if format != "npz":
        raise ValueError(f"Episodes are exported as npz or minari; got {format!r}")
    path = Path(out or f"{name}.npz")
    if path.suffix != ".npz":
        raise ValueError(f"The file of a data set ends in .npz; got {path}")
    check_writable(path)
    export_npz(path, run.episodes(), spaces)
    return str(path)
