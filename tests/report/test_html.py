"""Markup is made of what the program says; everything else is text."""

import pytest

from plan2explore.report.html import Markup, anchor, facts, page, table, tag, text, video


@pytest.mark.parametrize("evil", ["<b>", '"x', "'x", "&lt;", "a<script>alert(1)</script>"])
def test_text_and_attributes_are_escaped(evil):
    made = tag("p", evil, title=evil)
    assert "<b>" not in made and "<script>" not in made
    assert made.count('"') == 2 and "'" not in made
    assert text(made) == made  # once only


def test_what_html_forbids_is_replaced():
    assert text("a\x00b\x1bc\ud800d\ne").replace("\N{REPLACEMENT CHARACTER}", "?") == "a?b?c?d\ne"
    text("\ud800").encode()


def test_attributes():
    made = tag("td", 5, data_label="Env steps", class_=None, hidden=True, open=False)
    assert made == '<td data-label="Env steps" hidden>5</td>'
    assert tag("img", src="x", alt="<") == '<img src="x" alt="&lt;">'


def test_a_table_names_its_cells():
    made = table(("Task", "Score"), [("<run>", 5), (tag("em", "x"), 6.5)])
    assert '<td data-label="Task">&lt;run&gt;</td><td data-label="Score">5</td>' in made
    assert '<td data-label="Task"><em>x</em></td>' in made
    with pytest.raises(ValueError, match="zip"):
        table(("Task", "Score"), [("one",)])


def test_facts_and_videos_and_pages():
    assert facts({"A<": "b>"}) == "<dl><dt>A&lt;</dt>\n<dd>b&gt;</dd></dl>"
    shown = video(b"\x00\x01", "it's")
    assert 'src="data:video/mp4;base64,AAE="' in shown
    assert all(word in shown for word in (" muted", " loop", " playsinline", " controls"))
    whole = page("<T>", Markup("<p>x</p>"))
    assert whole.startswith("<!DOCTYPE html>") and "<title>&lt;T&gt;</title>" in whole and "<p>x</p>" in whole
    assert "default-src 'none'" in whole.replace("&#x27;", "'")
    assert anchor("Where it was curious?") == "where-it-was-curious"
