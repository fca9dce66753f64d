"""Rewards afterwards are the rewards that would have been paid."""

import dataclasses
import functools
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from episodes import record_random
from patience import PATIENCE

from plan2explore import RewardError, Task, list_tasks, make, relabel
from plan2explore.envs import suite
from plan2explore.envs.names import split_name
from plan2explore.replay.relabel import label_rows

PAPER = [*list_tasks("paper"), *list_tasks("extra")]
dm_control_of = functools.cache(lambda name: suite.load(*split_name(name)))


@functools.cache
def episode_of(name, seed=0):
    """Episodes of random actions, played once for all tests, without images, since no reward looks at them."""
    return record_random(name, seed, size=8, obs="proprio")


OTHERS = ["fish_swim", "swimmer_swimmer6", "manipulator_insert_ball", "lqr_lqr_6_2", "stacker_stack_2"]


@pytest.mark.parametrize("name", [*PAPER, *OTHERS])
def test_its_own_task_gives_the_rewards_received(name):
    episode = episode_of(name)
    assert len(episode) == 501 or name in OTHERS
    np.testing.assert_allclose(relabel(episode, Task.named(name)), episode.reward, atol=1e-6, rtol=0)


def others():
    for name in PAPER:
        domain, own = split_name(name)
        for task in PAPER:
            if split_name(task)[0] == domain and split_name(task)[1] != own:
                yield name, task


