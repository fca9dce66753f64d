"""Coverage: how much of the state space a run has visited, and how evenly."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..phases.world import domain_of
from .coordinates import Coordinates, coordinates_of
from .explored import Explored, Missing
from .figures import Line, curves, density
from .html import Markup, figure, grid, join, missing, table, tag
from .learning import metric_line

CELLS = 40  # along each side of a picture
WHOLE = 20_000  # about so many cells of the whole state there may be; more where three parts of each coordinate make more
POINTS = 40  # of a curve
TAILS = (0.1, 99.9)  # per cent: one wild state must not shrink all others to a dot
Pair = tuple[str, str]


@dataclass(frozen=True)
class Visited:
    """The states of a run in the order in which they were visited."""

    explored: Explored
    values: np.ndarray
    """float32 (states, coordinates)."""
    env_steps: np.ndarray
    """How far the run was at each state."""


def read_visited(explored: Explored) -> tuple[Coordinates, Visited]:
    """All states of a run's episodes; those of damaged ones are left out."""
    coordinates, values, counts, before = None, [], [], 0.0
    for _, episode in explored.episodes.load_all(pictures=False):
        if episode.world != explored.config.world.world:
            continue  # untrusted: its name decides which simulator is loaded
        coordinates = coordinates or coordinates_of(episode.world, episode)
        values.append(coordinates.read(episode))
        repeat = episode.state.shape[1]
        counts.append(before + repeat * np.arange(len(episode)))
        before += repeat * (len(episode) - 1)
    if coordinates is None:
        raise Missing(f"{explored.name} has no episode that can be read: there is nothing to show of its coverage.")
    return coordinates, Visited(explored, np.concatenate(values), np.concatenate(counts))


def edges_of(every: Sequence[Visited]) -> np.ndarray:
    """The least and the greatest value of each coordinate in all runs, tails left out: (2, coordinates)."""
    low, high = np.percentile(np.concatenate([visited.values for visited in every]), TAILS, axis=0)
    apart = high - low > 1e-6
    return np.stack([np.where(apart, low, low - 0.5), np.where(apart, high, high + 0.5)])


def cells_of(values: np.ndarray, edges: np.ndarray, parts: int) -> np.ndarray:
    """The cell of each value: whole numbers below `parts`. What lies beyond the edges counts to the outermost cells."""
    low, high = edges
    return np.clip((values - low) / (high - low) * parts, 0, parts - 1).astype(np.int64)


