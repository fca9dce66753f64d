"""Windows of steps as NumPy arrays."""

import numpy as np
import pytest
from episodes import record_random

from plan2explore import Dataset, Task, relabel
from plan2explore.config import Spaces

SPACES = Spaces(1, None, 5, 0)


@pytest.fixture(scope="module")
def episodes():
    return [record_random("cartpole_swingup", seed, size=8, action_repeat=50, obs="proprio") for seed in (0, 1)]


def test_every_window_of_consecutive_steps_is_there(episodes):
    dataset = Dataset(episodes, SPACES, length=8)
    assert len(dataset) == 2 * 21 - 7 and dataset.lengths == [21, 21]
    window = dataset[18]
    assert {name: array.shape for name, array in window.items()} == {
        "action": (8, 1), "is_first": (8,), "is_terminal": (8,), "proprio": (8, 5), "reward": (8,)
    }  # fmt: skip
    assert window["is_first"].tolist() == [False] * 3 + [True] + [False] * 4
    np.testing.assert_array_equal(window["proprio"], np.concatenate([episodes[0].proprio[18:], episodes[1].proprio[:5]]))
    np.testing.assert_allclose(window["reward"], np.concatenate([episodes[0].reward[18:], episodes[1].reward[:5]]))
    assert len(list(dataset)) == len(dataset) and np.array_equal(dataset[-1]["action"], episodes[1].action[-8:])
    for index in (len(dataset), -len(dataset) - 1):
        with pytest.raises(IndexError, match="There are 35 windows"):
            dataset[index]
    with pytest.raises(ValueError, match="A window of 50 steps does not fit: the episodes have 42 in all"):
        Dataset(episodes, SPACES)


def test_rewards_are_those_of_the_tasks_that_are_asked_for(episodes):
    tasks = [Task.named("cartpole_balance"), Task("right", reward=lambda physics: float(physics.cart_position() > 0))]
    window = Dataset(episodes, SPACES, length=21, tasks=tasks)[21]
    assert window["reward"].shape == (21, 2)
    for column, task in enumerate(tasks):
        np.testing.assert_allclose(window["reward"][:, column], relabel(episodes[1], task), rtol=1e-6)


def test_images_come_along_where_the_agent_observes_them(episodes):
    window = Dataset(episodes, Spaces(1, 8, None, 0), length=4)[0]
    assert window["image"].shape == (4, 8, 8, 3) and "proprio" not in window


def test_pytorch_loads_batches_of_windows(episodes):
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(Dataset(episodes, SPACES, length=8), batch_size=5, shuffle=True)
    batch = next(iter(loader))
    assert batch["proprio"].shape == (5, 8, 5) and batch["proprio"].dtype == torch.float32
