"""Phase 2: zero-shot without a step, few-shot by the episode, and a run that stays as it was."""

import itertools
import json
import math
import shutil
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from nano import TASKS, digests, evaluations, nano_adapt, parameters, remembered
from sizes import one_learner

import plan2explore as p2e
from plan2explore.agent.learner import Learner
from plan2explore.agent.optimizer import init_train_state
from plan2explore.config import AdaptConfig, Schedule
from plan2explore.envs.mujoco_env import MujocoEnv
from plan2explore.envs.tasks import RewardError
from plan2explore.envs.vector import VectorEnv
from plan2explore.phases import callbacks
from plan2explore.phases.adapt import Adaptation, add_states, refine_model, shared_out, state_spaces, task_agent
from plan2explore.phases.collect import select_obs
from plan2explore.phases.training import Training
from plan2explore.phases.world import agent_spaces
from plan2explore.replay.buffer import Replay, plan_replay, replay_rows
from plan2explore.replay.files import EpisodeFolder
from plan2explore.runs.checkpoint import BadCheckpoint, Checkpoints, unpack_params
from plan2explore.runs.folder import RunError
from plan2explore.runs.reader import stored_config

pytestmark = pytest.mark.xdist_group("phases")


def leaning(physics) -> float:
    """A reward of the user's own."""
    return float(physics.cart_position())


def snapshot(path, steps):
    return unpack_params(Checkpoints(path / "snapshots", keep=None).load(steps)[0])


# --- Zero-shot ---


def test_zero_shot_takes_no_step_before_its_evaluation(overlapped, tmp_path, monkeypatch, capsys, processes):
    events = []

    def note(kind, method, text):
        original = getattr(kind, method)

        def noted(*arguments, **options):
            events.append(text)
            return original(*arguments, **options)

        monkeypatch.setattr(kind, method, noted)

    note(VectorEnv, "__init__", "environments")
    note(VectorEnv, "_command", "step")
    note(MujocoEnv, "step", "step here")
    note(Training, "_update", "update")
    note(callbacks, "evaluate_tasks", "evaluation")
    nano_adapt(overlapped.run, out=tmp_path / "adapted")
    # 20 updates in blocks of 10, then an evaluation: a reset and ten steps.
    assert events == ["update", "update", "environments", "evaluation", *["step"] * 11]
    said = capsys.readouterr().err  # a report counts its env steps from the exploration's on
    assert f"from env step 5,000 of {overlapped.run.path}" in said and f"env step 0 of the adaptation: {TASKS[0]}: " in said
    assert "No step in replay is paid anything" not in said


def test_zero_shot_keeps_the_model_and_learns_the_rest(overlapped, adapted):
    policy, _ = adapted
    model = snapshot(overlapped.run.path, 5000)["model"]
    ours = snapshot(policy.path, 0)
    assert ours["model"].tobytes() == model.tobytes()
    assert np.asarray(policy.state.networks["model"].params).tobytes() == model.tobytes()
    fresh = training_start(overlapped.run, policy)
    for name in ("reward", "actor", "critic"):
        assert ours[name].shape == fresh[name].shape and not np.array_equal(ours[name], fresh[name])
    assert int(parameters(policy.path)["update"]) == 20
    (line,) = evaluations(policy.path)
    assert (line["task"], line["updates"], line["env_steps"], len(line["episodes"])) == (TASKS[0], 20, 0, 1)


def training_start(run, policy):
    """The parts as they were before the first update."""
    explored = stored_config(run.folder)
    place = Adaptation(run, policy.task, explored, AdaptConfig(), 5000)
    learner = one_learner(task_agent(explored, False), agent_spaces(explored.world, place.info, 1))
    state = place._fresh(learner, None, None)
    return {name: np.asarray(each.params) for name, each in state.networks.items()}


def test_a_preset_may_refine_the_model_on_replay(overlapped):
    explored = stored_config(overlapped.run.folder)
    agent = replace(explored.agent, refine=50, model=replace(explored.agent.model, learning_rate=5e-3))
    agent = replace(agent, intrinsic=replace(agent.intrinsic, objective="random"))
    spaces = agent_spaces(explored.world, Adaptation(overlapped.run, None, explored, AdaptConfig(), 5000).info, 0)
    replay = Replay(plan_replay("host", 5000, spaces).place, 5000, 1, spaces, agent.batch, agent.length)
    for episode in overlapped.run.episodes():
        replay.add_episode(replay_rows(episode, spaces, np.zeros((len(episode), 0), np.float32)))
    before = snapshot(overlapped.run.path, 5000)["model"]
    learner, key = Learner(agent, spaces), jax.random.key(3)

    def loss(params):
        state = learner.init(key)
        state = state._replace(networks=state.networks | {"model": init_train_state(jnp.asarray(params))})
        return float(learner.update_block(state, replay.sample(key, 1))[1]["model/loss"][0])

    after = [refine_model(agent, spaces, init_train_state(jnp.asarray(before)), replay, key).params for _ in range(2)]
    np.testing.assert_array_equal(*after)
    assert loss(after[0]) < 0.95 * loss(before)


