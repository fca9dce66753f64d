"""What an agent is made of: its networks, their sizes, and how each is trained."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.intrinsic import find_objective
from plan2explore.agent.intrinsic.objective import Sizes
from plan2explore.agent.latents import make_latent
from plan2explore.agent.off_policy import TwinCritic
from plan2explore.agent.optimizer import Adam, Layout, TrainState, init_train_state
from plan2explore.agent.policies import Actor, make_policy
from plan2explore.agent.world_model import WorldModel
from plan2explore.config import AgentConfig, Spaces

Params = dict[str, Float[Array, "rows size"]]
"""Parameters by kind of network: `model`, `intrinsic`, `reward` (heads), `actor` and `critic`."""


class Networks(NamedTuple):
    """The networks in the precision of computation. Reward heads have a leading axis of tasks; actors and critics one of
    behaviours: the explorer, if the objective has one, then the tasks."""

    model: WorldModel
    intrinsic: Any
    reward: ScalarHead
    actor: Actor
    critic: Any


class Group(NamedTuple):
    """Behaviours that imagine together."""

    members: slice
    horizon: int
    bootstrapped: bool


class Agent:
    """All that never changes while an agent learns: configuration, sizes, and the layout of its networks."""

    def __init__(self, config: AgentConfig, spaces: Spaces) -> None:
        self.config, self.spaces = config, spaces
        self.dtype = jnp.dtype(config.precision)
        self.objective = find_objective(config.intrinsic.objective)
        self._check()
        self.policy = make_policy(config.actor_critic, spaces)
        self.tasks = [f"task {i}" for i in range(spaces.tasks)]
        self.explorers = int(self.objective.reward is not None)
        self.behaviors = ["explorer"] * self.explorers + self.tasks
        self.from_replay = config.actor_critic.learn_from == "replay"
        self.groups = self._group()
        self.layouts = self._lay_out()

    def _check(self) -> None:
        objective, config = self.objective, self.config
        stopped = config.actor_critic.actor_gradient == "through" and config.intrinsic.gradient == "stopped"
        if objective.reward is not None and not objective.bootstrapped and stopped:
            raise ValueError(
                f"The objective {config.intrinsic.objective!r} has no critic behind it: with intrinsic.gradient=stopped "
                "its actor would never learn: set intrinsic.gradient=through."
            )
        if objective.reward is not None and config.actor_critic.learn_from == "replay":
            raise ValueError("An explorer learns in imagination: set agent.adapt_from=replay to learn tasks from replay.")
        if objective.collector == "task" and self.spaces.tasks < 1:
            raise ValueError(f"The objective {config.intrinsic.objective!r} follows a task: give Spaces at least one.")

    def _group(self) -> list[Group]:
        """The behaviours by how they imagine: all alike, or the explorer by its objective's own rules."""
        objective, horizon, count = self.objective, self.config.actor_critic.horizon, len(self.behaviors)
        own = Group(slice(0, 1), objective.horizon or horizon, objective.bootstrapped)
        others = Group(slice(1, count), horizon, True)
        if not self.explorers or own[1:] == others[1:]:
            return [Group(slice(0, count), horizon, True)] if count else []
        return [own, others] if self.tasks else [own]

    def _lay_out(self) -> dict[str, Layout[Any]]:
        model, ac, spaces = self.config.model, self.config.actor_critic, self.spaces
        stoch = make_latent(model).size
        features, behaviors = model.deter + stoch, len(self.behaviors)
        world = Layout(lambda key: WorldModel(model, spaces, key))
        self.sizes = Sizes(model.deter, stoch, world.rest.embedding, spaces.action)

        def reward(key: PRNGKeyArray) -> ScalarHead:
            return ScalarHead(features, model.reward_width, model.reward_depth, key, model.reward_head, model.norm)

        def critic(key: PRNGKeyArray) -> ScalarHead | TwinCritic:
            if self.from_replay:
                return TwinCritic(features, spaces.action, ac, key)
            return ScalarHead(features, ac.critic_width, ac.critic_depth, key, ac.critic_head, ac.norm)

        return {
            "model": world,
            "intrinsic": Layout(lambda key: self.objective.init(self.config.intrinsic, self.sizes, key)),
            "reward": Layout(reward, len(self.tasks), stacked=True),
            "actor": Layout(lambda key: Actor(features, self.policy.outputs, ac, key), behaviors, stacked=True),
            "critic": Layout(critic, behaviors, stacked=True),
        }

    def init(self, key: PRNGKeyArray) -> dict[str, TrainState]:
        """Every network, untrained."""
        keys = jax.random.split(key, len(self.layouts))
        return {
            name: init_train_state(layout.init(one)) for (name, layout), one in zip(self.layouts.items(), keys, strict=True)
        }

    def networks(self, params: Params) -> Networks:
        """The networks of these parameters."""
        return Networks(**{name: self.network(name, params[name]) for name in self.layouts})

    def network(self, name: str, params: Float[Array, "rows size"]) -> Any:
        """The networks of one kind."""
        return self.layouts[name].unflatten(params, self.dtype)

    def labels(self, name: str) -> list[str]:
        """The rows of a kind of network by their names in metrics and errors."""
        if name in ("actor", "critic"):
            return [f"{behavior}/{name}" for behavior in self.behaviors]
        return [f"{task}/reward" for task in self.tasks] if name == "reward" else [name]

    def adam(self, name: str) -> Adam:
        """How a kind of network is trained."""
        config = self.config
        rates = {
            "model": config.model.learning_rate,
            "intrinsic": config.intrinsic.learning_rate,
            "reward": config.model.learning_rate,
            "actor": config.actor_critic.actor_learning_rate,
            "critic": config.actor_critic.critic_learning_rate,
        }
        return Adam(rates[name], config.clip, config.epsilon, config.warmup)
