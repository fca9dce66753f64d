"""Pieces of an HTML page. What comes from files goes through `text`, so that no name can become markup."""

import base64
import html
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Markup(str):
    """Text that is HTML already: only what this program wrote itself. Everything else is escaped where it is put in."""


def text(value: Any) -> Markup:
    """Anything as text of the page: markup stays as it is, all else is escaped."""
    return value if isinstance(value, Markup) else Markup(html.escape(_printable(str(value)), quote=True))


def _printable(value: str) -> str:
    """Without characters that HTML forbids, and without halves of surrogate pairs, which no file can hold."""
    return re.sub(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]", "\N{REPLACEMENT CHARACTER}", value)


def tag(name: str, /, *content: Any, **attributes: Any) -> Markup:
    """An element. Attributes that are none are left out; `class_` is class, `data_label` data-label."""
    pairs = (
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{text(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    inside = "".join(map(text, content))
    closing = "" if name in ("img", "meta", "br") else f"{inside}</{name}>"
    return Markup(f"<{name}{''.join(pairs)}>{closing}")


def join(pieces: Iterable[Any]) -> Markup:
    """Pieces one after the other."""
    return Markup("\n".join(map(text, pieces)))


def section(title: str, *content: Any) -> Markup:
    """A part of the page with a heading that can be linked to."""
    return tag("section", tag("h2", title), *content, id=anchor(title))


def anchor(title: str) -> str:
    """The name by which a section can be linked to."""
    return re.sub(r"\W+", "-", title.lower()).strip("-")


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> Markup:
    """A table; on a narrow screen each row becomes a list of its named cells."""
    titles = tag("tr", *(tag("th", name) for name in head))
    body = [
        tag("tr", *(tag("td", cell, data_label=name or None) for name, cell in zip(head, row, strict=True)))
        for row in rows
    ]
    return tag("table", tag("thead", titles), tag("tbody", *body))


def facts(pairs: Mapping[str, Any]) -> Markup:
    """Names and values, one below the other."""
    return tag("dl", *(join([tag("dt", name), tag("dd", value)]) for name, value in pairs.items()))


def missing(sentence: str) -> Markup:
    """Says that something is not here, and why."""
    return tag("p", sentence, class_="missing")


def figure(content: Markup, caption: Any) -> Markup:
    """A picture with what it shows."""
    return tag("figure", content, tag("figcaption", caption))


def grid(pieces: Iterable[Any]) -> Markup:
    """Figures side by side, as many as fit."""
    return tag("div", *pieces, class_="grid")


def picture(png: bytes, about: str) -> Markup:
    """A PNG inside the page."""
    return tag("img", src=data_url("image/png", png), alt=about)


def film(mp4: bytes, about: str) -> Markup:
    """An mp4 inside the page: it plays when it comes into view."""
    url = data_url("video/mp4", mp4)
    flags: dict[str, Any] = {"controls": True, "muted": True, "loop": True, "playsinline": True}
    return tag("video", src=url, preload="metadata", aria_label=about, **flags)


def data_url(kind: str, data: bytes) -> str:
    """A file as an address that needs no network."""
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1c2128; --soft: #5a6470; --line: #d5dae0; --card: #f5f7f9;
  --accent: #0b62b8; --s1: #1664b0; --s2: #c8500a; --s3: #1b7f3b; --s4: #8a3fa8; --s5: #a8324a; --s6: #56707c; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171b; --ink: #e4e8ec; --soft: #9aa5b1; --line: #363d46;
  --card: #1d2127; --accent: #6db3f2; --s1: #6db3f2; --s2: #ff9e5e; --s3: #6fd08c; --s4: #d29bea; --s5: #f28b9d;
  --s6: #a9bcc6; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; padding: 1rem; max-width: 74rem; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: .6rem 0; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .6rem; padding-top: .8rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.05rem; margin: 1.4rem 0 .4rem; }
p { max-width: 46rem; margin: .5rem 0; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1rem; }
a { color: var(--accent); }
.soft, figcaption, dt { color: var(--soft); font-size: .9rem; }
.missing { border-left: 3px solid var(--s2); padding: .2rem .7rem; background: var(--card); }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fill, minmax(min(100%, 21rem), 1fr));
  align-items: start; }
figure { margin: 0; min-width: 0; padding: .6rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }
figcaption { margin-top: .3rem; }
svg, img, video { display: block; width: 100%; height: auto; }
svg image, img { image-rendering: pixelated; }
video { background: #000; border-radius: 4px; max-width: 24rem; margin: 0 auto; }
dl { display: grid; grid-template-columns: minmax(6rem, 12rem) 1fr; gap: .15rem 1rem; margin: .5rem 0; }
dd { margin: 0; min-width: 0; }
summary { cursor: pointer; color: var(--accent); }
code { font: .9em ui-monospace, monospace; }
.grid, .strip, table { margin: 0 0 1rem; }
table { border-collapse: collapse; width: 100%; font-size: .93rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; }
@media (min-width: 62rem) { .grid > .strip { grid-column: span 2; } th, td:first-child { overflow-wrap: break-word; } }
.strip { display: grid; align-content: start; gap: .4rem; grid-template-columns: repeat(auto-fill, minmax(6.5rem, 1fr)); }
.strip figure { padding: .3rem; } .strip figcaption { font-size: .8rem; line-height: 1.25; }
@media (max-width: 61.99rem) {
  thead { display: none; }
  table, tbody, tr, td { display: block; width: 100%; }
  tr { border: 1px solid var(--line); border-radius: 8px; padding: .4rem .7rem; margin: .5rem 0; background: var(--card); }
  td { border: 0; padding: .1rem 0; display: flex; gap: .8rem; }
  td[data-label]::before { content: attr(data-label); color: var(--soft); flex: 0 0 8rem; }
  dl { grid-template-columns: 1fr; } dd { margin-bottom: .4rem; }
}
"""

SCRIPT = """
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const seen = new IntersectionObserver(entries => entries.forEach(({target, isIntersecting}) => {
  if (isIntersecting && !calm) target.play().catch(() => {}); else if (!isIntersecting) target.pause();
}));
document.querySelectorAll("video").forEach(video => { video.muted = true; seen.observe(video); });
"""


def page(title: str, *content: Any) -> str:
    """A whole document that asks nothing of any network."""
    policy = "default-src 'none'; img-src data:; media-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    head = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", title),
        tag("style", Markup(STYLE)),
    ]
    body = tag("body", *content, tag("script", Markup(SCRIPT)))
    return "<!DOCTYPE html>\n" + tag("html", tag("head", join(head)), body, lang="en") + "\n"