def test_tasks_learned_from_replay_refine_the_model_once(overlapped, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(overlapped.run.path, copy, ignore=shutil.ignore_patterns("adapt"))
    settings = json.loads((copy / "run.json").read_text())
    from_replay = {"adapt_from": "replay", "adapt_batch": 3, "adapt_discount": 0.9, "refine": 50}
    settings["settings"]["config"]["agent"] |= from_replay
    (copy / "run.json").write_text(json.dumps(settings))
    run = p2e.Run(copy)
    policies = [nano_adapt(run, task) for task in TASKS]
    (kept,) = copy.glob("adapt/.model-*")
    first = [snapshot(policy.path, 0) for policy in policies]
    assert first[0]["model"].tobytes() == first[1]["model"].tobytes() != snapshot(copy, 5000)["model"].tobytes()
    for damaged, fault in ((np.nan * first[0]["model"], "not finite"), (first[0]["model"][:, 1:], "another configuration")):
        kept.write_bytes(safetensors.numpy.save({"model": damaged}))
        with pytest.raises(BadCheckpoint, match=rf"{kept.name} is .*{fault}"):
            nano_adapt(run, TASKS[1], out=tmp_path / "damaged")
    agent = policies[0].learner.agent.config
    assert (agent.batch, agent.actor_critic.discount, agent.actor_critic.learn_from) == (3, 0.9, "replay")
    assert nano_adapt(run, TASKS[0], shots=1).evaluate(1).episodes


def test_a_task_learns_from_replay_in_the_states_in_which_its_policy_acts(overlapped, monkeypatch):
    explored = stored_config(overlapped.run.folder)
    agent = task_agent(replace(explored, agent=replace(explored.agent, adapt_from="replay")), learn_model=False)
    info = Adaptation(overlapped.run, None, explored, AdaptConfig(), 5000).info
    learner, key = Learner(agent, agent_spaces(explored.world, info, 1)), jax.random.key(3)
    latent = type(learner.agent.layouts["model"].rest.rssm.latent)
    noise = latent.noise
    monkeypatch.setattr(latent, "noise", lambda self, key, *batch: 0 * noise(self, key, *batch))  # nothing is left to chance
    state = learner.init(key)
    whole, other = itertools.islice(overlapped.run.episodes(), 2)
    short = replace(other, **{name: getattr(other, name)[:7] for name in ("image", "proprio", "action")})
    labelled = [(episode, np.arange(len(episode)) + 1.0) for episode in (whole, short)]
    replay = Replay("host", 100, 1, state_spaces(learner), agent.batch * agent.length, 2)
    add_states(replay, learner, state.params, labelled, key)
    assert replay.steps == len(whole) + 7
    stored = np.asarray(replay.newest(1, replay.steps)["features"][0])
    for episode, rewards in labelled:
        carried, first = learner.carry(1), np.ones(1, bool)
        for step, _ in enumerate(rewards):
            carried = carried._replace(action=jnp.asarray(episode.action[step : step + 1]))
            observation = select_obs(learner.agent.spaces, episode.image[step : step + 1], episode.proprio[step : step + 1])
            _, carried = learner.act(state, carried, observation, first & (step == 0), key, "mode", 0)
            at = step if episode is whole else len(whole) + step
            np.testing.assert_allclose(stored[at], carried.state.features[0], rtol=1e-4, atol=1e-5)
    batch = replay.sample(key, 1)
    assert batch["features"].shape == (1, agent.batch * agent.length, 2, 12)
    follows = np.asarray(batch["reward"][0, :, 1, 0] - batch["reward"][0, :, 0, 0])
    assert np.array_equal(follows == 1, ~np.asarray(batch["is_first"][0, :, 1]))


def test_replay_is_the_runs_with_the_tasks_rewards(overlapped):
    with remembered() as added:
        nano_adapt(overlapped.run, TASKS[1], evaluate_episodes=0)
    episodes = list(overlapped.run.episodes())
    assert len(added) == len(episodes) == 4
    for rows, episode in zip(added, episodes, strict=True):
        assert np.array_equal(rows["action"], episode.action) and rows["features"].shape == (len(episode), 12)
        expected = p2e.relabel(episode, p2e.Task.named(TASKS[1])).astype(np.float32)
        assert np.array_equal(rows["reward"][:, 0], expected) and expected.any()


def test_the_exploration_is_unchanged_byte_by_byte(overlapped, adapted, few_shot):
    run, (zero, before), few = overlapped.run, adapted, few_shot[0]
    other = nano_adapt(run, TASKS[1], evaluate_episodes=0)
    own = nano_adapt(run, p2e.Task("leaning", reward=leaning))
    assert digests(run.path) == before
    names = ["cartpole_balance", "cartpole_balance-2-shots", "cartpole_swingup", "leaning"]
    assert [policy.path for policy in (zero, few, other, own)] == [run.path / "adapt" / name for name in names]
    assert evaluations(own.path)[0]["task"] == "leaning"


# --- From an earlier snapshot ---


def test_at_uses_the_snapshot_and_only_what_was_collected_before_it(taken_in_turn, tmp_path):
    run = taken_in_turn.run
    with remembered() as added:
        policy = nano_adapt(run, at=2000, out=tmp_path / "early", evaluate_episodes=0)
    assert len(added) == 2
    model = snapshot(policy.path, 0)["model"]
    assert model.tobytes() == snapshot(run.path, 2000)["model"].tobytes()
    assert model.tobytes() != snapshot(run.path, 4000)["model"].tobytes()
    with pytest.raises(BadCheckpoint, match="nothing at 3000 environment steps, but at 2000, 4000, 5000"):
        nano_adapt(run, at=3000)
    assert not (run.path / "adapt").exists()


# --- Few-shot ---


def test_few_shot_collects_exactly_so_many_episodes_and_keeps_learning(overlapped, adapted, few_shot):
    (policy, _), (few, added) = adapted, few_shot
    episodes = [episode for _, episode in EpisodeFolder(few.path / "episodes", read_only=True).load_all()]
    assert len(episodes) == 2
    assert {episode.meta["policy"] for episode in episodes} == {TASKS[0]}
    assert {episode.world for episode in episodes} == {"cartpole"}, "any task can be labelled"
    for episode in episodes:
        np.testing.assert_allclose(p2e.relabel(episode, policy.task), episode.reward, atol=1e-6)
        assert p2e.relabel(episode, p2e.Task("leaning", reward=leaning)).any()
    assert len(added) == 4  # the run's; the new ones grow in replay step by step
    model = snapshot(few.path, 2000)["model"]
    assert model.shape == snapshot(policy.path, 0)["model"].shape
    assert not np.array_equal(model, snapshot(policy.path, 0)["model"])
    assert int(parameters(few.path)["update"]) == 200  # 100 an episode
    assert few.env_steps == 2000 and [line["env_steps"] for line in evaluations(few.path)] == [2000]


def test_few_shot_begins_as_the_task_does_and_repeats_nothing_of_the_exploration(overlapped, few_shot):
    explored = list(overlapped.run.episodes())
    collected = [episode for _, episode in EpisodeFolder(few_shot[0].path / "episodes", read_only=True).load_all()]
    starts = {episode.state[0, 0].tobytes() for episode in [*explored, *collected]}
    assert len(starts) == len(explored) + len(collected)
    assert not {episode.meta["seed"] for episode in explored} & {episode.meta["seed"] for episode in collected}
    # proprio: cart, cosine and sine of the pole. cartpole hangs at first, cartpole_balance stands.
    assert all(episode.proprio[0, 1] < -0.9 for episode in explored)
    assert all(episode.proprio[0, 1] > 0.9 for episode in collected)
    for episode in collected:
        env = p2e.make(TASKS[0], size=8, action_repeat=100)
        assert env.reset(seed=episode.meta["seed"])[1]["state"].tobytes() == episode.state[0, :1].tobytes()


@pytest.mark.parametrize(
    ("shots", "schedule", "expected"),
    [
        (150, {}, 15),
        (20, {}, 10),
        (2, {}, 2),
        (17, {}, 1),
        (0, {}, 1),
        (20, {"environments": 4}, 4),
        (8, {"collect": "in-turn"}, 1),
    ],
)
def test_shots_are_shared_out_evenly(shots, schedule, expected):
    assert shared_out(shots, Schedule(**schedule)) == expected


def test_shots_that_cannot_be_shared_out_are_said_before_anything_is_done(overlapped):
    with pytest.raises(ValueError, match="10 shots cannot be shared out evenly over 4 environments"):
        nano_adapt(overlapped.run, shots=10, environments=4)


# --- Resuming, and mistakes ---


def test_an_adaptation_that_was_stopped_resumes_and_a_finished_one_returns_at_once(overlapped, tmp_path, monkeypatch):
    out, done = tmp_path / "adapted", []
    update = Training._update

    def interrupted(training):
        if len(done) == 2:
            training.signals.stop = 2
        done.append(None)
        update(training)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "_update", interrupted)
        with pytest.raises(KeyboardInterrupt):
            nano_adapt(overlapped.run, out=out, updates=50, evaluate_episodes=0)
    assert int(parameters(out)["update"]) == 30
    with pytest.raises(RunError, match="is not finished: rerun the adapt command"):
        p2e.load(out)
    with monkeypatch.context() as patch:
        patch.setattr(Training, "_update", lambda training: (done.append(None), update(training)))
        nano_adapt(overlapped.run, out=out, updates=50, evaluate_episodes=0)
    assert len(done) == 5 and int(parameters(out)["update"]) == 50
    straight = nano_adapt(overlapped.run, out=tmp_path / "straight", updates=50, evaluate_episodes=0)
    assert parameters(straight.path)["actor/params"].tobytes() == parameters(out)["actor/params"].tobytes()
    before = digests(out)
    monkeypatch.setattr(Training, "__init__", None)  # would fail if called
    again = nano_adapt(overlapped.run, out=out, updates=50, evaluate_episodes=0)
    assert np.array_equal(again.state.networks["actor"].params, straight.state.networks["actor"].params)
    assert digests(out) == before


