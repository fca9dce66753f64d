"""Crafter's metric: the share of episodes that unlock each achievement, and the score of all these shares.

As D. Hafner defines them in "Benchmarking the Spectrum of Agent Capabilities" (ICLR 2022, arXiv:2109.06780).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from ..atomic import write_file
from ..envs.gymnasium import make_inner
from ..envs.spaces import ObservationParts
from ..reference import crafter_scoreboard
from ..replay.files import EpisodeFolder
from ..runs.folder import RunFolder
from ..runs.reader import stored_config
from .results import ACHIEVEMENTS, Result, csv_bytes, one_each, origin_of
from .tables import markdown


@dataclass(frozen=True)
class Achievements:
    """Of all episodes that an exploration finished."""

    episodes: int
    env_steps: int
    rates: dict[str, float]
    """Percent of the episodes in which an achievement was unlocked at least once."""


def crafter_score(rates: Collection[float]) -> float:
    """exp(mean(ln(1 + s))) - 1 of success rates s in percent: rare achievements count as much as common ones."""
    return float(np.expm1(np.mean(np.log1p(list(rates)))))


def read_achievements(run: RunFolder) -> Achievements:
    """What the episodes of an exploration of Crafter unlocked. Stored states have the counts, which never fall."""
    world = stored_config(run).world.world
    inner = make_inner(world, None)
    parts = ObservationParts(inner.observation_space, world)
    counts, env_steps = [], 0
    for _, episode in EpisodeFolder(run.episodes, read_only=True).load_all(pictures=False):
        counts.append(parts.unflatten(episode.state[-1, 0, : parts.size])["achievements"])
        env_steps += int(episode.meta["env_steps"])
    if not counts:
        raise ValueError(f"{run.path} has no finished episode to score: give more --steps.")
    rates = 100 * (np.array(counts) > 0).mean(0)
    names: list[str] = inner.unwrapped.achievements  # type: ignore[attr-defined]
    return Achievements(len(counts), env_steps, dict(zip(names, rates.tolist(), strict=True)))


def score_run(run: RunFolder, method: str, seed: int) -> Result:
    """The score of an exploration of Crafter. Its success rates are written to `achievements.csv` in the run's folder."""
    found = read_achievements(run)
    rates = [{"achievement": name, "percent": f"{rate:.4f}"} for name, rate in found.rates.items()]
    write_file(run.path / "achievements.csv", [csv_bytes(rates)])
    score = crafter_score(found.rates.values())
    return Result(
        "crafter", method, ACHIEVEMENTS, seed, found.env_steps, score, 0.0, found.episodes, **origin_of(run)
    )


def crafter_markdown(results: Sequence[Result]) -> str:
    """Scores by method, mean and standard deviation over seeds, beside the published ones."""
    chosen = [each for each in one_each(results) if each.protocol == ACHIEVEMENTS]
    chosen.sort(key=lambda each: (each.method, each.env_steps))
    last = {(each.method, each.seed): each for each in chosen}.values()
    rows = [["agent without reward", "env steps", "seeds", "episodes", "score (%)"]]
    for method in dict.fromkeys(each.method for each in last):
        ours = [each for each in last if each.method == method]
        scores = [each.score for each in ours]
        spread = f" ± {np.std(scores):.2f}" if len(ours) > 1 else ""
        steps, episodes = min(each.env_steps for each in ours), sum(each.episodes for each in ours)
        rows.append([f"{method}, here", f"{steps:,}", str(len(ours)), f"{episodes:,}", f"{np.mean(scores):.2f}{spread}"])
    for agent, (score, std) in crafter_scoreboard().items():
        rows.append([f"{agent}, scoreboard", "1,000,000", "", "", f"{score} ± {std}"])
    return markdown(rows)
