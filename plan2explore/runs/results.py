"""Results: one line for each evaluation, out of run folders or CSV files, for tables and plots."""

import csv
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from plan2explore.atomic import append
from plan2explore.untrusted import printable, read_file

from .files import LARGEST_JSON, log, split_lines
from .folder import RunError, RunFolder
from .reader import adaptations_of, read_evaluations, read_starts, summary_of

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
    """Seconds since the run began; none for a run that was stopped and resumed."""
    run: str = ""
    """The id of the exploration."""
    adaptation: str = ""
    """The id of the adaptation; empty for exploration's own evaluations, and in files that do not tell."""


COLUMNS = tuple(each.name for each in fields(Result))
NEEDED = ("task", "method", "protocol", "seed", "env_steps", "score", "episodes")
LARGEST = 1e15
"""Of a number in a CSV file, either way."""
NUMBERS = {"seed": int, "env_steps": int, "episodes": int, "score": float, "std": float, "wall_s": float}


def read_results(sources: Iterable[str | Path]) -> list[Result]:
    """The results of CSV files, of runs, and of folders with either in them. What is there twice counts once."""
    if not (sources := list(sources)):
        raise ValueError(
            "Give runs, CSV files of results, or folders of either: plan2explore table RUN_OR_CSV ... (or plot)."
        )
    found: dict[Any, Result] = {}
    for result in (result for source in sources for result in _read_source(Path(source))):
        identity = _identity(result)
        found[identity] = found.pop(identity, result)  # moved to the end: newer adaptations stay behind older ones
    vague = {_identity(replace(result, adaptation="")) for result in found.values() if result.adaptation}
    return [result for identity, result in found.items() if identity not in vague]  # of files that tell no adaptations


def _identity(result: Result) -> tuple[Any, ...]:
    """What tells results apart. How a run came about may have been told otherwise later, when it was resumed."""
    return tuple(value for name, value in asdict(result).items() if name not in ("commit", "hardware", "wall_s"))


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
    apart: dict[str, dict[Any, str]] = defaultdict(dict)
    for each in results:
        if each not in counted:
            group = apart[f"{each.method} on {each.task} ({each.protocol}"]
            group[each.seed, source_of(each)] = each.adaptation or each.run or "without an id"
    if not apart:
        return ""
    listed = ", ".join(f"{len(ids)} of {what}: {', '.join(sorted(ids.values()))})" for what, ids in sorted(apart.items()))
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
    files = [file for file in sorted(path.glob("*.csv")) if set(NEEDED) <= set(_columns_and_lines(file)[0])]
    runs = sorted(file.parent for file in path.glob("*/run.json"))
    if not files and not runs:
        raise RunError(f"{path} is no run, and it has neither runs nor CSV files of results in it.")
    return [result for file in files for result in _read_csv(file)] + [result for run in runs for result in results_of(run)]


# --- CSV files ---


def _read_csv(path: Path) -> list[Result]:
    """The lines of a CSV file of results. Those that cannot be read are named in the log and skipped."""
    columns, lines = _columns_and_lines(path)
    if missing := [name for name in NEEDED if name not in columns]:
        known = ", ".join(COLUMNS)
        raise RunError(f"{path} is no file of results: it has no column {missing[0]!r}. The columns are {known}.")
    found = []
    for number, line in enumerate(lines, 2):
        try:  # each line by itself: a quote that is never closed spoils one line only
            row = next(csv.DictReader([line], columns), {})
            if None in row or None in row.values():
                raise ValueError(f"it has not {len(columns)} columns, as the file's first line has")
            found.append(_result(row))
        except (ValueError, TypeError, csv.Error) as error:
            log.warning("Line %d of %s is damaged and was skipped (%s).", number, path, error)
    return found


def _columns_and_lines(path: Path) -> tuple[Sequence[str], list[str]]:
    """The columns that a file's first line names, and its other lines."""
    text = read_file(path, LARGEST_JSON).decode("utf-8-sig", errors="replace")
    first, *others = map(printable, text.splitlines() or [""])
    return csv.DictReader([first]).fieldnames or (), others


def _result(line: Mapping[str, str]) -> Result:
    """A result from a line's words."""
    values: dict[str, Any] = {name: line.get(name, "").strip() for name in COLUMNS}
    if empty := [name for name in NEEDED if not values[name]]:
        raise ValueError(f"no {empty[0]}")
    if values["protocol"] not in PROTOCOLS:
        raise ValueError(f"the protocol is {values['protocol']!r:.40}, not {', '.join(PROTOCOLS)}")
    for name, kind in NUMBERS.items():
        word = values[name]
        try:
            values[name] = kind(word) if word else 0.0 if name == "std" else None
        except ValueError:
            raise ValueError(f"{name} is {word!r:.40}, not a {'whole ' if kind is int else ''}number") from None
        if not abs(values[name] or 0) <= LARGEST:
            raise ValueError(f"{name} is {word!r:.40}, not finite or too large")
    return Result(**values)