def visits(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """How often each cell of a pair of coordinates was visited: (CELLS, CELLS)."""
    across, up = cells_of(values, edges, CELLS).T
    return np.bincount(across * CELLS + up, minlength=CELLS * CELLS).reshape(CELLS, CELLS)


def entropy(counts: np.ndarray) -> float:
    """How evenly cells were visited, in bits: 0 for one cell, the logarithm of their number if all alike."""
    share = counts[counts > 0] / counts.sum()
    return float(-(share * np.log2(share)).sum())


@dataclass(frozen=True)
class Growth:
    """Cells of the whole state over env steps."""

    env_steps: np.ndarray
    cells: np.ndarray
    entropy: np.ndarray

    def at(self, env_steps: float) -> tuple[float, float]:
        """Cells and entropy when the run was so far."""
        return tuple(float(np.interp(env_steps, self.env_steps, each)) for each in (self.cells, self.entropy))  # type: ignore[return-value]


def parts_of(coordinates: int) -> int:
    """Into how many parts each of so many coordinates is divided, for cells of the whole state."""
    return int(np.clip(round(WHOLE ** (1 / max(coordinates, 1))), 3, CELLS))


def number_cells(values: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """A number for the cell of the whole state, (states,): the same for the same cell only, as far as 64 bits can tell."""
    factors = np.random.default_rng(0).integers(0, 2**62, (values.shape[1],)).astype(np.uint64) * 2 + 1
    numbers = np.zeros(len(values), np.uint64)
    for column, factor in enumerate(factors):  # one at a time: all at once would fill the memory
        cells = cells_of(values[:, column], edges[:, column], parts_of(values.shape[1]))
        numbers += cells.astype(np.uint64) * factor
    return numbers


def growth(visited: Visited, edges: np.ndarray) -> Growth:
    """How many cells of the whole state had been visited by then, and how evenly."""
    _, ids = np.unique(number_cells(visited.values, edges), return_inverse=True)
    ends = np.unique(np.linspace(1, len(ids), POINTS).astype(int))
    occupied, bits, counts = [], [], np.zeros(ids.max() + 1, np.int64)
    for start, end in zip([0, *ends[:-1]], ends, strict=True):
        counts += np.bincount(ids[start:end], minlength=len(counts))
        occupied.append(int((counts > 0).sum()))
        bits.append(entropy(counts))
    return Growth(visited.env_steps[ends - 1], np.array(occupied), np.array(bits))


def coverage(every: Sequence[Explored], pairs: Sequence[Pair] = ()) -> Markup:
    """Pictures of visited states, and how coverage grew: runs with the same body are compared, whatever their task."""
    worlds: dict[tuple[str, tuple[str, ...]], list[tuple[Coordinates, Visited]]] = {}
    notes = []
    for explored in every:
        try:
            coordinates, visited = read_visited(explored)
            body = domain_of(explored.config.world.world), coordinates.names
            worlds.setdefault(body, []).append((coordinates, visited))
        except (Missing, ValueError, OSError) as error:
            notes.append(missing(str(error)))
    return join([*notes, *(_world(world, found, pairs) for (world, _), found in worlds.items())])


def _world(world: str, found: Sequence[tuple[Coordinates, Visited]], pairs: Sequence[Pair]) -> Markup:
    coordinates, every = found[0][0], [visited for _, visited in found]
    edges = edges_of(every)
    grown = [growth(visited, edges) for visited in every]
    unknown = sorted({name for pair in pairs for name in pair} - set(coordinates.names))
    notes = [missing(f"{world} has no coordinate {name!r}; it has {', '.join(coordinates.names)}.") for name in unknown]
    chosen = [pair for pair in pairs if not set(pair) & set(unknown)] or coordinates.pairs(world)
    drawn = [[_picture(visited, coordinates, edges, pair) for visited in every] for pair in chosen]
    drawn = drawn if len(every) > 1 else [[picture for (picture,) in drawn]]
    lines = [(visited.explored, each) for visited, each in zip(every, grown, strict=True)]
    count = len(coordinates.names)
    about = f"cells of the whole state ({count} coordinates, each in {parts_of(count)} parts) visited so far"
    cells = curves([_line(who, each.env_steps, each.cells) for who, each in lines], "env steps", "cells visited")
    bits = curves([_line(who, each.env_steps, each.entropy) for who, each in lines], "env steps", "entropy, bits")
    shares = [line for visited in every if (line := metric_line(visited.explored, "coverage"))]
    plots = [figure(cells, f"{world}: {about}"), figure(bits, f"{world}: how evenly those cells were visited")]
    if shares:
        drawing = curves(shares, "env steps", "share of the maze")
        plots.insert(0, figure(drawing, f"{world}: share of the free cells of the maze visited so far"))
    note = (
        f"Cells span what all runs shown here visited ({TAILS[0]} to {TAILS[1]} % of each coordinate's values; what lies "
        "beyond counts to the outermost cells). Angles that can turn all the way are taken from -π to π. Bright cells were "
        "visited most, on a logarithmic scale; open cells were never visited. Whole episodes count, random ones included."
    )
    return join([
        tag("h3", world), *notes, _compared(every, grown),
        grid(plots),
        tag("h3", f"Visited states of {world}"), tag("p", note, class_="soft"), *map(grid, drawn),
    ])  # fmt: skip


def _line(explored: Explored, x: Any, y: Any) -> Line:
    return Line(explored.label, x, y, colour=explored.number)


def _compared(every: Sequence[Visited], grown: Sequence[Growth]) -> Markup:
    """All runs at the env step that the shortest of them has reached."""
    common = min(each.env_steps[-1] for each in grown)
    rows = []
    for visited, each in zip(every, grown, strict=True):
        cells, bits = each.at(common)
        rows.append((visited.explored.label, visited.explored.method, f"{common:,.0f}", f"{cells:,.0f}", f"{bits:.2f}"))
    return table(("Run", "Method", "At env step", "Cells visited", "Entropy, bits"), rows)


def _picture(visited: Visited, coordinates: Coordinates, edges: np.ndarray, pair: Pair) -> Markup:
    columns = [coordinates.names.index(name) for name in pair]
    counts = visits(visited.values[:, columns], edges[:, columns])
    across, up = ((name, *map(float, edges[:, column])) for name, column in zip(pair, columns, strict=True))
    share = (counts > 0).mean()
    caption = f"{visited.explored.label}: {up[0]} over {across[0]}, {share:.0%} of cells, entropy {entropy(counts):.2f} bits"
    return figure(density(counts, across, up), caption)  # type: ignore[arg-type]
