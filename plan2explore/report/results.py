"""Results: one line for each evaluation, out of run folders or CSV files, for tables and plots."""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from ..atomic import append
from ..runs.files import LARGEST_JSON, log, parse_object, read_lines, split_lines
from ..runs.folder import RunError, RunFolder
from ..untrusted import printable, read_file

PROBE = "zero-shot probe"
"""The task was trained beside exploration, on stopped features."""
OFFLINE = "zero-shot offline"
"""The task was learned from the stored run, in imagination alone."""
FEW_SHOT = "few-shot"
"""As offline, and then with episodes of the task's own policy."""
SUPERVISED = "supervised"
"""Dreamer's own task, whose reward it saw from the start."""
ACHIEVEMENTS = "achievements"
"""What the episodes of an exploration unlocked in Crafter; the score is of all episodes together and has no std."""
FEWEST = 3
"""Episodes from which on an interval is told: two say nothing of how far apart the others would be."""
PROTOCOLS = (PROBE, OFFLINE, FEW_SHOT, SUPERVISED, ACHIEVEMENTS)


@dataclass(frozen=True)
class Result:
    """An evaluation: the mean score of some episodes, and where it comes from. The fields are a CSV file's columns."""

    task: str
    method: str
    protocol: str
    """zero-shot probe, zero-shot offline, few-shot, supervised or achievements."""
    seed: int
    env_steps: int
    """All that the agent had seen: those of exploration, and those of the task's own episodes."""
    score: float
    std: float
    """Over the episodes."""
    episodes: int
    commit: str = ""
    hardware: str = ""
    wall_s: float | None = None
    """Seconds since the run began; none for a run that was stopped and went on."""
    run: str = ""
    """The id of the exploration."""
    adaptation: str = ""
    """The id of the adaptation; empty for exploration's own evaluations, and in files that do not tell."""


COLUMNS = tuple(each.name for each in fields(Result))
NEEDED = ("task", "method", "protocol", "seed", "env_steps", "score", "episodes")
NUMBERS = {"seed": int, "env_steps": int, "episodes": int, "score": float, "std": float}


def read_results(sources: Iterable[str | Path]) -> list[Result]:
    """The results of CSV files, of runs, and of folders with either in them. What is there twice counts once."""
    found: dict[Any, Result] = {}
    for source in sources:
        for result in _read_source(Path(source)):
            identity = _identity(result)
            found[identity] = found.pop(identity, result)  # moved to the end: newer adaptations stay behind older ones
    told = {_untold(result) for result in found.values() if result.adaptation}
    return [result for identity, result in found.items() if identity not in told]


def _identity(result: Result) -> tuple[Any, ...]:
    """What tells results apart. How a run came about may have been told otherwise later, when it had gone on."""
    return tuple(value for name, value in asdict(result).items() if name not in ("commit", "hardware", "wall_s"))


def _untold(result: Result) -> tuple[Any, ...]:
    """The identity that a result has in a file that does not tell its adaptation."""
    return _identity(replace(result, adaptation=""))


def one_each(results: Iterable[Result]) -> list[Result]:
    """Of several runs with one seed, or adaptations of one: the one with most env steps; of equals the last, the newest."""
    rivals: dict[Any, dict[Any, list[Result]]] = {}
    for result in results:
        aim = result.task, result.method, result.protocol, result.seed
        rivals.setdefault(aim, {}).setdefault(source_of(result), []).append(result)
    chosen = []
    for sources in rivals.values():
        found = max(reversed(sources.values()), key=lambda each: max(result.env_steps for result in each))
        told = found[0].protocol != OFFLINE or found[0].adaptation
        chosen += found if told else found[-1:]
    return chosen


def source_of(result: Result) -> tuple[str, str]:
    """The run and the adaptation. Where a file does not tell it: offline, each has one evaluation, at its snapshot."""
    return result.run, result.adaptation or (str(result.env_steps) if result.protocol == OFFLINE else "")


def left_out(results: Sequence[Result]) -> str:
    """Which runs and adaptations do not count because another one of the same seed and task does; empty if all count."""
    counted = set(one_each(results))
    others = [each for each in results if each not in counted]
    apart: dict[tuple[str, str, str], dict[Any, str]] = {}
    for each in others:
        group = apart.setdefault((each.task, each.protocol, each.method), {})
        group[each.seed, source_of(each)] = each.adaptation or each.run or "without an id"
    if not apart:
        return ""
    listed = ", ".join(
        f"{len(ids)} of {method} on {task} ({protocol}: {', '.join(sorted(ids.values()))})"
        for (task, protocol, method), ids in sorted(apart.items())
    )
    return (
        "Of several runs of a method with one seed, and of several adaptations of a run to one task, the one that saw "
        "most env steps counts, and of equals the newest (in CSV files: the last). "
        f"Left out: {listed}. Give one's folder or file alone to see its score.\n\n"
    )


