"""The rooms of the house stay apart: data goes round one way, `agent` knows nothing else, nobody imports `cli`."""

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import plan2explore

ROOT = Path(plan2explore.__file__).parent
MAY_IMPORT = {
    "config": set(),
    "options": {"config"},
    "atomic": set(),
    "console": {"untrusted"},
    "device": set(),
    "streams": {"untrusted"},
    "untrusted": set(),
    "video": set(),
    "envs": set(),
    "agent": {"config"},
    "replay": {"config", "atomic", "envs", "untrusted"},
    "bench": {"config", "options", "envs", "replay", "agent", "runs"},
    "runs": {"config", "atomic", "envs", "agent", "replay", "untrusted"},
    "phases": {"config", "atomic", "console", "device", "envs", "replay", "agent", "runs", "untrusted", "video"},
    "reference": set(),
    "report": {"config", "atomic", "console", "device", "options", "envs", "replay", "agent", "runs", "reference", "video"},
    "scale": {"config", "console", "device", "options", "envs", "agent", "phases", "runs", "report", "untrusted"},
    "reproduce": {"config", "console", "options", "envs", "agent", "phases", "runs", "report", "reference", "scale"},
    "cli": {
        "config", "options", "envs", "runs", "phases", "bench", "report", "reproduce", "demo", "doctor",
        "streams", "scale", "untrusted",
    },
    "demo": {"config", "console", "options", "envs", "phases", "report", "bench", "runs", "video"},
    "doctor": {"envs", "bench"},
    "__init__": {"envs", "replay", "phases", "report"},
    "__main__": {"cli"},
}  # fmt: skip
MODULES = sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    """Full names of all that a file imports, relative and lazy imports included."""
    package = ("plan2explore", *path.relative_to(ROOT).parts[:-1])
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names |= {f"{origin}.{alias.name}" for alias in node.names}
    return names


def rooms_imported(path: Path) -> set[str]:
    """First names below `plan2explore` that a file imports."""
    inside = (name.split(".") for name in imported(path))
    return {parts[1] for parts in inside if parts[0] == "plan2explore" and len(parts) > 1} - {"__version__"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_only_its_neighbours(path):
    room = room_of(path)
    assert room in MAY_IMPORT, f"{room} is a new room: say in MAY_IMPORT what it may import"
    forbidden = rooms_imported(path) - MAY_IMPORT[room] - {room}
    assert not forbidden, f"{path.relative_to(ROOT)} imports {sorted(forbidden)}"


def test_simulators_are_imported_below_envs_alone_which_does_so_safely():
    outside = [path for path in MODULES if room_of(path) != "envs"]
    simulators = {"dm_control", "glfw", "mjraycast", "mujoco"}
    assert not [path for path in outside if {name.split(".")[0] for name in imported(path)} & simulators]


def test_no_rooms_import_each_other_in_a_circle():
    TopologicalSorter(MAY_IMPORT).prepare()  # a CycleError names the rooms


def test_the_check_sees_relative_and_absolute_imports(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "agent").mkdir()
    file = tmp_path / "agent" / "x.py"
    file.write_text("from ..envs import make\nimport plan2explore.replay.disk\ndef f():\n    from plan2explore import cli\n")
    assert rooms_imported(file) == {"envs", "replay", "cli"}
