"""Charts of a page: numbers that its script draws, so that they can be read off, zoomed, smoothed and put together."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .html import Markup, figure, tag

MOST_POINTS = 600
COLOURS = 6
"""Colours of the page; later lines repeat them, dashed."""


@dataclass(frozen=True)
class Line:
    """A curve: `low` and `high` are the edges of its shade; `quiet` ones are dotted, `points` have no line.

    Lines of one `group`, such as seeds of a method, can be shown as their mean.
    """

    label: str
    x: Any
    y: Any
    low: Any = None
    high: Any = None
    colour: int = 0
    quiet: bool = False
    points: bool = False
    group: str = ""


def chart(lines: Sequence[Line], x: str, y: str, caption: Any, **more: Any) -> Markup:
    """A figure with curves over env steps, or over anything."""
    content = {"x": x, "y": y, "lines": [_plain(line) for line in lines], **more}
    return figure(tag("div", class_="chart", data_chart=json.dumps(content, separators=(",", ":"))), caption)


def scatter(points: np.ndarray, values: np.ndarray, about: Sequence[str], x: str, y: str, caption: Any) -> Markup:
    """A figure with points (n, 2), coloured by values from 0 to 1; `about` says what each is."""
    line = Line("", points[:, 0], points[:, 1], points=True)
    return chart([line], x, y, caption, values=_numbers(values), about=list(about))


def _plain(line: Line) -> dict[str, Any]:
    """A line as the script takes it, with so many points at most, the last one among them."""
    count = len(line.x)
    every = 1 if line.points else max(1, -(-count // MOST_POINTS))
    keep = np.unique([*range(0, count, every), count - 1])
    columns = {"x": line.x, "y": line.y} | ({} if line.low is None else {"low": line.low, "high": line.high})
    told = {name: _numbers(np.asarray(values, float)[keep]) for name, values in columns.items()}
    return told | {name: getattr(line, name) for name in ("label", "colour", "quiet", "points", "group")}


def _numbers(values: np.ndarray) -> list[float | None]:
    """Five digits are more than a screen shows; what is not finite is null."""
    return [float(f"{value:.5g}") if np.isfinite(value) else None for value in values]


@dataclass(frozen=True)
class Bar:
    """A value with its interval, and what it is compared with."""

    label: str
    value: float
    low: float | None = None
    high: float | None = None
    colour: int = 0
    mark: float | None = None


def bars(title: str, each: Sequence[Bar], least: float = 0.0) -> Markup:
    """Bars below each other on one scale; a thin line is the interval, an upright one the mark."""
    ends = [end for bar in each for end in (bar.value, bar.low, bar.high, bar.mark) if end is not None]
    low, high = min(0.0, *ends), max(least, 1.0, *ends)  # a score that reads as 0 is no long bar

    def span(start: float, end: float) -> str:
        return f"left:{100 * (start - low) / (high - low):.2f}%;width:{100 * (end - start) / (high - low):.2f}%"

    rows = []
    for bar in each:
        colour = f"background:var(--s{bar.colour % COLOURS + 1})"
        inside = [tag("i", style=f"{span(min(0.0, bar.value), max(0.0, bar.value))};{colour}")]
        said = f"{bar.value:,.1f}"
        if bar.low is not None and bar.high is not None:
            inside.append(tag("i", class_="range", style=span(bar.low, bar.high)))
            said += f" ({bar.low:,.0f} to {bar.high:,.0f})"
        if bar.mark is not None:
            inside.append(tag("i", class_="mark", style=f"left:{100 * (bar.mark - low) / (high - low):.2f}%"))
        rows.append(
            tag("div", tag("span", bar.label), tag("span", *inside, class_="track"), tag("span", said), class_="bar")
        )
    return tag("div", tag("h3", title), *rows)
