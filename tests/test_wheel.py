"""Wheels hold all that is needed away from the clone."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXPLORED = """
import plan2explore, mjraycast, mujoco
import plan2explore as p2e
for package in (plan2explore, mjraycast):
    assert package.__file__.startswith(SITE), package.__file__
assert p2e.record(p2e.make("maze_u", obs="proprio"), seed=0).env_steps == 1000
"""
ALONE = """
import sys
import mjraycast, mujoco
assert mjraycast.__file__.startswith(SITE) and "plan2explore" not in sys.modules
print(mjraycast.unsupported(mujoco.MjModel.from_xml_string("<mujoco/>")))
"""


def unpacked(project: Path, place: Path) -> Path:
    """A folder with what the wheel of a project holds."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(project)]
    subprocess.run(build, check=True, timeout=600)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


def python(site: Path, *arguments: str) -> str:
    """Runs Python in another folder, with the wheel's packages before those of the clone."""
    environment, command = {**os.environ, "PYTHONPATH": str(site)}, [sys.executable, "-P", *arguments]
    result = subprocess.run(command, env=environment, cwd=site.parent, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize(("project", "package"), [(".", "plan2explore"), ("mjraycast", "mjraycast")])
def test_a_wheel_runs_away_from_the_clone(project, package, tmp_path):
    site = unpacked(ROOT / project, tmp_path)
    ours = {file.relative_to(ROOT) for file in (ROOT / package).rglob("*") if file.is_file()}
    ours = {file for file in ours if not {"tests", "__pycache__", "pyproject.toml"} & {*file.parts}}
    assert ours == {file.relative_to(site) for file in (site / package).rglob("*") if file.is_file()}
    if package == "mjraycast":
        assert not (site / "plan2explore").exists()
        assert python(site, "-c", ALONE.replace("SITE", repr(str(site)))) == "[]\n"
    else:
        assert "Explores a maze without reward" in python(site, "-m", "plan2explore", "demo", "--help")
        python(site, "-c", EXPLORED.replace("SITE", repr(str(site))))
