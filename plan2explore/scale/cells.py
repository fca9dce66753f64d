"""The cells of a sweep: each is one run, in `OUT/runs/NAME`, that nothing but its own settings decide.

What a cell scored goes to `OUT/results.csv`, how it ended to `OUT/cells.jsonl`. Several commands may share a sweep: each
takes cells that no other has.
"""

import gc
import json
import time
import traceback
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

from ..config import AdaptConfig, ExploreConfig, read_config
from ..console import counted
from ..phases.adapt import adapt
from ..phases.explore import explore, refuse_other
from ..phases.run import Run
from ..phases.world import parse_task
from ..report.achievements import score_run
from ..runs.files import append_line, parse_object, split_lines
from ..runs.folder import LockedError, RunFolder, hold
from ..runs.results import ACHIEVEMENTS, FEW_SHOT, PROBE, SUPERVISED, Result, append_results, results_of
from .storage import Lease, Storage

CRAFTER = "crafter"
"""The protocol that scores achievements, and the only task of its cells."""
FREE = 1.0  # seconds until a cell that another process has is tried again


@dataclass(frozen=True)
class Cell:
    """A run of a sweep: plain data, so that any process on any machine can run it."""

    name: str
    """Of its folder."""
    config: ExploreConfig
    steps: int
    """Env steps of exploration."""
    protocol: str = "sweep"
    task: str = ""
    """What the protocol is about; else the probes of the configuration are followed."""
    adaptation: AdaptConfig | None = None
    """Few-shot adaptation to the task, if the protocol ends with one."""
    final_episodes: int = 0
    """Episodes that the last evaluation has at least."""

    @property
    def method(self) -> str:
        """The exploration objective."""
        return self.config.agent.intrinsic.objective


class Outcome(NamedTuple):
    """How an attempt at a cell ended, and what there is to say: the score, the error, or who has the cell."""

    state: Literal["finished", "finished before", "failed", "left"]
    text: str = ""

    def __str__(self) -> str:
        texts = {"finished": self.text, "failed": f"failed: {self.text}", "left": f"left to {self.text}"}
        return texts.get(self.state, self.state)


def attempt(out: Path | str, cell: Cell, wait: bool = False) -> Outcome:
    """Runs a cell, or resumes it, unless it is finished or another process has it; with `wait`, until none has it.

    Whatever goes wrong inside the cell is noted and returned: the others may well work.
    """
    while True:
        try:
            return _stored(Storage(out), cell) if isinstance(out, str) else _locked(out, cell)
        except LockedError as error:
            if not wait:
                return Outcome("left", error.holder)
            time.sleep(FREE)


def _locked(out: Path, cell: Cell) -> Outcome:
    locks_of(out).mkdir(parents=True, exist_ok=True)
    with hold(locks_of(out) / cell.name, path_of(out, cell)):
        return Outcome("finished before") if was(out, cell, "finished") else _work(out, cell)


def _stored(storage: Storage, cell: Cell) -> Outcome:
    with Lease(storage, cell.name).held() as lease, storage.logs([cell.name]) as folder:
        if was(folder, cell, "finished"):
            return Outcome("finished before")
        with storage.mirrored(cell.name, folder, lease):
            return _work(folder, cell)


def _work(out: Path, cell: Cell) -> Outcome:
    began = time.monotonic()
    try:
        results = run_cell(out, cell)
        with writing(out):
            append_results(out / "results.csv", results)
        seconds = round(time.monotonic() - began, 1)
        note(out, cell, "finished", seconds=seconds)
    except Exception as error:
        with suppress(OSError):  # a full disk
            note(out, cell, "failed", error=f"{type(error).__name__}: {error}", trace=traceback.format_exc())
        return Outcome("failed", str(error))
    finally:
        gc.collect()  # what this cell held on the device is free for the next
    return Outcome("finished", f"{_score(cell, results)}, {seconds:.0f} s")


def path_of(out: Path, cell: Cell) -> Path:
    """The run's folder."""
    return out / "runs" / cell.name


def locks_of(out: Path) -> Path:
    """Where commands that share a sweep tell each other which cells they have."""
    return out / "locks"


def logs_of(out: Path | str, cells: Iterable[Cell]) -> AbstractContextManager[Path]:
    """The sweep's folder; of a sweep in storage, one that tells which cells are finished."""
    return nullcontext(out) if isinstance(out, Path) else Storage(out).logs([cell.name for cell in cells])


def writing(out: Path) -> AbstractContextManager[None]:
    """One process at a time adds to the sweep's files."""
    return hold(locks_of(out) / "files", out, wait=True)


# --- The work ---


