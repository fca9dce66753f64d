"""TensorBoard shows what a run is curious about, what it predicts, and what it does, at each evaluation."""

import io
from dataclasses import replace

import numpy as np
import pytest
from events import frames_of, shown
from nano import FRAMES, TASKS, in_turn, nano_explore
from PIL import Image
from sizes import NANO, quick

import plan2explore as p2e
from plan2explore.phases.evaluate import Scores
from plan2explore.phases.watch import EPISODES, MOST_FRAMES, show_episode
from plan2explore.runs.folder import RunFolder
from plan2explore.runs.metrics import Metrics

pytestmark = pytest.mark.xdist_group("phases")
SIZE = 16
EVALUATED = (2000, 4000, 5000)
PLAYED = {(f"eval/{task}/video", steps) for task in TASKS for steps in EVALUATED}


def histograms_at(*steps):
    return {("explore/intrinsic_reward", each) for each in steps}


def explore_pixels(path, steps=3000):
    """A run that observes images; evaluated after its second and its third episode."""
    config = in_turn()
    agent = replace(NANO, model=replace(NANO.model, conv_depth=2))
    config = replace(config, agent=agent, world=replace(config.world, obs="pixels", size=SIZE))
    with quick():
        return nano_explore(path, config, steps)


@pytest.fixture(scope="module")
def from_pixels(tmp_path_factory):
    return explore_pixels(tmp_path_factory.mktemp("watch") / "run")


def test_images_of_an_episode_are_drawn_again_from_its_seed(from_pixels):
    env = p2e.make("cartpole", size=SIZE, action_repeat=100)
    for episode in from_pixels.episodes():
        images = [env.reset(seed=episode.meta["seed"])[0]["image"]]
        images += [env.step(action)[0]["image"] for action in episode.action[1:]]
        assert np.array_equal(np.stack(images), episode.image) and episode.image.any()
    env.close()


def test_videos_come_with_predictions(from_pixels):
    videos = shown(from_pixels.folder.tensorboard, "image")
    names = [f"eval/{task}/video" for task in TASKS] + ["train/model/open_loop"]
    assert videos.keys() == {(name, steps) for name in names for steps in (2000, 3000)}
    for (name, _), video in videos.items():
        if name != "train/model/open_loop":
            assert frames_of(video).shape == (FRAMES - 1, SIZE, SIZE, 3)
    for steps, episode in zip((2000, 3000), list(from_pixels.episodes())[1:], strict=True):
        frames = frames_of(videos["train/model/open_loop", steps])
        assert frames.shape == (FRAMES, SIZE, 3 * SIZE, 3)
        true, imagined, difference = np.split(frames.astype(int), 3, axis=2)
        assert np.abs(true - episode.image).max() < 16, "the newest episode, as it was"
        assert np.abs(imagined - true).mean() > 16, "the model has hardly learned anything"
        assert np.abs((imagined - true) / 2 + 128 - difference).max() < 32


def test_the_intrinsic_reward_has_a_histogram(from_pixels, overlapped):
    for run, steps in ((from_pixels, (2000, 3000)), (overlapped.run, EVALUATED)):
        histograms = shown(run.folder.tensorboard, "histo")
        assert histograms.keys() == histograms_at(*steps)
        for histogram in histograms.values():
            assert histogram.num == sum(histogram.bucket) == EPISODES * (FRAMES - 1)
            assert 0 < histogram.min < histogram.max < np.inf


def test_proprioception_has_no_predicted_videos(overlapped, taken_in_turn):
    for run in (overlapped.run, taken_in_turn.run):
        videos = shown(run.folder.tensorboard, "image")
        assert videos.keys() == PLAYED
        assert {frames_of(video).shape for video in videos.values()} == {(FRAMES - 1, 8, 8, 3)}


def test_adaptations_show_what_they_do(adapted, few_shot):
    for policy, last in ((adapted[0], 0), (few_shot[0], 2000)):
        folder = RunFolder.open(policy.path).tensorboard
        assert (f"eval/{TASKS[0]}/video", last) in shown(folder, "image")
        assert not shown(folder, "histo"), "the task's policy has no intrinsic reward"


def test_videos_of_long_episodes_leave_frames_out_and_keep_their_time(tmp_path):
    folder = RunFolder.create(tmp_path / "run", "explore", {})
    frames = np.zeros((500, 16, 16, 3), np.uint8)
    for index, frame in enumerate(frames):
        frame.reshape(-1, 3)[: index % 256] = (250, 20, index // 256)
    with Metrics(folder) as metrics:
        show_episode(metrics, Scores("walk", (1.0,), 70, frames), fps=40.0)
        show_episode(metrics, Scores("stand", (1.0,), 70), fps=40.0)
    ((name, video),) = shown(folder.tensorboard, "image").items()
    assert name == ("eval/walk/video", 70)
    found = frames_of(video)
    assert len(found) == MOST_FRAMES and np.abs(found[-1].astype(int) - frames[496]).max() < 16
    assert Image.open(io.BytesIO(video.encoded_image_string)).info["duration"] == 100  # milliseconds: every fourth of 40
