"""Figures for a page: small SVG drawings whose colours are the page's own, so that they are legible by day and night."""

import hashlib
import io
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import matplotlib.ticker
import numpy as np
from matplotlib.figure import Figure

from ..phases.progress import counted
from .html import Markup

# Colours that stand for those of the page, which takes their place when a drawing is put into it.
INK, SOFT = "#010203", "#040506"
SERIES = tuple(f"#0a0b{number:02x}" for number in range(1, 7))
STANDS_FOR = {INK: "currentColor", SOFT: "var(--soft)"} | {
    colour: f"var(--s{number})" for number, colour in enumerate(SERIES, 1)
}
LINES = ("-", "--", "-.")
WIDE, HIGH, LEGEND = 4.7, 2.9, 0.21  # inches: as wide as a phone, so that nothing is shrunk there
FAR_APART = 30  # values whose largest is so many times their smallest are drawn on a logarithmic scale
BEGINNING = 0.1  # of a curve: losses fall steeply there
SQUASHED = 4  # axes are for the rest of a curve where it would have less than a quarter of their height otherwise
FEW = 10  # points that a curve's axes are not fitted to
TAILS = (0.02, 0.98)  # quantiles of the rest: a single peak does not squash it either
MOST_POINTS = 600
Limits = tuple[float, float]
STYLE: Any = {
    "text.parse_math": False,  # a run may be called anything, $ included
    "svg.fonttype": "none",
    "svg.hashsalt": "plan2explore",
    "font.size": 11,
    "text.color": INK,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": SOFT,
    "grid.alpha": 0.25,
    "legend.frameon": False,
    "legend.fontsize": 10,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Line:
    """A curve of a figure: `low` and `high` are the edges of its shade; `quiet` ones are dotted, `points` have no line."""

    label: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    colour: int = 0
    quiet: bool = False
    points: bool = False


def colour_of(number: int) -> str:
    """The colour of a run, or of whatever else is counted; later ones repeat it with other dashes."""
    return SERIES[number % len(SERIES)]


def curves(
    lines: Sequence[Line],
    x: str,
    y: str,
    logarithmic: bool = False,
    named: bool = False,
    limits: Limits | None = None,
) -> Markup:
    """Curves over env steps, or over anything; `named` ones have a legend even if there is one only.

    With `limits` the upright axis ends there, and what is beyond them leaves it.
    """
    named = named or len(lines) > 1
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(WIDE, HIGH + named * LEGEND * len(lines)))
        axes = figure.add_subplot()
        for line in lines:
            _draw(axes, line)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        if logarithmic:
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter(_thousands)
            axes.yaxis.set_minor_formatter(matplotlib.ticker.NullFormatter())
        if limits:
            axes.set_ylim(limits)
        axes.grid(True)
        axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(5))
        axes.xaxis.set_major_formatter(_thousands)
        if named:
            figure.legend(loc="outside upper left", handlelength=1.8)  # above: a curve can be anywhere inside
        return _svg(figure, y)


def far_apart(lines: Sequence[Line]) -> bool:
    """Whether values are all above 0 and differ by so much that small ones would be a flat line."""
    flat = np.concatenate([np.zeros(0), *(np.asarray(line.y, float) for line in lines)])
    return bool(flat.size and flat.min() > 0 and flat.max() > FAR_APART * flat.min())


def upright_axis(lines: Sequence[Line]) -> tuple[bool, Limits | None]:
    """Whether the upright axis is logarithmic, and its limits: none unless all points would squash most of them.

    Limits are those of what came after the beginning of each line, and of the lines' last points always.
    """
    logarithmic = far_apart(lines)
    scale = np.log10 if logarithmic else np.asarray
    every = [scale(np.asarray(line.y, float)) for line in lines]
    later = np.concatenate([y[_beginning(line) :] for line, y in zip(lines, every, strict=True)])
    last = [y[-1] for y in every]
    low, high = (float(end) for end in np.quantile(later, TAILS))
    low, high = min(low, *last), max(high, *last)
    if len(later) < FEW or not 0 < SQUASHED * (high - low) < np.ptp(np.concatenate(every)):
        return logarithmic, None
    margin = 0.15 * (high - low)
    limits = low - margin, high + margin
    if logarithmic:
        limits = 10 ** limits[0], 10 ** limits[1]
    return logarithmic and limits[1] > FAR_APART * limits[0], limits


