"""Steps of many episodes as NumPy arrays: windows by number, as PyTorch's `DataLoader` and others take them."""

from collections.abc import Iterable, Sequence

import numpy as np

from ..config import Spaces
from ..envs import Task
from .buffer import replay_rows
from .episode import Episode
from .relabel import relabel


class Dataset:
    """Windows of consecutive steps: `dataset[i]` is the window that begins at step `i` of all, a dictionary of arrays.

    Each has a leading axis of `length` steps: `image` and `proprio` as far as the agent observes them, `action` (the one
    that led to the step), `reward`, `is_first` and `is_terminal`. A window may run into the next episode, where `is_first`
    is set. `reward` is what each of the `tasks` would have paid, (length, tasks), or without tasks what the environment
    did, (length,). All of it is kept in memory.
    """

    def __init__(self, episodes: Iterable[Episode], spaces: Spaces, length: int = 50, tasks: Sequence[Task] = ()) -> None:
        kept = list(episodes)
        rewards = [np.stack(each, -1) for each in zip(*(relabel(kept, task) for task in tasks), strict=True)]
        rewards = rewards or [episode.reward for episode in kept]
        rows = [replay_rows(episode, spaces, paid) for episode, paid in zip(kept, rewards, strict=True)]
        self.length = length
        self.lengths = [len(episode) for episode in kept]
        """Steps of each episode, in order."""
        if length < 1 or sum(self.lengths) < length:
            raise ValueError(f"A window of {length} steps does not fit: the episodes have {sum(self.lengths)} in all.")
        self.arrays = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
        """All steps, episode after episode."""
        self.arrays["reward"] = np.concatenate(rewards).astype(np.float32)

    def __len__(self) -> int:
        """The number of windows."""
        return sum(self.lengths) - self.length + 1

    def __getitem__(self, index: int) -> dict[str, np.ndarray]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"There are {len(self):,} windows; got {index}")
        start = index % len(self)
        return {name: array[start : start + self.length] for name, array in self.arrays.items()}
