"""Tasks by name, by function and by file."""

from pathlib import Path

import numpy as np
import pytest

from plan2explore import RewardError, Task, make, record, relabel
from plan2explore.envs import suite


def test_a_reward_from_a_file(tmp_path):
    file = tmp_path / "my_rewards.py"
    file.write_text("SCALE = 2.0\ndef moonwalk(physics):\n    return -SCALE * physics.horizontal_velocity()\nnumber = 3\n")
    task = Task.from_file(f"{file}:moonwalk")
    assert task.name == "moonwalk"
    episodes = [record(make("walker", size=8), seed=seed) for seed in (0, 1)]
    rewards = relabel(episodes, task, workers=2)
    assert rewards[0].any() and (rewards[0] == relabel(episodes[0], task)).all()
    for spec, answer in [
        (f"{file}:number", "no function 'number'; it has moonwalk"),
        (f"{tmp_path}/none.py:f", "There is no file"),
        (str(file), "file.py:function"),
        ("moonwalk", "file.py:function"),
    ]:
        with pytest.raises(ValueError, match=answer):
            Task.from_file(spec)
    file.write_text("import nothing_of_that_name\n")
    with pytest.raises(ValueError, match="could not be run: ModuleNotFoundError"):
        Task.from_file(f"{file}:moonwalk")


def test_a_reward_of_a_file_is_known_again_without_comments_and_layout(tmp_path):
    def digest(text):
        (tmp_path / "mine.py").write_text(text)
        return Task.from_file(f"{tmp_path / 'mine.py'}:mine").digest

    first = digest("def mine(physics):\n    return 1.0\n")
    assert first == digest("OTHER = 2\n\n\ndef mine(physics):  # more\n    return  1.0\n")
    assert first != digest("def mine(physics):\n    return 2.0\n")
    assert first != digest("def mine(physics):\n    return SPEED\nSPEED = 1.0\n")
    assert digest("def mine(physics):\n    return SPEED\nSPEED = 1.0\n") != digest(
        "def mine(physics):\n    return SPEED\nSPEED = 2.0\n"
    )
    assert Task.named("walker_walk").digest is None


def writes_state(physics):
    physics.data.qpos[0] = 0.5
    return 0.0


def applies_force(physics):
    physics.data.xfrc_applied[1, 0] = 5.0
    return 0.0


def writes_model(physics):
    physics.model.body_mass[1] = 7.0
    return 0.0


def slows_time(physics):
    physics.model.opt.timestep = 0.001
    return 0.0


def disables_a_part_of_the_physics(physics):
    physics.model.opt.disableflags = 1024
    return 0.0


def changes_a_view(physics):
    offset = physics.data.xpos[1]
    offset -= 1.0
    return float(np.linalg.norm(offset))


def keeps_the_last_height(physics):
    last, physics.last = getattr(physics, "last", 0.0), float(physics.data.xpos[1, 2])
    return physics.last - last


def counts_in_the_data(physics):
    physics.data.calls = getattr(physics.data, "calls", 0) + 1
    return float(physics.data.calls)


WRITES = [writes_state, applies_force, writes_model, slows_time, disables_a_part_of_the_physics, changes_a_view]
WRITES += [keeps_the_last_height, counts_in_the_data]
CART = f"mjcf:{Path(__file__).parents[2] / 'examples' / 'models' / 'cart.xml'}?episode=20"


@pytest.mark.parametrize(
    ("world", "reward"),
    [("walker", reward) for reward in WRITES]
    + [(world, reward) for world in ("gymnasium:Hopper-v5", CART) for reward in (writes_state, *WRITES[-2:])],
)
def test_a_reward_that_writes_to_physics_is_refused_where_it_is_paid_and_when_it_relabels(world, reward):
    task, bare = Task("mine", reward=reward), make(world, size=8, obs="proprio")
    sentence = "Reward 'mine' has written to physics .*: it may only read it"
    episode = record(bare)
    for _ in range(2):
        with pytest.raises(RewardError, match=sentence):
            relabel(episode, task)
    with pytest.raises(RewardError, match=sentence):
        record(make(world, size=8, obs="proprio", task=task))


@pytest.mark.parametrize("domain", ["quadruped", "humanoid", "manipulator"])
def test_what_dm_controls_own_rewards_and_observations_read_is_no_write(domain):
    world = suite.load(domain, suite.DEFAULT_TASK[domain])

    def reward(physics):
        world.task.get_observation(physics)
        return world.task.get_reward(physics)

    assert len(record(make(domain, size=8, obs="proprio", task=Task("own", reward=reward)), seed=0)) > 100


def test_names_are_checked_when_the_task_is_made():
    with pytest.raises(ValueError, match="Nearest names: walker_run"):
        Task.named("walker_runn")
    with pytest.raises(ValueError, match="a world without a task"):
        Task.named("walker")
    with pytest.raises(ValueError, match="needs a name"):
        Task("", reward=lambda physics: 0.0)
    with pytest.raises(TypeError, match="must be a function"):
        Task("speed", reward=3.0)
