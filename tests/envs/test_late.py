"""What is imported late is there when it is used, and not before."""

import subprocess
import sys

SCRIPT = """
import sys
{before}
from plan2explore.envs import suite
assert ("scipy.ndimage._filters" in sys.modules) == {loaded}
world = suite.load("quadruped", "escape")
world.reset()
assert world.drawn().std() > 0 and "scipy.ndimage._filters" in sys.modules
"""


def run(before, loaded):
    script = SCRIPT.format(before=before, loaded=loaded)
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stderr


def test_scipys_images_are_loaded_when_terrain_is_drawn():
    run("", loaded=False)


def test_what_was_loaded_before_stays():
    run("import scipy.ndimage", loaded=True)