def _read_source(path: Path) -> list[Result]:
    if path.is_file():
        return _read_csv(path)
    if not path.is_dir():
        raise RunError(f"There is no file or folder {path}: give runs, CSV files of results, or folders of either.")
    if RunFolder.is_run(path):
        return results_of(path)
    files = [file for file in sorted(path.glob("*.csv")) if not _missing_columns(_split_csv(file))]
    runs = sorted(file.parent for file in path.glob("*/run.json"))
    if not files and not runs:
        raise RunError(f"{path} is no run, and it has neither runs nor CSV files of results in it.")
    return [result for file in files for result in _read_csv(file)] + [result for run in runs for result in results_of(run)]


# --- CSV files ---


def _read_csv(path: Path) -> list[Result]:
    """The lines of a CSV file of results. Those that cannot be read are named in the log and skipped."""
    lines = _split_csv(path)
    if missing := _missing_columns(lines):
        known = ", ".join(COLUMNS)
        raise RunError(f"{path} is no file of results: it has no column {missing[0]!r}. The columns are {known}.")
    found = []
    for number, line in enumerate(lines[1:], 2):
        try:
            found.append(_result(_by_column(lines[0], line)))
        except (ValueError, TypeError) as error:
            log.warning("Line %d of %s is damaged and was skipped (%s).", number, path, error)
    return found


def _by_column(names: list[str], words: list[str]) -> dict[str, str]:
    if len(words) != len(names):
        raise ValueError(f"it has {len(words)} columns, and the file's first line {len(names)}")
    return dict(zip(names, words, strict=True))


def _split_csv(path: Path) -> list[list[str]]:
    """The words of every line. Each is read by itself: a quote that is never closed spoils one line only."""
    lines = read_file(path, LARGEST_JSON).decode("utf-8-sig", errors="replace").splitlines()
    return [_words_of(printable(line)) for line in lines]


def _words_of(line: str) -> list[str]:
    try:
        return next(csv.reader([line]), [])
    except csv.Error:
        return []


def _missing_columns(lines: list[list[str]]) -> list[str]:
    return [name for name in NEEDED if name not in (lines[0] if lines else ())]


def _result(line: Mapping[str, str]) -> Result:
    """A result from a line's words."""
    values: dict[str, Any] = {name: line.get(name, "").strip() for name in COLUMNS}
    if empty := [name for name in NEEDED if not values[name]]:
        raise ValueError(f"no {empty[0]}")
    if values["protocol"] not in PROTOCOLS:
        raise ValueError(f"the protocol is {values['protocol']!r:.40}, not {', '.join(PROTOCOLS)}")
    numbers = {name: _number(kind, name, values[name] or "0") for name, kind in NUMBERS.items()}
    numbers["wall_s"] = _number(float, "wall_s", values["wall_s"]) if values["wall_s"] else None
    if not all(math.isfinite(number) for number in numbers.values() if number is not None):
        raise ValueError("a number is not finite")
    return Result(**(values | numbers))


def _number(kind: type, name: str, word: str) -> Any:
    try:
        return kind(word)
    except ValueError:
        raise ValueError(f"{name} is {word!r:.40}, not a {'whole ' if kind is int else ''}number") from None


def append_results(path: Path, results: Iterable[Result]) -> int:
    """Adds results to a CSV file, made if need be; those that it has already are left out. The number of new ones."""
    path = Path(path)
    whole, torn = split_lines(path)
    known = {_identity(result) for result in _read_csv(path)} if whole else set()
    written = {_identity(result): result for result in (_result(_words(each)) for each in results)}
    new = [result for identity, result in written.items() if not known & {identity, _untold(result)}]
    text = io.StringIO()
    columns = _split_csv(path)[0] if whole else COLUMNS  # an older file keeps its own
    writer = csv.DictWriter(text, columns, lineterminator="\n", extrasaction="ignore")
    if not whole:
        writer.writeheader()
    writer.writerows(_words(result) for result in new)
    path.parent.mkdir(parents=True, exist_ok=True)
    if text.getvalue():
        append(path, (b"\n" if torn else b"") + text.getvalue().encode())
    return len(new)


def _words(result: Result) -> dict[str, str]:
    """A result as a file has it: scores to a thousandth."""
    words = {name: "" if value is None else value for name, value in asdict(result).items()}
    numbers = {"score": f"{result.score:.3f}", "std": f"{result.std:.3f}"}
    wall = {"wall_s": f"{result.wall_s:.1f}"} if result.wall_s is not None else {}
    return {name: str(value) for name, value in (words | numbers | wall).items()}


# --- Run folders ---


@dataclass(frozen=True)
class Evaluation:
    """A result with what a run folder tells beyond a CSV file's columns."""

    result: Result
    folder: RunFolder
    """The exploration's or the adaptation's."""
    interval: tuple[float, float] | None
    """95 % interval of the mean; none where there are too few episodes for one."""

    @property
    def shots(self) -> int:
        """Episodes of the task that an adaptation was given: 0 is zero-shot."""
        return shots_of(self.folder)


def results_of(path: str | Path) -> list[Result]:
    """Every evaluation of a run: of an exploration's probes and of the adaptations below it, or of one adaptation."""
    return [each.result for each in evaluations_of(RunFolder.open(path))]


