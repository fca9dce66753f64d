"""`plan2explore plot`: the paper's figures, ours over seeds beside the published curves.

As in the paper, curves are moving means over the past and shaded areas are the standard deviation over seeds. The paper's
window is 20 points, each of one evaluation episode (5 points in the figure of the four cheetah tasks). Here a point is the
mean of several episodes, so the window is counted in episodes: the past evaluations that make up 20 (or 5).
"""

import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from tyro.conf import Positional

from ..console import counted, say
from ..options import command
from ..reference import METHODS, published_curve
from ..runs.files import check_folder
from ..runs.results import FEW_SHOT, OFFLINE, PROBE, SUPERVISED, Result, left_out, one_each, read_results
from .tables import grouped, last_episodes, name_of

WINDOW, CHEETAH_WINDOW = 20, 5  # episodes
CHEETAH = ("cheetah_run", "cheetah_run_backward", "cheetah_flip_forward", "cheetah_flip_backward")
GREY = "#767676"
COLOURS = dict(zip(METHODS, ("#0072B2", "#D55E00", GREY, "#CC79A7", "#009E73", "#000000"), strict=True))
"""Told apart by colour-blind people too (Okabe and Ito)."""
OTHERS = ("#56B4E9", "#E69F00", "#8C564B")
"""Of objectives of one's own."""
STYLE: dict[Any, Any] = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
    "svg.hashsalt": "plan2explore", "axes.titlesize": 10, "legend.frameon": False,
}  # fmt: skip
task_of = attrgetter("task")


class Curve(NamedTuple):
    """Moving means of a task and method: mean and standard deviation over seeds, by env steps."""

    env_steps: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    seeds: int


def moving_mean(results: Sequence[Result], window: int = WINDOW) -> tuple[np.ndarray, np.ndarray]:
    """(env steps, mean of the past `window` episodes) of one seed's evaluations; those at one moment are one point."""
    steps = sorted({result.env_steps for result in results})
    past = ([result for result in results if result.env_steps <= step] for step in steps)
    return np.array(steps), np.array([last_episodes(each, window)[0] for each in past])


def curve(results: Iterable[Result], window: int = WINDOW) -> Curve | None:
    """The curve of one task and method over its seeds, as far as all of them go."""
    each = [moving_mean(group, window) for group in grouped(one_each(results), lambda result: result.seed).values()]
    if not each:
        return None
    first, last = max(steps[0] for steps, _ in each), min(steps[-1] for steps, _ in each)
    grid = np.unique(np.concatenate([steps for steps, _ in each]))
    grid = grid[(grid >= first) & (grid <= last)]
    if not len(grid):  # seeds that were evaluated at different moments altogether
        return None
    values = np.array([np.interp(grid, steps, means) for steps, means in each])
    std = values.std(0, ddof=1) if len(values) > 1 else np.zeros(len(grid))
    return Curve(grid, values.mean(0), std, len(values))


# --- Figures ---


def zero_shot_figure(results: Sequence[Result]) -> Figure | None:
    """Zero-shot score over exploration, a panel for each task, with Dreamer and the published curves."""
    shown = grouped((each for each in results if each.protocol in (PROBE, SUPERVISED)), task_of)

    def panel(axes: Any, task: str) -> None:
        _draw_methods(axes, shown[task])
        _draw_published(axes, task, shown[task])

    return _figure(sorted(shown), f"Zero-shot score during exploration ({_smoothing()})", panel)


def few_shot_figure(results: Sequence[Result]) -> Figure | None:
    """Adaptation with few episodes of the task, shaded, after exploration; before it, the zero-shot probe."""
    every, few = grouped(results, task_of), grouped((each for each in results if each.protocol == FEW_SHOT), task_of)

    def panel(axes: Any, task: str) -> None:
        shots = one_each(few[task])
        # Exploration ended where the zero-shot policy was that adaptation began with.
        first = min(each.env_steps for each in shots)
        offline = [each.env_steps for each in every[task] if each.protocol == OFFLINE and each.env_steps <= first]
        switch = max(offline, default=first)
        axes.axvspan(switch / 1e6, max(result.env_steps for result in shots) / 1e6, color=GREY, alpha=0.15, lw=0)
        axes.axvline(switch / 1e6, color=GREY, lw=0.8)
        before = [each for each in every[task] if each.protocol == PROBE and each.env_steps <= switch]
        _draw_methods(axes, before, style=":", named=False)
        if before:
            axes.plot([], [], ":", color=GREY, label="before: the zero-shot probe")
        _draw_methods(axes, [each for each in every[task] if each.protocol == SUPERVISED] + shots)

    title = f"Few-shot adaptation: exploration, then episodes of the task, shaded ({_smoothing()})"
    return _figure(sorted(few), title, panel)


def cheetah_figure(results: Sequence[Result]) -> Figure | None:
    """The four tasks of one exploring cheetah: curves of probes, and a mark for a task that was named afterwards."""
    shown = grouped((each for each in results if each.task in CHEETAH and each.protocol != FEW_SHOT), task_of)
    if len(shown) < 2:  # the figure is about one model that serves several tasks
        return None
    furthest = max(result.env_steps for ours in shown.values() for result in ours)

    def panel(axes: Any, task: str) -> None:
        ours = shown.get(task, [])
        _draw_methods(axes, [each for each in ours if each.protocol != OFFLINE], CHEETAH_WINDOW)
        _draw_offline(axes, [each for each in ours if each.protocol == OFFLINE])
        _draw_published(axes, task, ours)
        axes.set(xlim=(0, 1.08 * furthest / 1e6), ylim=(0, 1000))
        if not ours:
            axes.text(0.5, 0.5, "missing", transform=axes.transAxes, ha="center", color=GREY)

    return _figure(CHEETAH, f"Four tasks of the cheetah, zero-shot ({_smoothing(CHEETAH_WINDOW)})", panel, columns=4)


