"""A policy that one can use: `act` does what `evaluate` scores, and folders give it back."""

import gymnasium
import imageio_ffmpeg
import jax
import numpy as np
import pytest
from nano import TASKS, WORLD, nano_adapt
from sizes import NANO, one_learner

import plan2explore as p2e
from plan2explore.config import Spaces, WorldConfig
from plan2explore.envs.vector import VectorEnv
from plan2explore.envs.worker import episode_seed
from plan2explore.phases.callbacks import EVALUATION_SEED
from plan2explore.runs.folder import RunError

pytestmark = pytest.mark.xdist_group("phases")


@pytest.fixture(scope="module")
def policy(adapted):
    return adapted[0]


def test_acting_by_hand_gives_the_score_of_an_evaluation(policy, tmp_path):
    scores = policy.evaluate(episodes=1, seed=3, video=tmp_path / "a" / "video.mp4")
    env = p2e.make(policy.task.name, size=WORLD.size, action_repeat=WORLD.action_repeat)
    for _ in range(2):  # a second time: `reset` forgets the episode before
        policy.reset(seed=3)
        observation, _ = env.reset(seed=episode_seed(3 + EVALUATION_SEED + 1, 0, 0))
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = env.step(policy.act(observation))
            total += reward
            over = terminated or truncated
        assert scores.episodes == (total,) and scores.task == policy.task.name
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a" / "video.mp4"))
    assert frames == 10


def test_a_video_that_cannot_be_written_is_said_before_anything_is_played(policy, tmp_path, monkeypatch):
    assert policy.film == policy.video_file  # its former name
    (tmp_path / "file").touch()
    monkeypatch.setattr(VectorEnv, "__init__", None)  # would fail if called
    with pytest.raises(ValueError, match=r"video\.mp4 cannot be written: (File exists|Not a directory)"):
        policy.evaluate(episodes=1, video=tmp_path / "file" / "video.mp4")


def test_the_recurrent_state_matters_and_reset_forgets_it(policy):
    env = p2e.make(policy.task.name, size=WORLD.size, action_repeat=WORLD.action_repeat)
    observation, _ = env.reset(seed=0)
    policy.reset()
    first = policy.act(observation)
    assert first.shape == (1,) and first.dtype == np.float32 and np.abs(first).max() <= 1
    assert not np.array_equal(policy.act(observation), first)
    policy.reset()
    assert np.array_equal(policy.act(observation), first)
    sampled = [policy.act(observation, "sample") for _ in (policy.reset(1), policy.reset(2))]
    assert not np.array_equal(*sampled)


def test_it_acts_on_what_the_agent_observes_alone_and_on_batches_of_it(policy):
    env = p2e.make(policy.task.name, size=WORLD.size, action_repeat=WORLD.action_repeat)
    observations = [env.reset(seed=seed)[0] for seed in range(3)]
    vectors = [each["proprio"] for each in observations]

    def actions(given, **options):
        policy.reset()
        return [policy.act(each, **options) for each in given]

    by_hand = actions(observations)
    np.testing.assert_array_equal(actions(vectors), by_hand)
    np.testing.assert_array_equal(actions([{"proprio": each.tolist()} for each in vectors]), by_hand)
    batch = actions([np.stack([each, vectors[0]]) for each in vectors])
    assert batch[0].shape == (2, 1)
    deter = np.asarray(policy._carried.state.deter)  # depends on the episode before the observation alone
    assert not np.array_equal(*deter)
    policy.act(np.stack([vectors[0]] * 2), is_first=np.array([True, False]))
    new, old = np.asarray(policy._carried.state.deter)
    policy.act(np.stack([vectors[0]] * 2), is_first=np.array([True, True]))
    again, begun = np.asarray(policy._carried.state.deter)
    assert np.array_equal(new, again) and np.array_equal(new, begun) and not np.array_equal(old, begun)
    with pytest.raises(ValueError, match=r"acts in 2 environments since its last reset\(\), and 1 are observed"):
        policy.act(vectors[0])
    for wrong in (vectors[0][1:], {"image": observations[0]["image"]}, "left", np.zeros((2, 2, 5))):
        with pytest.raises(ValueError, match=r"The agent observes proprio \(5,\), or a batch of it; got"):
            policy.act(wrong)


def test_discrete_actions_are_those_of_the_environment(tmp_path):
    learner = one_learner(NANO, Spaces(2, None, 4, 1, (2,), True))
    world = WorldConfig("gymnasium:CartPole-v1", obs="proprio", size=8)
    policy = p2e.Policy(learner, learner.init(jax.random.key(0)), world, p2e.Task("up", lambda *_: 1.0), 0, tmp_path, 0)
    env = gymnasium.make("CartPole-v1")
    observation, _ = env.reset(seed=0)
    assert env.action_space.contains(policy.act(observation))
    policy.reset()
    actions = policy.act(np.stack([observation] * 8), "sample")
    assert actions.shape == (8,) and set(actions.tolist()) <= {0, 1}


def test_an_evaluation_plays_as_many_episodes_as_asked_for(policy):
    scores = policy.evaluate(episodes=2, seed=0, mode="noise")
    assert len(set(scores.episodes)) == 2 and scores.frames is None
    with pytest.raises(ValueError, match="episodes must be at least 1; got 0"):
        policy.evaluate(episodes=0)


def test_folders_give_back_runs_and_policies(policy, overlapped):
    run = p2e.load(overlapped.run.path)
    assert isinstance(run, p2e.Run) and repr(run) == f"Run({str(overlapped.run.path)!r})"
    again = p2e.load(policy.path)
    assert isinstance(again, p2e.Policy) and again.task.name == TASKS[0]
    for name, each in policy.state.networks.items():
        assert np.array_equal(each.params, again.state.networks[name].params)


def test_a_probe_is_a_policy_too(overlapped):
    run = overlapped.run
    early, late = run.probe(TASKS[1], at=2000), run.probe(TASKS[1])
    assert (early.env_steps, late.env_steps) == (2000, 5000)
    assert late.row == 1 and late.task == p2e.Task.named(TASKS[1])
    assert not np.array_equal(early.state.networks["actor"].params, late.state.networks["actor"].params)
    assert len(jax.tree.leaves(late.state.networks)) == 2  # model and actor, no optimiser
    with pytest.raises(RunError, match="has no probe 'cartpole_balance_sparse'; it has cartpole_balance, cartpole_swingup"):
        run.probe("cartpole_balance_sparse")
    with pytest.raises(RunError, match="is an adaptation, not an exploration"):
        p2e.Run(nano_adapt(run).path)