def evaluations_of(folder: RunFolder) -> list[Evaluation]:
    """As `results_of`. Tables, plots, lists and reports all read through here."""
    if folder.kind == "adapt":
        return list(_adapted(folder))
    adaptations, faults = adaptations_of(folder)
    for fault in faults:
        log.warning("%s", fault)
    return [*_explored(folder), *(found for each in adaptations for found in _adapted(each))]


def adaptations_of(folder: RunFolder) -> tuple[list[RunFolder], list[str]]:
    """The adaptations of an exploration that can be read, the newest last, and a sentence for each other folder there."""
    found, faults = [], []
    for path in sorted(folder.adapt.glob("[!.]*")):
        try:
            each = RunFolder.open(path)
        except RunError as error:
            faults.append(f"{path} was skipped: {error}")
            continue
        if each.kind == "adapt" and each.settings.get("run") == folder.id:
            found.append(each)
        else:
            faults.append(f"{path} was skipped: it is no adaptation of {folder.path}.")
    return sorted(found, key=lambda each: each.created), faults


def shots_of(folder: RunFolder) -> int:
    """Episodes of the task that an adaptation was given: 0 is zero-shot."""
    shots = _part(folder.settings, "config").get("shots")
    return shots if isinstance(shots, int) else 0


def _explored(folder: RunFolder) -> Iterator[Evaluation]:
    config = _part(folder.settings, "config")
    for each in _evaluations(folder, config, folder.id, PROBE, 0):
        own = each.result.method == "dreamer" and [each.result.task] == list(config.get("probes") or ())[:1]
        yield replace(each, result=replace(each.result, protocol=SUPERVISED)) if own else each


def _adapted(folder: RunFolder) -> Iterator[Evaluation]:
    settings = folder.settings
    steps = settings.get("snapshot")
    before, protocol = steps if isinstance(steps, int) else 0, FEW_SHOT if shots_of(folder) else OFFLINE
    for each in _evaluations(folder, _part(settings, "explored"), str(settings.get("run", "")), protocol, before):
        yield replace(each, result=replace(each.result, adaptation=folder.id))


def _evaluations(
    folder: RunFolder, explored: dict[str, Any], run: str, protocol: str, before: int
) -> Iterator[Evaluation]:
    """What a folder's evaluations say. The seed is the exploration's: seeds of a table are agents that explored apart."""
    seed: Any = explored.get("seed")
    agent = _part(explored, "agent")
    method = (_part(agent, "intrinsic") or _part(agent, "novelty")).get("objective", "")
    starts = read_lines(folder.path / "starts.jsonl")
    origin = origin_of(folder) | {"run": run}
    for number, text in enumerate(split_lines(folder.evaluations_file)[0], 1):
        line = parse_object(text) or {}
        try:
            wall = _finite(line["seconds"]) if len(starts) == 1 and line.get("seconds") is not None else None
            result = Result(
                task=_text(line["task"]), method=_text(method), protocol=protocol, seed=int(seed),
                env_steps=before + int(line["env_steps"]), score=_finite(line["mean"]), std=_finite(line.get("std", 0.0)),
                episodes=len(line["episodes"]), wall_s=wall, **origin,
            )  # fmt: skip
            yield Evaluation(result, folder, _interval(line))
        except (KeyError, TypeError, ValueError):
            log.warning("Line %d of %s is damaged and was skipped.", number, folder.evaluations_file)


def _interval(line: dict[str, Any]) -> tuple[float, float] | None:
    """The interval that a line tells, if it has enough episodes for one."""
    ends = line.get("interval")
    if len(line["episodes"]) < FEWEST or not isinstance(ends, list) or len(ends) != 2:
        return None
    return _finite(ends[0]), _finite(ends[1])


def origin_of(folder: RunFolder) -> dict[str, Any]:
    """Where a folder's results come from."""
    starts = read_lines(folder.path / "starts.jsonl")
    return {"commit": _commits(starts), "hardware": _hardware(starts), "run": folder.id}


def _part(settings: dict[str, Any], name: str) -> dict[str, Any]:
    found = settings.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError(f"{value!r} is not a name")
    return value


def _finite(value: Any) -> float:
    """A number to a thousandth, as a file has it."""
    if not math.isfinite(number := float(value)):
        raise ValueError(f"{value!r} is not finite")
    return round(number, 3)


def _commits(starts: list[dict[str, Any]]) -> str:
    """The commits that a run was made with, in order."""
    return " ".join(dict.fromkeys(str(start["commit"]) for start in starts if start.get("commit")))


def _hardware(starts: list[dict[str, Any]]) -> str:
    """The machines that a run was made on: accelerator or processor, and cores."""
    return "; ".join(dict.fromkeys(_machine(start["machine"]) for start in starts if isinstance(start.get("machine"), dict)))


def _machine(machine: dict[str, Any]) -> str:
    devices = machine.get("devices")
    kinds = [str(kind) for kind in devices if kind != "cpu"] if isinstance(devices, list) else []
    device = f"{len(kinds)} x {kinds[0]}" if len(kinds) > 1 else (kinds[0] if kinds else str(machine.get("cpu", "")))
    return f"{device}, {machine.get('cores', '?')} cores"