def test_other_settings_are_refused_and_named(overlapped, adapted):
    with pytest.raises(RunError, match=r"updates: 20, not 40.*remove it, or give another --out"):
        nano_adapt(overlapped.run, updates=40)
    with pytest.raises(RunError, match="another own_rewards"):
        nano_adapt(overlapped.run, p2e.Task(TASKS[0], reward=leaning))
    with pytest.raises(RunError, match="is an exploration: give another --out"):
        nano_adapt(overlapped.run, out=overlapped.run.path)


def test_settings_of_the_agent_may_differ_from_the_explorations(overlapped, tmp_path):
    given = ["actor_critic.horizon=2", "actor_critic.actor_gradient=reinforce", "adapt_discount=0.5"]
    policy = nano_adapt(overlapped.run, out=tmp_path / "short", agent=given, evaluate_episodes=0)
    for each in (policy, p2e.load(policy.path)):
        config = each.learner.agent.config.actor_critic
        assert (config.horizon, config.actor_gradient, config.discount) == (2, "reinforce", 0.5)
    with pytest.raises(RunError, match=r"agent: .*adapt_discount=0.5.*explored\.agent\.adapt_discount: 0\.5, not None"):
        nano_adapt(overlapped.run, out=tmp_path / "short", evaluate_episodes=0)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ("actor_critic.horizon", "one such as actor_critic.discount=0.99; got 'actor_critic.horizon'"),
        ("critic.horizon=3", "one such as"),
        ("model={}", "one such as"),
        ("horizon=3", "There is no setting agent.horizon"),
        ("actor_critic.horizon=1.5", r"agent.actor_critic.horizon cannot be 1.5; expected int"),
        ("adapt_discount=NaN", "agent.adapt_discount must be from 0 to 1; got nan"),
        ("model.deter=16", "model has other sizes"),
    ],
)
def test_settings_that_make_no_sense_leave_nothing_behind(overlapped, tmp_path, setting, sentence):
    with pytest.raises((ValueError, RunError), match=sentence):
        nano_adapt(overlapped.run, out=tmp_path / "out", agent=[setting])
    assert not (tmp_path / "out").exists()