def _beginning(line: Line) -> int:
    """How many points are a line's beginning: its first part, and all that were made before anything was collected."""
    together = int(np.count_nonzero(np.asarray(line.x) == line.x[0]))
    return min(max(math.ceil(BEGINNING * len(line.x)), together), len(line.x) - 1)


def outside(lines: Sequence[Line], limits: Limits | None) -> str:
    """A note on the points that are beyond the limits: how many, and their values; nothing if there are none."""
    if limits is None:
        return ""
    flat = np.concatenate([np.asarray(line.y, float) for line in lines])
    beyond = flat[(flat < limits[0]) | (flat > limits[1])]
    low, high = (_thousands(float(f"{value:.3g}"), None) for value in (beyond.min(), beyond.max()))
    return f". Outside the axes: {counted(len(beyond), 'point')} ({low if low == high else f'{low} to {high}'})"


def _thousands(value: float, _: object) -> str:
    """12,000 as 12k: there is no room for more on a phone."""
    for size, name in ((1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{name}"
    return f"{value:g}"


def _draw(axes: Any, line: Line) -> None:
    x, y = np.asarray(line.x, float), np.asarray(line.y, float)
    every = max(1, -(-len(x) // MOST_POINTS))
    keep = np.unique(np.append(np.arange(0, len(x), every), max(len(x) - 1, 0)))[: len(x)]
    colour = colour_of(line.colour)
    style = ":" if line.quiet else LINES[line.colour // len(SERIES) % len(LINES)]
    style = "none" if line.points else style
    marker = "o" if len(x) < 12 or line.points else None
    look: dict[str, Any] = {"color": colour, "linestyle": style, "linewidth": 1.6}
    axes.plot(x[keep], y[keep], label=line.label, marker=marker, markersize=4, **look)
    if line.low is not None and len(x) == 1:
        axes.vlines(x, line.low, line.high, color=colour, linewidth=1.6)
    elif line.low is not None:
        low, high = np.asarray(line.low, float), np.asarray(line.high, float)
        axes.fill_between(x[keep], low[keep], high[keep], color=colour, alpha=0.18, linewidth=0)


def density(counts: np.ndarray, across: tuple[str, float, float], up: tuple[str, float, float]) -> Markup:
    """How often each cell was visited, (across, up): colours on a logarithmic scale, never visited ones are left open."""
    shades = matplotlib.colormaps["plasma"](np.linspace(0.12, 0.88, 256))
    with matplotlib.rc_context(STYLE | {"figure.figsize": (4.0, 3.4)}):
        figure = Figure()
        axes = figure.add_subplot()
        level = np.log1p(counts.T) / max(np.log1p(counts.max(initial=1)), 1e-9)
        colours = shades[np.round(level * 255).astype(int)]
        colours[..., 3] = counts.T > 0
        extent = (*across[1:], *up[1:])
        axes.imshow(colours, origin="lower", extent=extent, aspect="auto", interpolation="none")
        axes.set_xlabel(across[0])
        axes.set_ylabel(up[0])
        return _svg(figure, f"{up[0]} over {across[0]}")


def _svg(figure: Figure, about: str) -> Markup:
    """The drawing as a piece of the page, with names of its own inside."""
    file = io.StringIO()
    figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    found = re.search(r"<svg.*</svg>", file.getvalue(), re.DOTALL)
    assert found is not None
    drawing = re.sub(r"<metadata>.*?</metadata>", "", found[0], flags=re.DOTALL)
    name = hashlib.sha256(drawing.encode()).hexdigest()[:8]
    drawing = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>f{name}-", drawing)
    for colour, meaning in STANDS_FOR.items():
        drawing = drawing.replace(colour, meaning)
    label = re.sub(r"[^\w .,()/-]", "", about)
    opening = rf'<svg viewBox="\g<1>" role="img" aria-label="{label}">'
    drawing = re.sub(r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', opening, drawing, count=1)
    # Inside an HTML page the older way of linking needs no namespace.
    return Markup(drawing.replace("xlink:href", "href"))
