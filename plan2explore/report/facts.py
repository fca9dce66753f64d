"""What happened, in a sentence; and what was run, on what."""

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from ..config import PRESETS, ExploreConfig, differences
from ..console import duration
from ..runs.reader import greatest, is_number, progress_of, read_starts
from .html import Markup, facts, join, missing, tag, text
from .run import ReportRun
from .scores import SOLVED, find_scores, solved
from .tables import grouped


def headline(runs: Sequence[ReportRun]) -> Markup:
    """Coverage and tasks of the method that explores, and in parentheses of the others."""
    groups = grouped(sorted(runs, key=lambda run: run.about.method == "random"), lambda run: run.about.method)
    worlds = list(dict.fromkeys(run.about.world for run in runs))
    steps, seeds = max(int(greatest(run.metrics, "env_steps")) for run in runs), max(map(len, groups.values()))
    about = f"{next(iter(groups))} in {', '.join(worlds)}, {steps:,} env steps"
    about += f", {seeds} runs{' each' * (len(groups) > 1)}" * (seeds > 1)
    said = "; ".join(filter(None, (_coverage(groups) if len(worlds) == 1 else "", _tasks(groups))))
    return text(f"{about}: {said}." if said else f"{about}.")


def _coverage(groups: dict[str, list[ReportRun]]) -> str:
    """Of mazes, the share of free cells; means over seeds."""
    shares = {method: [greatest(run.metrics, "coverage") for run in runs] for method, runs in groups.items()}
    told = {method: f"{sum(each) / len(each):.0%}" for method, each in shares.items() if all(each)}
    return _beside("visited {} of the maze", told)


def _tasks(groups: dict[str, list[ReportRun]]) -> str:
    """How many tasks were solved, where that can be said; else the last score of each, of several the best."""
    found = {method: each for method, runs in groups.items() if (each := [one for run in runs for one in find_scores(run)])}
    counts = {method: count for method, each in found.items() if (count := solved(each))}
    if counts and len(counts) == len(found):
        told = {method: f"{done} of {count}" for method, (done, count) in counts.items()}
        return _beside("{} tasks solved", told) + f", with a score of {SOLVED} or more"
    best = {}
    for method, each in found.items():
        scores = {task: max(x.last.score for x in same) for task, same in grouped(each, lambda one: one.last.task).items()}
        best[method] = ", ".join(f"{score:,.0f} in {task}" for task, score in scores.items())
    return _beside("scored {}", best)


def _beside(sentence: str, told: dict[str, str]) -> str:
    """The first method's words, and the others' in parentheses."""
    if not told:
        return ""
    (_, words), *others = told.items()
    listed = ", ".join(f"{name} {value}" for name, value in others)
    return sentence.format(words) + (f" ({listed})" if listed else "")


def what_was_run(run: ReportRun) -> Markup:
    """A run's settings, versions, machine, length and time."""
    config, starts = run.config, read_starts(run.folder)
    world = config.world
    preset, changed = nearest_preset(config)
    pairs = {
        "Environment": f"{world.world}, observes {world.obs}, {world.action_repeat} env steps per action",
        "Method": run.about.method,
        "Probes": ", ".join(config.probes) or "none",
        "Seed": config.seed,
        "Env steps": progress_of(run.folder, run.metrics, "env_steps")[0],
        "Updates": progress_of(run.folder, run.metrics, "update")[0],
        "Wall time (h:m:s)": wall_time(run.metrics, starts),
    }
    if share := greatest(run.metrics, "coverage"):
        pairs["Coverage of the maze"] = f"{share:.0%} of its cells"
    folded = {"Preset": preset, "Changed settings": join([tag("div", tag("code", each)) for each in changed]) or "none"}
    folded |= _start(starts[-1], len(starts)) if starts else {}
    faults = list(run.adaptations[1])
    if not starts:
        faults.append(f"starts.jsonl of {run.name} is missing or damaged: machine and versions are not known.")
    more = tag("details", tag("summary", "Settings, machine and versions"), facts(folded))
    return tag("div", tag("h3", run.label), facts(pairs), more, *map(missing, faults))


def nearest_preset(config: ExploreConfig) -> tuple[str, list[str]]:
    """The preset that a configuration differs least from, and the settings in which it does."""
    apart = {name: differences(config, ExploreConfig(agent=preset)) for name, preset in PRESETS.items()}
    name = min(apart, key=lambda name: len(apart[name]))
    known = ("world.world:", "probes:", "seed:")  # said elsewhere
    return name, [each for each in apart[name] if not each.startswith(known)]


def _start(start: dict[str, Any], count: int) -> dict[str, Any]:
    machine, versions = (part if isinstance(part, dict) else {} for part in map(start.get, ("machine", "versions")))
    memory, devices, command = machine.get("memory"), machine.get("devices"), start.get("command")
    kinds = ", ".join(map(str, devices)) if isinstance(devices, list) else "?"
    size = f"{memory / 2**30:.0f} GiB" if is_number(memory) else "? GiB"
    return {
        "Machine": f"{machine.get('cpu', '?')}, {machine.get('cores', '?')} cores, {size}; devices: {kinds}",
        "Versions": ", ".join(f"{name} {version}" for name, version in versions.items()) or "?",
        "Commit": str(start.get("commit", "?")),
        "Started": f"{start.get('time', '?')}" + (f", the last of {count} starts" if count > 1 else ""),
        "Command": tag("code", " ".join(map(str, command)) if isinstance(command, list) else "?"),
    }


def wall_time(metrics: list[dict[str, Any]], starts: list[dict[str, Any]]) -> str:
    """Time from each start to the last line before the next one, summed: pauses between do not count."""
    times, begun = [line["time"] for line in metrics if is_number(line.get("time"))], []
    for start in starts:
        with suppress(TypeError, ValueError):
            begun.append(datetime.fromisoformat(start.get("time")).timestamp())  # type: ignore[arg-type]
    if not times or not begun:
        return "not known"
    ends = [*sorted(begun), float("inf")]
    last = [max((time for time in times if time < end), default=0.0) for end in ends[1:]]
    return duration(sum(max(0.0, end - start) for start, end in zip(ends, last, strict=False)))