def test_a_reward_that_was_changed_is_not_taken_for_the_old_one(overlapped, tmp_path, caplog, capsys):
    """The name is the same, the source is another: nothing is resumed, few-shot not either. A comment changes nothing."""
    run = p2e.load(shutil.copytree(overlapped.run.path, tmp_path / "run"))

    def mine(text):
        (tmp_path / "mine.py").write_text(f"def mine(physics):\n    {text}\n")
        return p2e.Task.from_file(f"{tmp_path / 'mine.py'}:mine")

    policy = nano_adapt(run, mine("return 1.0"))
    before = digests(policy.path)
    nano_adapt(run, mine("return  1.0  # as before"))
    assert f"Adapted before: {policy.path}" in capsys.readouterr().err and not caplog.text
    for shots in (0, 1):
        with pytest.raises(RunError, match=r"another version of the reward 'mine'.*give another --out"):
            nano_adapt(run, mine("return 0.5"), shots=shots)
    assert digests(policy.path) == before
    assert p2e.load(policy.path, mine("return 0.5")).evaluate(1).mean == pytest.approx(500)
    assert "was learned with another version of the reward 'mine'" in caplog.text


def test_a_task_that_pays_nothing_in_replay_is_said(overlapped, tmp_path, capsys):
    never = p2e.Task("never", reward=lambda physics: 0.0)
    nano_adapt(overlapped.run, never, out=tmp_path / "never", evaluate_episodes=0)
    assert "No step in replay is paid anything" in capsys.readouterr().err


