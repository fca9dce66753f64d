"""What any file is asked that others may have written."""

import json
import logging

import pytest

from plan2explore.config import ExploreConfig
from plan2explore.runs.results import COLUMNS, read_results
from plan2explore.scale.cells import Cell
from plan2explore.scale.runner import Runner, run_cells
from plan2explore.streams import PlainFormatter
from plan2explore.untrusted import NewerFormat, parse_object, printable, read_versioned


@pytest.mark.parametrize(
    "text",
    [
        "[1]", "7", "", "{", '{"a": NaN}', '{"a": -Infinity}', '{"a": 1e999}', '{"a": [1, {"b": -1e999}]}', "[" * 100_000,
        f'{{"a": {10**400}}}', f'{{"a": {2**64}}}', f'{{"a": -{10**400}}}', '{"a": "\\u001b[2J"}', '{"\\u009b2J": 1}',
        '{"a": [{"b": "\x7f"}]}', b"\x80\x04\xff",
    ],
)  # fmt: skip
def test_what_is_no_strict_json_object_is_none(text):
    assert parse_object(text) is None


def test_other_objects_are_what_they_say():
    content = {"a": 2**64 - 1, "b": [-1e300, 0.5, None, True], "c": {"d": "é\n\ttwo"}}
    assert parse_object(json.dumps(content)) == parse_object(json.dumps(content, ensure_ascii=False).encode()) == content


def test_text_cannot_steer_a_terminal(caplog):
    assert printable("a\x1b[2J\x9b1m\r\b\nb\té") == "a\\x1b[2J\\x9b1m\\x0d\\x08\nb\té"
    with caplog.at_level("WARNING"):
        logging.getLogger("plan2explore.test").warning("%s is bad", "\x1b[2Jx.npz")
    assert PlainFormatter().format(caplog.records[-1]) == "\\x1b[2Jx.npz is bad"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[]", "x is damaged: it is not a JSON object"),
        ('{"size": 1}', "x is damaged: no proper 'format' in it"),
        ('{"format": 0, "size": 1}', "x is damaged: no proper 'format' in it"),
        ('{"format": 2, "size": true}', "x is damaged: no proper 'size' in it"),
        ('{"format": 3, "version": "9.0"}', r"x was made by a newer version of plan2explore \(9.0, format 3; this is .*\)"),
    ],
)
def test_an_object_says_its_format_and_has_its_fields(text, fault):
    with pytest.raises(ValueError, match=fault) as error:
        read_versioned("x", text, 2, {"size": int})
    assert isinstance(error.value, NewerFormat) == ("newer" in fault)
    assert read_versioned("x", '{"format": 1, "size": 7}', 2, {"size": int})["size"] == 7


def test_results_of_others_cannot_steer_a_terminal_or_fill_the_memory(tmp_path):
    file = tmp_path / "results.csv"
    line = "walker_run,\x1b[2Jown,few-shot,0,1000,5.0,0.0,3,,,,,"
    file.write_text(",".join(COLUMNS) + f"\r\n{line}\r\n", newline="")
    assert [result.method for result in read_results([file])] == ["\\x1b[2Jown"]
    with file.open("ab") as opened:
        opened.truncate(200 * 10**9)
    with pytest.raises(ValueError, match=r"results\.csv has 200,000,000,000 bytes; at most 67,108,864 are read"):
        read_results([file])


@pytest.mark.parametrize("name", ["locks", "locks/a", "locks/files", "cells.jsonl", "results.csv", "runs"])
def test_a_sweep_follows_no_link_out_of_its_folder(name, tmp_path):
    target, out = tmp_path / "target", tmp_path / "sweep"
    (out / name).parent.mkdir(parents=True)
    target.mkdir() if name in ("locks", "runs") else target.write_text("precious")
    (out / name).symlink_to(target)
    with pytest.raises(ValueError, match=rf"{name} is a link out of .*sweep, to .*target: put a copy"):
        run_cells(out, [Cell("a", ExploreConfig(), 10)], Runner())
    assert not list(target.iterdir()) if target.is_dir() else target.read_text() == "precious"