def _figure(tasks: Sequence[str], title: str, panel: Callable[[Any, str], None], columns: int = 0) -> Figure | None:
    """A panel for each task, if there is any, with one legend for all."""
    if not tasks:
        return None
    columns = columns or (4 if len(tasks) > 6 else min(3, len(tasks)))
    rows = -(-len(tasks) // columns)
    figure = Figure(figsize=(max(2.8 * columns, 5.6), 2.6 * rows + 1.2), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axes in grid[len(tasks) :]:
        axes.remove()
    labels: dict[str, Any] = {}
    for task, axes in zip(tasks, grid, strict=False):
        panel(axes, task)
        axes.set(title=task.replace("_", " ").title(), xlabel="env steps (millions)")
        axes.set_ylim(bottom=0)
        handles, names = axes.get_legend_handles_labels()
        labels |= dict(zip(names, handles, strict=True))
    figure.suptitle(textwrap.fill(title, int(13 * figure.get_figwidth())), fontsize=10)
    figure.supylabel("score of an episode", fontsize=9)
    columns = 2 if figure.get_figwidth() < 8 else 4
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=min(columns, len(labels)), fontsize=8)
    return figure


def _by_method(results: Sequence[Result]) -> Iterator[tuple[str, str, list[Result]]]:
    """Each method with its colour and its results, in the paper's order, others after them."""
    groups = grouped(results, lambda result: result.method)
    for index, method in enumerate([each for each in METHODS if each in groups] + sorted(set(groups) - set(METHODS))):
        yield method, COLOURS.get(method, OTHERS[index % len(OTHERS)]), groups[method]


def _draw_methods(axes: Any, results: Sequence[Result], window: int = WINDOW, style: str = "-", named: bool = True) -> None:
    """A curve for each method, with its spread over seeds."""
    for method, colour, ours in _by_method(results):
        if (found := curve(ours, window)) is None:
            continue
        steps, mean, std, seeds = found.env_steps / 1e6, found.mean, found.std, found.seeds
        text = f"{name_of(method)}, {counted(seeds, 'seed')}" if named else None
        axes.plot(steps, mean, style, color=colour, label=text, lw=1.6, marker="o" if len(steps) == 1 else "", ms=4)
        if seeds > 1:
            axes.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.2, lw=0)


def _draw_offline(axes: Any, results: Sequence[Result]) -> None:
    """A mark and the spread over seeds (with one seed: over its episodes) for each method."""
    for method, colour, ours in _by_method(results):
        for steps in sorted({result.env_steps for result in ours}):
            at = one_each(result for result in ours if result.env_steps == steps)
            scores = [result.score for result in at]
            spread = float(np.std(scores, ddof=1)) if len(at) > 1 else at[0].std
            over = f"{len(at)} seeds" if len(at) > 1 else "1 seed, bar: its episodes"
            axes.errorbar(
                steps / 1e6, np.mean(scores), spread, fmt="D", ms=5, capsize=3, color=colour,
                label=f"{name_of(method)}, task named afterwards ({over})",
            )  # fmt: skip


def _draw_published(axes: Any, task: str, ours: Sequence[Result]) -> None:
    """Published points with their spread over seeds, as far as ours go."""
    furthest = max((result.env_steps for result in ours), default=0)
    for method in ("plan2explore", "dreamer"):
        points = published_curve(task, method)
        if not points or not furthest:
            continue
        steps, _, mean, std = np.array(points).T
        axes.errorbar(
            steps / 1e6, mean, std, fmt="s--", mfc="white", ms=4, lw=1, capsize=2, color=COLOURS[method], alpha=0.75,
            label=f"{name_of(method)}, published ({points[0].seeds} seeds)",
        )  # fmt: skip
        axes.set_xlim(0, 1.08 * max(furthest, 2.5e5) / 1e6)


def _smoothing(window: int = WINDOW) -> str:
    return f"moving mean: past {window} episodes, no less than one evaluation"


# --- The command ---

FIGURES = {"zero_shot": zero_shot_figure, "few_shot": few_shot_figure, "cheetah": cheetah_figure}


@command
def plot(sources: Positional[tuple[Path, ...]], out: Path = Path("plots")) -> int:
    """Draws the paper's figures from your runs, beside the published curves, as PNG and SVG.

    Args:
        sources: Runs, CSV files of results, or folders with either in them.
        out: Folder for the files.
    """
    check_folder(out)
    results = read_results(sources)
    if told := left_out(results):
        say(told.rstrip("\n"), sys.stderr)
    written = []
    for name, draw in FIGURES.items():
        with mpl.rc_context(STYLE):
            if (figure := draw(results)) is None:
                continue
            out.mkdir(parents=True, exist_ok=True)
            figure.savefig(out / f"{name}.png", dpi=150)
            figure.savefig(out / f"{name}.svg", metadata={"Date": None})  # the same results are the same bytes
        written += [str(out / f"{name}.png"), str(out / f"{name}.svg")]
    if not written:
        raise ValueError(
            "There is nothing to draw: the figures are of probes, of few-shot adaptation, and of the cheetah's tasks if "
            "there are two, and none of these has evaluations of such (plan2explore table shows all there are)."
        )
    say("\n".join(written))
    return 0
