"""Coverage: how much of the state space a run has visited, and in which order."""

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..envs.maze import LAYOUTS, Coverage, rows_of
from ..envs.names import domain_of
from ..runs.reader import greatest
from .charts import chart
from .coordinates import Coordinates, coordinates_of
from .html import Markup, figure, grid, join, missing, tag
from .run import Missing, ReportRun

CELLS = 40  # along each side of a map
FRAMES = 60  # of the animation
WALL, NEVER = 254, 255  # in place of a cell's frame
FINE = 4  # cells of a map along a cell of a maze
PLACE = (("x", "y"), ("root x", "root y"))  # coordinates that say where in a maze a state is
WHOLE = 20_000  # about so many cells of the whole state there may be; more where three parts of each coordinate make more
POINTS = 40  # of a curve
PARTS = 10  # of an episode: points of a maze's curve
TAILS = (0.1, 99.9)  # per cent: one wild state must not shrink all others to a dot
Pair = tuple[str, str]


@dataclass(frozen=True)
class Visited:
    """The states of a run in the order in which they were visited."""

    run: ReportRun
    values: np.ndarray
    """float32 (states, coordinates)."""
    env_steps: np.ndarray
    """How far the run was at each state."""
    shares: np.ndarray
    """Of a maze: env steps, and the share of its free cells that had been visited by then, (points, 2). Else empty."""


def read_visited(run: ReportRun) -> tuple[Coordinates, Visited]:
    """All states of a run's episodes; those of damaged ones are left out."""
    coordinates, values, counts, shares, before = None, [], [], [], 0.0
    domain = domain_of(run.about.world)
    maze = Coverage(domain) if domain in LAYOUTS else None
    for _, episode in run.episodes.load_all(images=False):
        if episode.world != run.about.world:
            continue  # untrusted: its name decides which simulator is loaded
        coordinates = coordinates or coordinates_of(episode.world, episode)
        values.append(coordinates.read(episode))
        repeat = episode.state.shape[1]
        counts.append(before + repeat * np.arange(len(episode)))
        if maze:
            for part in np.array_split(np.arange(len(episode)), min(PARTS, len(episode))):
                maze.add(episode.state[part])
                shares.append((before + repeat * part[-1], maze.share))
        before += repeat * (len(episode) - 1)
    if coordinates is None:
        raise Missing(f"{run.name} has no episode that can be read.")
    return coordinates, Visited(run, np.concatenate(values), np.concatenate(counts), np.array(shares))


def edges_of(runs: Sequence[Visited]) -> np.ndarray:
    """The least and the greatest value of each coordinate in all runs, tails left out: (2, coordinates)."""
    low, high = np.percentile(np.concatenate([visited.values for visited in runs]), TAILS, axis=0)
    apart = high - low > 1e-6
    return np.stack([np.where(apart, low, low - 0.5), np.where(apart, high, high + 0.5)])


def cells_of(values: np.ndarray, edges: np.ndarray, parts: Any) -> np.ndarray:
    """The cell of each value: whole numbers below `parts`. What lies beyond the edges counts to the outermost cells."""
    low, high = edges
    return np.clip((values - low) / (high - low) * parts, 0, np.asarray(parts) - 1).astype(np.int64)


