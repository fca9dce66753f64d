"""Tasks by name, by function and by file."""

import pytest

from plan2explore import Task, make, record, relabel


def test_a_reward_from_a_file(tmp_path):
    file = tmp_path / "my_rewards.py"
    file.write_text(
        "SCALE = 2.0\ndef moonwalk(physics):\n    return -SCALE * physics.horizontal_velocity()\nnumber = 3\n"
    )
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


def test_a_reward_is_known_again_by_its_source(tmp_path):
    def digest(text):
        (tmp_path / "mine.py").write_text(text)
        return Task.from_file(f"{tmp_path / 'mine.py'}:mine").digest

    first = digest("def mine(physics):\n    return 1.0\n")
    assert first == digest("OTHER = 2\n\n\ndef mine(physics):  # more\n    return  1.0\n")
    assert first != digest("def mine(physics):\n    return 2.0\n")
    assert Task("mine", reward=lambda physics: 1.0).digest
    assert Task("mine", reward=abs).digest is None and Task.named("walker_walk").digest is None


def test_names_are_checked_when_the_task_is_made():
    with pytest.raises(ValueError, match="Nearest names: walker_run"):
        Task.named("walker_runn")
    with pytest.raises(ValueError, match="a world without a task"):
        Task.named("walker")
    with pytest.raises(ValueError, match="needs a name"):
        Task("", reward=lambda physics: 0.0)
    with pytest.raises(TypeError, match="must be a function"):
        Task("speed", reward=3.0)