def run_cell(out: Path, cell: Cell) -> list[Result]:
    """Explores, adapts from the cell's last snapshot if the protocol says so, and gives back every evaluation."""
    run = _explored(out, cell)
    if cell.protocol == CRAFTER:
        return [score_run(run.folder, cell.method, cell.config.seed)]
    policy = None
    if cell.adaptation:
        at = min(run.snapshots, key=lambda steps: abs(steps - cell.steps))
        policy = adapt(run, cell.task, config=replace(cell.adaptation, at=at, seed=cell.config.seed))
    results = results_of(run.path)
    last = final_result(cell, results)
    if last is not None and last.episodes < cell.final_episodes:
        scores = (policy or run.probe(cell.task)).evaluate(cell.final_episodes)
        results.append(replace(last, score=scores.mean, std=scores.std, episodes=len(scores.episodes), wall_s=None))
    return results


def _explored(out: Path, cell: Cell) -> Run:
    """The cell's exploration, from where it is: another protocol may have made it, or taken it further."""
    path, goal = path_of(out, cell), cell.steps
    if was(out, cell, "explored"):
        return Run(path)
    followed = (cell.task,) if cell.task and cell.protocol != CRAFTER else cell.config.probes
    tasks = [parse_task(probe) for probe in followed]
    config = replace(cell.config, probes=tuple(task.name for task in tasks))
    if RunFolder.is_run(path):
        folder = RunFolder.open(path)
        refuse_other(folder, config, "Give the sweep the settings that the run has")
        goal = max(goal, int(folder.settings.get("goal", 0)))
    run = explore(config.world.world, goal, path, probes=tasks, config=config)
    note(out, cell, "explored")
    return run


def final_result(cell: Cell, results: Sequence[Result]) -> Result | None:
    """The last evaluation of what the cell is about; of a cell without a task, of any of its probes."""
    if cell.protocol == CRAFTER:
        return next((each for each in results if each.protocol == ACHIEVEMENTS), None)
    protocol = SUPERVISED if cell.method == "dreamer" else FEW_SHOT if cell.adaptation else PROBE
    ours = [each for each in results if not cell.task or (each.task, each.protocol) == (cell.task, protocol)]
    return max(reversed(ours), key=lambda result: result.env_steps, default=None)


def _score(cell: Cell, results: Sequence[Result]) -> str:
    last = final_result(cell, results)
    if last is None:
        return "no score"
    task = "" if cell.task else f"{last.task} "
    return f"{task}{last.score:.1f} at {last.env_steps:,} env steps ({counted(last.episodes, 'episode')})"


# --- What was done before ---


def was(out: Path, cell: Cell, state: str) -> bool:
    """Whether the cell came so far (explored, finished) with these settings, and its run is still there."""
    expected = {"state": state, "run": _id_of(path_of(out, cell))}
    if state == "finished":  # each protocol has an end of its own
        expected["protocol"] = cell.protocol
    file = out / "cells.jsonl"
    if expected["run"] is None or not file.exists():
        return False
    start = json.dumps({"cell": cell.name}).removesuffix("}").encode()
    lines = filter(None, map(parse_object, _lines(file, file.stat().st_size).get(start, [])))
    return any(expected.items() <= line.items() and _covers(line.get("settings"), cell, state) for line in lines)


@lru_cache(maxsize=1)
def _lines(file: Path, size: int) -> dict[bytes, list[bytes]]:
    """The lines of `cells.jsonl` by their first entry, the cell. It only grows, so its size tells whether it is the same."""
    found: dict[bytes, list[bytes]] = {}
    for line in split_lines(file)[0]:
        found.setdefault(line.partition(b",")[0], []).append(line)
    return found


def _covers(found: Any, cell: Cell, state: str) -> bool:
    """An exploration that went further holds the shorter one; an adaptation has to begin at the same env step."""
    try:
        steps, config = int(found["steps"]), read_config(ExploreConfig, found["config"])  # newer settings have defaults
        adaptation = None if found["adaptation"] is None else read_config(AdaptConfig, found["adaptation"])
    except (KeyError, TypeError, ValueError):
        return False
    if config != cell.config:
        return False
    if state == "explored" or cell.adaptation is None:
        return steps >= cell.steps
    return steps == cell.steps and adaptation == cell.adaptation


def note(out: Path, cell: Cell, state: str, **more: Any) -> None:
    """Adds a line to `cells.jsonl`: how a cell ended, and all that it depends on."""
    adaptation, now = asdict(cell.adaptation) if cell.adaptation else None, datetime.now(UTC).isoformat(timespec="seconds")
    about = {"time": now, "protocol": cell.protocol, "run": _id_of(path_of(out, cell))}
    settings = {"steps": cell.steps, "config": asdict(cell.config), "adaptation": adaptation}
    with writing(out):
        append_line(out / "cells.jsonl", {"cell": cell.name, "state": state, **about, **more, "settings": settings})


def _id_of(path: Path) -> str | None:
    """The run's id; none if there is no run, or its run.json is damaged, which may be why the cell failed."""
    try:
        return RunFolder.open(path).id
    except ValueError:
        return None