def append_results(path: Path, results: Iterable[Result]) -> int:
    """Adds results to a CSV file, made if need be; those that it has already are left out. The number of new ones."""
    path = Path(path)
    whole, torn = split_lines(path)
    known = {_identity(result) for result in _read_csv(path)} if whole else set()
    written = {_identity(result): result for result in (_result(_row(each)) for each in results)}
    # A file may not tell adaptations.
    new = [each for identity, each in written.items() if not known & {identity, _identity(replace(each, adaptation=""))}]
    columns = _columns_and_lines(path)[0] if whole else COLUMNS  # an older file keeps its own
    path.parent.mkdir(parents=True, exist_ok=True)
    if new or not whole:
        append(path, (b"\n" if torn else b"") + csv_bytes([_row(result) for result in new], columns, head=not whole))
    return len(new)


def csv_bytes(rows: Sequence[Mapping[str, Any]], columns: Sequence[str] = (), head: bool = True) -> bytes:
    """Rows as a CSV file, by default with the first one's columns."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns or list(rows[0]), lineterminator="\n", extrasaction="ignore")
    if head:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _row(result: Result) -> dict[str, str]:
    """A result as a file has it: scores to a thousandth."""
    forms = {"score": ".3f", "std": ".3f", "wall_s": ".1f"}
    return {name: "" if value is None else format(value, forms.get(name, "")) for name, value in asdict(result).items()}


# --- Run folders ---


@dataclass(frozen=True)
class RunResult:
    """A result with what a run folder tells beyond a CSV file's columns."""

    result: Result
    folder: RunFolder
    """The exploration's or the adaptation's."""
    interval: tuple[float, float] | None
    """95 % interval of the mean; none where there are too few episodes for one."""


def results_of(path: str | Path) -> list[Result]:
    """Every evaluation of a run: of an exploration's probes and of the adaptations below it, or of one adaptation."""
    return [each.result for each in run_results(RunFolder.open(path))]


def run_results(folder: RunFolder) -> list[RunResult]:
    """As `results_of`. Tables, plots, lists and reports all read through here."""
    if folder.kind == "adapt":
        return list(_own_results(folder))
    adaptations, faults = adaptations_of(folder)
    for fault in faults:
        log.warning("%s", fault)
    return [result for each in (folder, *adaptations) for result in _own_results(each)]


def _own_results(folder: RunFolder) -> Iterator[RunResult]:
    """A folder's own evaluations. The seed is the exploration's: seeds of a table are agents that explored apart."""
    about, starts, origin = summary_of(folder), read_starts(folder), origin_of(folder)
    if not isinstance(about.seed, int) or about.method == "?":
        log.warning("The evaluations of %s were skipped: its settings do not tell its seed or its method.", folder.path)
        return
    adapted = folder.kind == "adapt"
    origin |= {"run": about.run, "adaptation": folder.id} if adapted else {}
    for each in read_evaluations(folder.path):
        own = about.method == "dreamer" and about.probes[:1] == (each.task,)
        protocol = (FEW_SHOT if about.shots else OFFLINE) if adapted else SUPERVISED if own else PROBE
        wall = round(each.seconds, 3) if len(starts) == 1 and each.seconds is not None else None
        result = Result(
            each.task, about.method, protocol, about.seed, about.snapshot + each.env_steps, round(each.mean, 3),
            round(each.std, 3), len(each.episodes), wall_s=wall, **origin,
        )  # fmt: skip
        yield RunResult(result, folder, each.interval)


def origin_of(folder: RunFolder) -> dict[str, Any]:
    """Where a folder's results come from: the commits and the machines that it was made with, in order, and the run."""
    starts = read_starts(folder)
    commits = dict.fromkeys(str(start["commit"]) for start in starts if start.get("commit"))
    machines = dict.fromkeys(_machine(start["machine"]) for start in starts if isinstance(start.get("machine"), dict))
    return {"commit": " ".join(commits), "hardware": "; ".join(machines), "run": folder.id}


def _machine(machine: dict[str, Any]) -> str:
    """Accelerator or processor, and cores."""
    devices = machine.get("devices")
    kinds = [str(kind) for kind in devices if kind != "cpu"] if isinstance(devices, list) else []
    device = f"{len(kinds)} x {kinds[0]}" if len(kinds) > 1 else (kinds[0] if kinds else str(machine.get("cpu", "")))
    return f"{device}, {machine.get('cores', '?')} cores"
