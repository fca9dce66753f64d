"""Pieces of an HTML page. What comes from files goes through `text`, so that no name can become markup."""

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from typing import Any

FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
"""Characters that HTML has not, and halves of surrogate pairs, which no file can hold."""


class Markup(str):
    """Text that is HTML already: only what this program wrote itself. Everything else is escaped where it is put in."""


def text(value: Any) -> Markup:
    """Anything as text of the page: markup stays as it is, all else is escaped."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. Attributes that are none are left out; `class_` is class, `data_label` data-label."""
    pairs = (
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    closing = "" if name in ("img", "meta") else f"{''.join(map(text, content))}</{name}>"
    return Markup(f"<{name}{''.join(pairs)}>{closing}")


def join(pieces: Iterable[Any]) -> Markup:
    """Pieces one after the other."""
    return Markup("\n".join(map(text, pieces)))


def anchor(title: str) -> str:
    """The name by which a section can be linked to."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """A table; on a narrow screen each row becomes a list of its named cells."""
    titles = tag("tr", *(tag("th", name) for name in head))
    body = (tag("tr", *(tag("td", cell, data_label=name) for name, cell in zip(head, row, strict=True))) for row in rows)
    return tag("table", tag("thead", titles), tag("tbody", *body))


def facts(pairs: Mapping[str, Any]) -> Markup:
    """Names and values, one below the other."""
    return tag("dl", *(join([tag("dt", name), tag("dd", value)]) for name, value in pairs.items()))


def missing(sentence: str) -> Markup:
    """Says that something is not here, and why."""
    return tag("p", sentence, class_="missing")


def figure(content: Markup, caption: Any) -> Markup:
    """A plot, image or video with what it shows."""
    return tag("figure", content, tag("figcaption", caption))


def grid(pieces: Iterable[Any], small: bool = False) -> Markup:
    """Figures side by side, as many as fit."""
    return tag("div", *pieces, class_="grid small" if small else "grid")


def video(mp4: bytes, about: str, class_: str | None = None) -> Markup:
    """An mp4 inside the page: it plays when it comes into view."""
    return tag(
        "video", src=data_url("video/mp4", mp4), preload="auto", aria_label=about,
        controls=True, muted=True, loop=True, playsinline=True, class_=class_,
    )  # fmt: skip


def data_url(kind: str, data: bytes) -> str:
    """A file as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def page(title: str, *content: Any) -> str:
    """A whole document that asks nothing of any network."""
    style, script = ((files(__package__) / name).read_text() for name in ("page.css", "page.js"))
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(style)),
    ]
    body = tag("body", *content, tag("script", Markup(script)))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", join(head)), body, lang="en") + "\n"