def test_a_task_is_a_task(overlapped):
    with pytest.raises(TypeError, match=r"Task\(name, reward=function\)"):
        nano_adapt(overlapped.run, lambda physics: 1.0)


@pytest.mark.parametrize("reward", [lambda physics: 1 / 0, lambda physics: math.nan, lambda physics: "much"])
def test_a_reward_that_fails_leaves_nothing_behind(overlapped, tmp_path, reward):
    with pytest.raises(RewardError, match=r"Reward 'mine' .*\(step 1, episode 0\)"):
        nano_adapt(overlapped.run, p2e.Task("mine", reward=reward), out=tmp_path / "mine")
    assert not (tmp_path / "mine").exists()


def test_mistakes_are_sentences(overlapped, tmp_path):
    run = overlapped.run
    with pytest.raises(ValueError, match="'walker_walk' belongs to walker; the world here is cartpole"):
        nano_adapt(run, "walker_walk")
    with pytest.raises(ValueError, match=r"no world or task 'cartpole_juggle'. Nearest names: cartpole"):
        nano_adapt(run, "cartpole_juggle")
    with pytest.raises(ValueError, match="updates must be at least 1; got 0"):
        nano_adapt(run, updates=0)
    with pytest.raises(ValueError, match=r"schedule.evaluate_episodes must be at least 0; got -1"):
        nano_adapt(run, evaluate_episodes=-1)
    empty = p2e.Run(shutil.copytree(run.path, tmp_path / "run", ignore=shutil.ignore_patterns("snapshots", "adapt")))
    with pytest.raises(RunError, match="has no snapshot yet"):
        nano_adapt(empty)
    assert not (empty.path / "adapt").exists()


# --- Rewards of one's own, and untrusted folders ---


def test_a_policy_of_an_own_reward_needs_it_again(overlapped, tmp_path):
    task = p2e.Task("leaning", reward=leaning)
    policy = nano_adapt(overlapped.run, task, out=tmp_path / "own", evaluate_episodes=0)
    with pytest.raises(RunError, match=r"'leaning', which is your own code and not in the folder.*file.py:leaning"):
        p2e.load(policy.path)
    with pytest.raises(RunError, match="has no task 'cartpole_balance'; it has leaning"):
        p2e.load(policy.path, p2e.Task.named(TASKS[0]))
    assert p2e.load(policy.path, task).task == task


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"task": "TRAP.py:reward"}, "no world or task"),
        ({"task": 5}, "'task' is 5, not str"),
        ({"own_rewards": ["TRAP.py:reward"], "task": "TRAP.py:reward"}, "your own code and not in the folder"),
        ({"own_rewards": "cartpole_balance"}, "'own_rewards' is 'cartpole_balance', not list"),
        ({"explored": None}, "'explored' is None, not dict"),
        ({"explored": {"world": {"world": "gymnasium:TRAP:X-v0"}}}, "in the Python module 'TRAP'"),
        ({"explored": {"world": {"world": "pendulum"}}}, "belongs to cartpole; the world here is pendulum"),
        ({"explored": {"agent": {"steps": 3}}}, "no setting agent.steps"),
        ({"config": {"shots": "many"}}, "shots cannot be 'many'"),
        ({"explored": {"world": {"world": "cartpole", "obs": "proprio", "size": 8, "action_repeat": 100}}}, "other sizes"),
    ],
)
def test_a_hostile_folder_runs_nothing(adapted, tmp_path, monkeypatch, changes, sentence):
    trap = tmp_path / "TRAP.py"
    trap.write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'sprung')!r}).touch()\ndef reward(physics): return 0.0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    path = shutil.copytree(adapted[0].path, tmp_path / "untrusted")
    content = json.loads((path / "run.json").read_text())
    content["settings"] |= changes
    (path / "run.json").write_text(json.dumps(content))
    with pytest.raises(ValueError, match=sentence):
        p2e.load(path)
    assert not (tmp_path / "sprung").exists()
