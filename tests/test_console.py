"""What is printed cannot steer the terminal."""

import io

from rich.table import Table

from plan2explore.console import PatientConsole, counted, say


def test_control_characters_are_shown_and_not_obeyed(capsys):
    say("a\x1b[2Jb\tc\nd")
    assert capsys.readouterr().out == "a\\x1b[2Jb\tc\nd\n"


def test_a_console_keeps_its_own_colours_and_no_others():
    file = io.StringIO()
    console = PatientConsole(file=file, force_terminal=True, width=60, color_system="standard")
    table = Table(box=None)
    table.add_column("run")
    table.add_row("\x1b]0;title\x07")
    console.print("\x1b[2J", style="red", markup=False, highlight=False)
    console.print(table)
    printed = file.getvalue()
    assert "\x1b[31m" in printed and "\\x1b[2J" in printed and "\\x1b]0;" in printed
    assert "\x1b[2J" not in printed and "\x1b]0;" not in printed and "\x07" not in printed


def test_one_of_something_has_no_s():
    assert [counted(number, "episode") for number in (0, 1, 2000)] == ["0 episodes", "1 episode", "2,000 episodes"]