def first_visits(cells: np.ndarray, env_steps: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Env steps of the first visit to each of so many cells (NaN: none), and visits, from the cell of each state."""
    found, index, counts = np.unique(cells, return_index=True, return_counts=True)
    first, visits = np.full(count, np.nan), np.zeros(count, np.int64)
    first[found], visits[found] = env_steps[index], counts
    return first, visits


def parts_of(coordinates: int) -> int:
    """Into how many parts each of so many coordinates is divided, for cells of the whole state."""
    return int(np.clip(round(WHOLE ** (1 / max(coordinates, 1))), 3, CELLS))


def growth(visited: Visited, edges: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Env steps, and how many cells of the whole state had been visited by then."""
    count = visited.values.shape[1]  # coordinates, one at a time: all at once would fill the memory
    cells = [cells_of(visited.values[:, i], edges[:, i], parts_of(count)).astype(np.uint8) for i in range(count)]
    _, first = np.unique(np.stack(cells, 1).view(np.dtype((np.void, count)))[:, 0], return_index=True)
    ends = np.unique(np.linspace(0, len(visited.values) - 1, POINTS).astype(int))
    return visited.env_steps[ends], np.searchsorted(np.sort(first), ends, side="right")


def coverage(runs: Sequence[ReportRun], pairs: Sequence[Pair] = ()) -> Markup:
    """How coverage grew, and maps of visited states: runs with the same body are compared, whatever their task."""
    bodies: dict[tuple[str, tuple[str, ...]], list[tuple[Coordinates, Visited]]] = {}
    notes = []
    for run in runs:
        try:
            coordinates, visited = read_visited(run)
            body = domain_of(run.config.world.world), coordinates.names
            bodies.setdefault(body, []).append((coordinates, visited))
        except (ValueError, OSError) as error:
            notes.append(missing(str(error)))
        except Missing:
            continue
    if not bodies and not notes:
        raise Missing("There is no episode that can be read.")
    return join([*notes, *(_body(world, found, pairs) for (world, _), found in bodies.items())])


def _body(world: str, found: Sequence[tuple[Coordinates, Visited]], pairs: Sequence[Pair]) -> Markup:
    """The curves and maps of runs with one body."""
    coordinates, runs = found[0][0], [visited for _, visited in found]
    edges = edges_of(runs)
    unknown = sorted({name for pair in pairs for name in pair} - set(coordinates.names))
    notes = [missing(f"{world} has no coordinate {name!r}; it has {', '.join(coordinates.names)}.") for name in unknown]
    chosen = [pair for pair in pairs if not set(pair) & set(unknown)] or coordinates.pairs(world)
    count = len(coordinates.names)
    about = f"{world}: cells of the whole state ({count} coordinates, each in {parts_of(count)} parts) visited so far"
    plots = [chart([each.run.line(*growth(each, edges)) for each in runs], "env steps", "cells visited", about)]
    if shares := [each.run.line(*each.shares.T) for each in runs if len(each.shares)]:
        about = f"{world}: share of the free cells of the maze visited so far"
        plots.insert(0, chart(shares, "env steps", "coverage", about))
    note = (
        f"Maps span what all runs shown here visited ({TAILS[0]} to {TAILS[1]} % of each coordinate's values). Bright cells "
        "were visited most in the whole run, on a logarithmic scale. Episodes of random actions count, too."
    )
    note += " A maze's map has its own proportions, and grey walls." * (world in LAYOUTS)
    steps = np.linspace(0, max(visited.env_steps[-1] for visited in runs), FRAMES).astype(int)
    maps = [[_map(visited, coordinates, edges, pair, steps) for visited in runs] for pair in chosen]
    maps = maps if len(runs) > 1 else [[each for (each,) in maps]]
    player = tag("div", *(grid(row, small=True) for row in maps), class_="player", data_steps=json.dumps(steps.tolist()))
    return join([tag("h3", world), *notes, grid(plots), player, tag("p", note, class_="soft")])


def _map(visited: Visited, coordinates: Coordinates, edges: np.ndarray, pair: Pair, steps: np.ndarray) -> Markup:
    """A map that the page's script fills frame by frame; that of the places in a maze has its walls and proportions."""
    columns = [coordinates.names.index(name) for name in pair]
    edges, parts = edges[:, columns], (CELLS, CELLS)
    walls = walls_of(visited.run.about.world) if pair in PLACE else None
    if walls is not None:
        parts = (walls.shape[0], walls.shape[1])
        edges = np.array([[-0.5], [0.5]]) * parts / FINE
    cells = np.ravel_multi_index(tuple(cells_of(visited.values[:, columns], edges, parts).T), parts)  # column by column
    first, visits = first_visits(cells, visited.env_steps, parts[0] * parts[1])
    frames = np.where(np.isnan(first), NEVER, np.searchsorted(steps, np.nan_to_num(first))).astype(np.uint8)
    about = f"{(visits > 0).mean():.0%} of the map's cells"
    if walls is not None:
        frames[walls.ravel()] = WALL
        share = greatest(visited.run.metrics, "coverage")
        about = (f"visited {share:.0%} of " if share else "") + f"the maze's cells, {FINE} x {FINE} squares each"
    levels = np.round(255 * np.log1p(visits) / max(np.log1p(visits.max()), 1e-9)).astype(np.uint8)
    first_text, level_text = (base64.b64encode(each.tobytes()).decode() for each in (frames, levels))
    canvas = tag("canvas", width=parts[0], height=parts[1], data_first=first_text, data_level=level_text)
    ends = [f"{name} ({low:.3g} to {high:.3g})" for name, (low, high) in zip(pair, edges.T, strict=True)]
    return figure(canvas, f"{visited.run.label}: {ends[1]} over {ends[0]}, {about}")


def walls_of(world: str) -> np.ndarray | None:
    """Which cells of a maze's map are wall, (across, up) from the south-west; none of other environments."""
    if (maze := domain_of(world)) not in LAYOUTS:
        return None
    walls = np.array([[mark == "#" for mark in row] for row in rows_of(maze)])
    return walls[::-1].T.repeat(FINE, 0).repeat(FINE, 1)
