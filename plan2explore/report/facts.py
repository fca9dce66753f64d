"""What was run and on what."""

from datetime import datetime
from typing import Any

from ..phases.progress import duration
from ..runs.files import read_lines
from .explored import Explored, is_number, last_of, nearest_preset
from .html import Markup, facts, join, missing, tag


def what_was_run(explored: Explored) -> Markup:
    """A run's settings, versions, machine, length and time."""
    config = explored.config
    preset, changed = nearest_preset(config)
    goal = explored.run.folder.settings.get("goal")
    starts = read_lines(explored.run.path / "starts.jsonl")
    pairs: dict[str, Any] = {
        "World": f"{config.world.world}, sees {config.world.obs}, {config.world.action_repeat} env steps per action",
        "Method": explored.method,
        "Probes": ", ".join(config.probes) or "none",
        "Seed": config.seed,
        "Env steps": f"{last_of(explored.metrics, 'env_steps'):,.0f} of {goal:,}" if isinstance(goal, int) else "?",
        "Updates": f"{last_of(explored.metrics, 'update'):,.0f}",
        "Wall time (h:m:s)": wall_time(explored.metrics, starts),
    }
    if share := last_of(explored.metrics, "coverage"):
        pairs["Coverage of the maze"] = f"{share:.0%} of its cells"
    folded: dict[str, Any] = {
        "Preset": preset,
        "Changed settings": join([tag("div", tag("code", each)) for each in changed]) if changed else "none",
    }
    folded |= _start(starts[-1], len(starts)) if starts else {}
    notes = [missing(sentence) for sentence in explored.faults]
    if not starts:
        notes.append(missing(f"starts.jsonl of {explored.name} is missing or damaged: machine and versions are not known."))
    more = tag("details", tag("summary", "Settings, machine and versions"), facts(folded))
    return join([tag("h3", explored.label), facts(pairs), more, *notes])


def _start(start: dict[str, Any], count: int) -> dict[str, Any]:
    machine = start.get("machine") if isinstance(start.get("machine"), dict) else {}
    versions = start.get("versions") if isinstance(start.get("versions"), dict) else {}
    assert isinstance(machine, dict) and isinstance(versions, dict)
    memory, devices, command = machine.get("memory"), machine.get("devices"), start.get("command")
    kinds = ", ".join(map(str, devices)) if isinstance(devices, list) else "?"
    size = f"{memory / 2**30:.0f} GiB" if memory is not None and is_number(memory) else "? GiB"
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
    total = 0.0
    for start, following in zip(begun, [*begun[1:], float("inf")], strict=True):
        within = [time for time in times if start <= time < following]
        total += within[-1] - start if within else 0.0
    return duration(total)


def _seconds(time: Any) -> float | None:
    try:
        return datetime.fromisoformat(time).timestamp()
    except (TypeError, ValueError):
        return None
