"""What happened, in a sentence; and what was run, on what."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from ..config import PRESETS, ExploreConfig, differences
from ..console import duration
from ..runs.reader import greatest, is_number, progress_of, read_starts
from .explored import Explored
from .html import Markup, facts, join, missing, tag, text
from .scores import SOLVED, Scored, find_scores, solved


def headline(every: Sequence[Explored]) -> Markup:
    """Coverage and tasks of the method that explores, and in parentheses of the others."""
    methods = sorted(dict.fromkeys(explored.about.method for explored in every), key=lambda method: method == "random")
    runs = {method: [explored for explored in every if explored.about.method == method] for method in methods}
    worlds = list(dict.fromkeys(explored.about.world for explored in every))
    said = [sentence for sentence in (_coverage(runs) if len(worlds) == 1 else "", _tasks(runs)) if sentence]
    steps = max(int(greatest(explored.metrics, "env_steps")) for explored in every)
    seeds = max(map(len, runs.values()))
    about = f"{methods[0]} in {', '.join(worlds)}, {steps:,} env steps"
    about += f", {seeds} runs{' each' * (len(methods) > 1)}" * (seeds > 1)
    return text(f"{about}: {'; '.join(said)}." if said else f"{about}.")


def _coverage(runs: dict[str, list[Explored]]) -> str:
    """Of mazes, the share of free cells; means over seeds."""
    shares = {method: [greatest(explored.metrics, "coverage") for explored in each] for method, each in runs.items()}
    told = {method: f"{sum(each) / len(each):.0%}" for method, each in shares.items() if all(each)}
    return _beside("visited {} of the maze", told)


def _tasks(runs: dict[str, list[Explored]]) -> str:
    found = {method: [scored for explored in each for scored in find_scores(explored)] for method, each in runs.items()}
    counts = {method: count for method, each in found.items() if (count := solved(each))}
    if counts and len(counts) == sum(map(bool, found.values())):
        told = {method: f"{done} of {count}" for method, (done, count) in counts.items()}
        return _beside("{} tasks solved", told) + f", with a score of {SOLVED} or more"
    return _beside("scored {}", {method: _last(each) for method, each in found.items() if each})


def _last(found: Sequence[Scored]) -> str:
    """The last score of each task, of several the best."""
    best: dict[str, float] = {}
    for each in found:
        best[each.last.task] = max(best.get(each.last.task, each.last.score), each.last.score)
    return ", ".join(f"{score:,.0f} in {task}" for task, score in best.items())


def _beside(sentence: str, told: dict[str, str]) -> str:
    """The first method's words, and the others' in parentheses."""
    if not told:
        return ""
    words, others = next(iter(told.values())), list(told.items())[1:]
    listed = ", ".join(f"{name} {value}" for name, value in others)
    return sentence.format(words) + (f" ({listed})" if listed else "")


def what_was_run(explored: Explored) -> Markup:
    """A run's settings, versions, machine, length and time."""
    config, starts = explored.config, read_starts(explored.folder)
    preset, changed = nearest_preset(config)
    world = config.world
    pairs: dict[str, Any] = {
        "Environment": f"{world.world}, observes {world.obs}, {world.action_repeat} env steps per action",
        "Method": explored.about.method,
        "Probes": ", ".join(config.probes) or "none",
        "Seed": config.seed,
        "Env steps": progress_of(explored.folder, explored.metrics, "env_steps")[0],
        "Updates": progress_of(explored.folder, explored.metrics, "update")[0],
        "Wall time (h:m:s)": wall_time(explored.metrics, starts),
    }
    if share := greatest(explored.metrics, "coverage"):
        pairs["Coverage of the maze"] = f"{share:.0%} of its cells"
    folded = {"Preset": preset, "Changed settings": join([tag("div", tag("code", each)) for each in changed]) or "none"}
    folded |= _start(starts[-1], len(starts)) if starts else {}
    notes = [missing(sentence) for sentence in explored.adaptations[1]]
    if not starts:
        notes.append(missing(f"starts.jsonl of {explored.name} is missing or damaged: machine and versions are not known."))
    more = tag("details", tag("summary", "Settings, machine and versions"), facts(folded))
    return tag("div", tag("h3", explored.label), facts(pairs), more, *notes)


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
    times = sorted(line["time"] for line in metrics if is_number(line.get("time")))
    begun = sorted(filter(None, (_seconds(start.get("time")) for start in starts)))
    if not times or not begun:
        return "not known"
    ends = [*begun[1:], float("inf")]
    last = [max((time for time in times if time < end), default=0.0) for end in ends]
    return duration(sum(max(0.0, end - start) for start, end in zip(begun, last, strict=True)))


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return None
