"""What an agent is made of: its networks, their sizes, and where the parameters of each lie."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.behavior import Actor, Scalar
from plan2explore.agent.experience import Sizes
from plan2explore.agent.novelty import find_objective
from plan2explore.agent.parts import Adam, Layout, Part, init_part
from plan2explore.agent.world_model import WorldModel
from plan2explore.config import AgentConfig, Spaces

Rows = dict[str, Float[Array, "rows size"]]
"""Parameters of every part: `model`, `novelty`, `reward` (heads), `actor` and `critic`."""


class Agent:
    """All that never changes while an agent learns: configuration, sizes, and the layout of its parts.

    The rows of `actor` and `critic` are the behaviours: the explorer, if the objective has one, then the
    tasks.
    """

    def __init__(self, config: AgentConfig, spaces: Spaces) -> None:
        self.config, self.spaces = config, spaces
        self.dtype = jnp.dtype(config.precision)
        self.objective = find_objective(config.novelty.objective)
        self._check()
        self.tasks = [f"task {i}" for i in range(spaces.tasks)]
        self.explorers = int(self.objective.reward is not None)
        self.behaviors = ["explorer"] * self.explorers + self.tasks
        self.layouts = self._lay_out()

    def _check(self) -> None:
        objective, novelty = self.objective, self.config.novelty
        if objective.reward is not None and not objective.bootstrapped and novelty.gradient == "stopped":
            raise ValueError(
                f"The objective {novelty.objective!r} has no critic behind it: with novelty.gradient=stopped "
                "its actor would never learn: set novelty.gradient=through."
            )
        if objective.collector == "task" and self.spaces.tasks < 1:
            raise ValueError(f"The objective {novelty.objective!r} follows a task: give Spaces at least one.")

    def _lay_out(self) -> dict[str, Layout[Any]]:
        model, behavior, spaces = self.config.model, self.config.behavior, self.spaces
        features = model.deter + model.stoch
        world = Layout(lambda key: WorldModel(model, spaces, key))
        self.sizes = Sizes(model.deter, model.stoch, world.rest.embedding, spaces.action)
        return {
            "model": world,
            "novelty": Layout(lambda key: self.objective.init(self.config.novelty, self.sizes, key)),
            "reward": Layout(lambda key: Scalar(features, model.reward_width, model.reward_depth, key)),
            "actor": Layout(lambda key: Actor(features, spaces.action, behavior, key)),
            "critic": Layout(lambda key: Scalar(features, behavior.critic_width, behavior.critic_depth, key)),
        }

    def init(self, key: PRNGKeyArray) -> dict[str, Part]:
        """Every part, untrained."""
        keys = jax.random.split(key, len(self.layouts))
        return {
            name: init_part(layout.init(one, len(self.labels(name))))
            for (name, layout), one in zip(self.layouts.items(), keys, strict=True)
        }

    def read(self, name: str, rows: Float[Array, "rows size"]) -> Any:
        """The networks of a part in the precision of computation, stacked where there may be several."""
        layout = self.layouts[name]
        if name in ("model", "novelty"):
            return layout.read(rows[0].astype(self.dtype))
        return jax.vmap(layout.read)(rows.astype(self.dtype))

    def labels(self, part: str) -> list[str]:
        """What the rows of a part are called in metrics and errors."""
        if part in ("actor", "critic"):
            return [f"{name}/{part}" for name in self.behaviors]
        return [f"{task}/reward" for task in self.tasks] if part == "reward" else [part]

    def adam(self, part: str) -> Adam:
        """How a part is trained."""
        config = self.config
        rates = {
            "model": config.model.learning_rate,
            "novelty": config.novelty.learning_rate,
            "reward": config.model.learning_rate,
            "actor": config.behavior.actor_learning_rate,
            "critic": config.behavior.critic_learning_rate,
        }
        return Adam(rates[part], config.clip, config.epsilon)
