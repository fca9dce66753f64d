"""What any file is asked that others may have written."""

import json
import logging

import pytest

from plan2explore.streams import PlainFormatter
from plan2explore.untrusted import parse_object, printable


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
