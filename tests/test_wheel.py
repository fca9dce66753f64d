"""Wheels hold all that is needed away from the clone."""

import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from sizes import NANO

from plan2explore.config import ExploreConfig, Schedule, WorldConfig

ROOT = Path(__file__).parents[1]
EXPLORED = """
import pickle
import plan2explore, mjraycast, mujoco
import plan2explore as p2e
for package in (plan2explore, mjraycast):
    assert package.__file__.startswith(SITE), package.__file__
assert p2e.record(p2e.make("maze_u", obs="proprio"), seed=0).env_steps == 1000
config, probes = pickle.loads(CONFIG), ("cartpole_balance", "cartpole_swingup")
run = p2e.explore(config.world.world, 2000, "run", probes=probes, config=config)
policy = run.adapt(probes[0], updates=20, block=10, evaluate_episodes=0)
assert len(policy.evaluate(1).episodes) == 1
assert probes[0] in p2e.write_report(run.path).read_text()
"""
CONFIG = ExploreConfig(  # its programs are those of tests/phases
    WorldConfig("cartpole", obs="proprio", size=8, action_repeat=100),
    Schedule(seed_episodes=1, updates_per_episode=20, block=10, environments=1),
    NANO,
)
ALONE = """
import sys
import mjraycast, mujoco
assert mjraycast.__file__.startswith(SITE) and "plan2explore" not in sys.modules
model = mujoco.MjModel.from_xml_string("<mujoco><worldbody><light/><geom size='.3'/></worldbody></mujoco>")
data = mujoco.MjData(model)
mujoco.mj_forward(model, data)
picture = mjraycast.Renderer(model, 16, 12).render(data, -1)
print(mjraycast.unsupported(model), picture.shape, picture.dtype, picture.std() > 10)
"""


def unpacked(project: Path, place: Path) -> Path:
    """A folder with what the wheel of a project holds."""
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), str(project)]
    subprocess.run(build, check=True, timeout=600)
    (wheel,) = place.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place / "site")
    return place / "site"


def spare_compiling(package: Path) -> None:
    """Gives an unpacked ray-caster what the clone's was compiled to, if it was: half a minute. Its source is the same."""
    clone, kept = ROOT / "mjraycast", package / "__pycache__"
    kept.mkdir()
    for file in clone.glob("__pycache__/*.nb?"):
        shutil.copy2(file, kept)
    for file in package.glob("*.py"):
        shutil.copystat(clone / file.name, file)  # numba looks at the time of change


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
    ours = {file for file in ours if not {"tests", "__pycache__", ".pytest_cache", "pyproject.toml"} & {*file.parts}}
    assert ours == {file.relative_to(site) for file in (site / package).rglob("*") if file.is_file()}
    spare_compiling(site / "mjraycast")
    if package == "mjraycast":
        assert not (site / "plan2explore").exists()
        assert python(site, "-c", ALONE.replace("SITE", repr(str(site)))) == "[] (12, 16, 3) uint8 True\n"
    else:
        assert "Explores a maze without reward" in python(site, "-m", "plan2explore", "demo", "--help")
        python(site, "-c", EXPLORED.replace("SITE", repr(str(site))).replace("CONFIG", repr(pickle.dumps(CONFIG))))
