"""Crafter's metric: the share of episodes that unlock each achievement, and the score of all these shares.

As D. Hafner defines them in "Benchmarking the Spectrum of Agent Capabilities" (ICLR 2022, arXiv:2109.06780).
"""

from collections.abc import Collection, Sequence

import numpy as np

from ..atomic import write_file
from ..envs.gymnasium import make_inner
from ..envs.spaces import ObservationParts
from ..reference import crafter_scoreboard
from ..replay.files import EpisodeFolder
from ..runs.folder import RunFolder
from ..runs.reader import stored_config
from ..runs.results import ACHIEVEMENTS, Result, csv_bytes, one_each, origin_of
from .tables import grouped, markdown


def crafter_score(rates: Collection[float]) -> float:
    """exp(mean(ln(1 + s))) - 1 of success rates s in percent: rare achievements count as much as common ones."""
    return float(np.expm1(np.mean(np.log1p(list(rates)))))


def score_run(run: RunFolder, method: str, seed: int) -> Result:
    """The score of an exploration of Crafter. Its success rates are written to `achievements.csv` in the run's folder."""
    world = stored_config(run).world.world
    inner = make_inner(world, None)
    parts = ObservationParts(inner.observation_space, world)
    counts, env_steps = [], 0
    for _, episode in EpisodeFolder(run.episodes, read_only=True).load_all(images=False):
        # Stored states have the counts, which never fall.
        counts.append(parts.unflatten(episode.state[-1, 0, : parts.size])["achievements"])
        env_steps += int(episode.meta["env_steps"])
    if not counts:
        raise ValueError(f"{run.path} has no finished episode to score: give more --steps.")
    rates = (100 * (np.array(counts) > 0).mean(0)).tolist()
    names: list[str] = inner.unwrapped.achievements  # type: ignore[attr-defined]
    rows = [{"achievement": name, "percent": f"{rate:.4f}"} for name, rate in zip(names, rates, strict=True)]
    write_file(run.path / "achievements.csv", [csv_bytes(rows)])
    score = crafter_score(rates)
    return Result("crafter", method, ACHIEVEMENTS, seed, env_steps, score, 0.0, len(counts), **origin_of(run))


def crafter_markdown(results: Sequence[Result]) -> str:
    """Scores by method, mean and standard deviation over seeds, beside the published ones."""
    chosen = [each for each in one_each(results) if each.protocol == ACHIEVEMENTS]
    chosen.sort(key=lambda each: (each.method, each.env_steps))
    last = {(each.method, each.seed): each for each in chosen}.values()
    rows = [["agent without reward", "env steps", "seeds", "episodes", "score (%)"]]
    for method, ours in grouped(last, lambda each: each.method).items():
        scores = [each.score for each in ours]
        spread = f" ± {np.std(scores):.2f}" if len(ours) > 1 else ""
        steps, episodes = min(each.env_steps for each in ours), sum(each.episodes for each in ours)
        rows.append([f"{method}, here", f"{steps:,}", str(len(ours)), f"{episodes:,}", f"{np.mean(scores):.2f}{spread}"])
    for agent, (score, std) in crafter_scoreboard().items():
        rows.append([f"{agent}, scoreboard", "1,000,000", "", "", f"{score} ± {std}"])
    return markdown(rows)