@pytest.mark.parametrize(("world", "task"), list(others()))
def test_another_task_gives_what_its_own_environment_gives_in_the_same_states(world, task):
    """Replays the states in the other task's dm_control objects, by dm_control's own means."""
    episode = episode_of(world)
    target, source = dm_control_of(task), dm_control_of(world)
    target.reset()
    target_fields = suite.DRAWN_FIELDS.get(split_name(world)[0], ())
    source.restore_drawn(episode.drawn)
    for field in target_fields:
        getattr(target.physics.model, field)[:] = getattr(source.physics.model, field)
    layout = make(world, size=8, obs="proprio").state_layout
    starts = dict(zip(layout, np.cumsum([0, *layout.values()])[:-1], strict=True))
    expected = np.zeros(len(episode))
    for step in range(1, len(episode), 25):
        for state in episode.state[step]:
            part = {key: state[starts[key] : starts[key] + size] for key, size in layout.items()}
            with target.physics.reset_context():
                target.physics.data.qpos[:], target.physics.data.qvel[:] = part["qpos"], part["qvel"]
                target.physics.data.act[:] = part["act"]
            target.physics.set_control(part["ctrl"])
            expected[step] += target.task.get_reward(target.physics)
    got = relabel(episode, Task.named(task))
    np.testing.assert_allclose(got[1::25], expected[1::25], atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", ["reacher_hard", "cheetah_run"])
def test_an_episode_in_pieces_gives_the_same(name):
    episode, task = episode_of(name), Task.named(name)
    pieces = [slice(1, 2), slice(2, 40), slice(40, 40), slice(40, 501)]
    got = [label_rows(name, task, episode.state[piece], episode.drawn) for piece in pieces]
    np.testing.assert_array_equal(np.concatenate(got), relabel(episode, task)[1:])


def test_pieces_of_episodes_with_other_targets_and_tasks_can_alternate():
    """A worker labels several running episodes in turn: nothing of one may reach another."""
    episodes = [episode_of("reacher_easy", seed) for seed in (0, 5)]
    tasks = [Task.named("reacher_easy"), Task.named("reacher_hard")]
    expected = {(i, t): relabel(episode, task) for i, episode in enumerate(episodes) for t, task in enumerate(tasks)}
    for step in range(1, 500, 50):
        for (i, t), rewards in expected.items():
            rows = episodes[i].state[step : step + 50]
            got = label_rows("reacher_easy", tasks[t], rows, episodes[i].drawn, first_step=step)
            np.testing.assert_array_equal(got, rewards[step : step + 50])


def test_pieces_of_a_gymnasium_world_need_the_state_before():
    episode = episode_of("gymnasium:Pendulum-v1")
    task = Task("turn", reward=lambda before, action, after: float(after[0] - before[0] + action[0]))
    expected = relabel(episode, task)
    got = label_rows(episode.world, task, episode.state[7:], episode.drawn, before=episode.state[6, -1])
    np.testing.assert_array_equal(got, expected[7:])
    with pytest.raises(ValueError, match="observation before a step too: give `before`"):
        label_rows(episode.world, task, episode.state[7:], episode.drawn)


def test_an_error_in_a_piece_names_its_step():
    episode = episode_of("cheetah_run")
    with pytest.raises(RewardError, match=r"'nan' returned nan.*step 7, running episode"):
        rows = episode.state[7:9]
        label_rows("cheetah", Task("nan", reward=lambda physics: np.nan), rows, episode.drawn, first_step=7)


def test_few_worlds_are_kept(monkeypatch):
    module = sys.modules[label_rows.__module__]
    monkeypatch.setattr(module, "KEPT_LABELLERS", 1)
    episode = episode_of("cheetah_run")
    for number in range(2):
        label_rows("cheetah", Task(f"task {number}", reward=lambda physics: 0.0), episode.state[1:2], episode.drawn)
    assert [each[1].name for each in module._labellers] == ["task 1"]


def test_targets_matter():
    """Reacher's target lives in the model: with another episode's target the rewards would be others."""
    episode = episode_of("reacher_easy", 1)
    target = Task("distance", reward=lambda physics: physics.finger_to_target_dist())
    right = relabel(episode, target)
    wrong = relabel(dataclasses.replace(episode, drawn=episode_of("reacher_easy", 5).drawn), target)
    assert np.abs(right - wrong).max() > 0.01


def test_the_users_reward_sees_speeds_sensors_torques_and_controls_as_they_were():
    def everything(physics):
        data = physics.data
        sums = data.sensordata.sum() + data.actuator_force.sum() + data.qacc.sum() + data.ctrl.sum()
        return float(sums + physics.speed() + data.xpos[:, 2].sum() + data.time)

    task = Task("everything", reward=everything)
    live = record_random("hopper", size=8, task=task, obs="proprio")
    np.testing.assert_allclose(relabel(live, task), live.reward, atol=1e-6, rtol=0)
    assert live.reward.std() > 1


def test_a_bare_world_can_be_given_any_task_afterwards():
    bare = episode_of("walker")
    assert not bare.reward.any()
    with_task = episode_of("walker_run")
    np.testing.assert_array_equal(bare.state, with_task.state)
    np.testing.assert_allclose(relabel(bare, Task.named("walker_run")), with_task.reward, atol=1e-6)


def test_every_process_labels_this_one_among_them_and_changes_nothing():
    episodes = [episode_of("cheetah_run", seed) for seed in (0, 1, 2)]
    before = [{key: np.copy(value) for key, value in vars(e).items()} for e in episodes]
    offset = 0.25  # needs pickling by value
    rewards = relabel(episodes, Task("who", reward=lambda physics: os.getpid() + offset), workers=2)
    processes = {int(reward[1]) // 2 for reward in rewards}
    assert os.getpid() in processes and len(processes) == 2
    for episode, old in zip(episodes, before, strict=True):
        for key, value in vars(episode).items():
            np.testing.assert_array_equal(value, old[key])


def test_a_process_that_dies_is_an_error():
    here = os.getpid()
    die = Task("die", reward=lambda physics: 0.0 if os.getpid() == here else os._exit(7))
    with pytest.raises(RuntimeError, match="relabelled episodes ended with status 7"):
        relabel([episode_of("cheetah_run")] * 4, die, workers=2)


def test_wrong_tasks_and_rewards_are_named():
    episode = episode_of("cheetah_run")
    with pytest.raises(ValueError, match="'walker_run' belongs to walker; the episode is from cheetah"):
        relabel(episode, Task.named("walker_run"))
    with pytest.raises(ValueError, match="different bodies"):
        relabel(episode_of("cartpole_swingup"), Task.named("cartpole_two_poles"))

    def late(physics):
        return 1 / 0 if physics.data.time > 1.0 else 0.0

    place = f"test_relabel.py:{late.__code__.co_firstlineno + 1}"
    with pytest.raises(RewardError, match=rf"'late' raised ZeroDivisionError.* at {place} .step 5\d, episode 0"):
        relabel(episode, Task("late", reward=late))
    with pytest.raises(RewardError, match=r"'shy' raised TypeError: .*argument.* .step 1, episode 0"):
        relabel(episode, Task("shy", reward=lambda: 0.0))  # it never came to a line of its own
    with pytest.raises(RewardError, match=r"'leaving' raised SystemExit: 3 .*step 1, episode 0"):
        relabel(episode, Task("leaving", reward=lambda physics: sys.exit(3)))
    misspelt = lambda physics: physics.named.data.qpos["wheel"]  # noqa: E731 (fails in the package, but for this line)
    place = f"test_relabel.py:{misspelt.__code__.co_firstlineno}"
    with pytest.raises(RewardError, match=rf"'misspelt' raised .* at {place} "):
        relabel(episode, Task("misspelt", reward=misspelt))
    with pytest.raises(RewardError, match=r"'nan' returned nan, not a finite number .step 1, episode 0"):
        relabel(episode, Task("nan", reward=lambda physics: np.nan))
    for value in (1e30, -1e16, 10**30, np.float32(1e20)):
        with pytest.raises(RewardError, match=r"'huge' returned -?1e\+.., too large to learn from: .* .step 1, episode 0"):
            relabel(episode, Task("huge", reward=lambda physics: value))  # noqa: B023
    with pytest.raises(RewardError, match=r"'beyond' raised OverflowError"):
        relabel(episode, Task("beyond", reward=lambda physics: 10**400))
    assert relabel(episode, Task("large", reward=lambda physics: -1e15)).min() <= -1e15
    for value in ("much", None, np.zeros(2), [1.0, 2.0]):
        with pytest.raises(RewardError, match=r"'odd' returned .*, not a number"):
            relabel(episode, Task("odd", reward=lambda physics: value))  # noqa: B023
    second = episode_of("cheetah_run", 1)
    spot = second.state[7, 0, 1]  # a position that only the second episode goes through

    def there(physics):
        return 1 / 0 if physics.data.qpos[0] == spot else 0.0

    with pytest.raises(RewardError, match=r"'there' raised ZeroDivisionError.*step 7, episode 1"):
        relabel([episode, second], Task("there", reward=there), workers=2)


def test_a_script_without_a_main_guard_can_use_several_cores(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent("""
        import plan2explore as p2e
        def fast(physics):
            print("noise on standard output")
            return physics.speed()
        episode = p2e.record(p2e.make("cheetah", size=8), seed=0)
        one, two = p2e.relabel([episode, episode], p2e.Task("fast", reward=fast), workers=2)
        assert (one == two).all() and one.any()
        print("done")
        """)
    )
    result = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 0, result.stderr
    assert result.stdout.endswith("done\n")
    assert "noise on standard output" in result.stderr  # of the other process
