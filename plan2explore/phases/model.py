"""A run's world model as an object: infer states, imagine, decode, and ask for disagreement and rewards."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from ..agent.agent import Agent, Params
from ..agent.intrinsic import plan2explore
from ..agent.intrinsic.ensemble import ensemble_disagreement, one_step_inputs
from ..agent.intrinsic.objective import Transition
from ..agent.learner import Learner
from ..agent.world_model import Observation, State
from ..config import Spaces
from ..runs.checkpoint import Checkpoints, unpack_params
from ..runs.folder import RunError, RunFolder
from .collect import as_batch

KINDS = ("model", "intrinsic", "reward")


class Model(eqx.Module):
    """What an agent has learned of its world, to plan with or to look into. It never changes.

    A state is a pair of arrays, `deter` and `stoch`, with any leading axes. Actions are vectors as in episodes: numbers
    in [-1, 1], or one-hot. Results are JAX arrays. Everything but `observe` may be called inside `jax.jit`.
    """

    _params: Params
    _agent: Agent = eqx.field(static=True)
    tasks: tuple[str, ...] = eqx.field(static=True)
    """Names of the tasks whose rewards it predicts."""

    def __init__(self, agent: Agent, params: Params, tasks: Sequence[str]) -> None:
        self._agent, self._params, self.tasks = agent, params, tuple(tasks)

    @property
    def spaces(self) -> Spaces:
        """What the agent observes and does."""
        return self._agent.spaces

    def initial(self, *batch: int) -> State:
        """The state before an episode, with these leading axes."""
        sizes, dtype = self._agent.sizes, self._agent.dtype
        return State(*(jnp.zeros((*batch, size), dtype) for size in (sizes.deter, sizes.stoch)))

    def observe(self, obs: Any, action: Any = None, state: State | None = None, key: PRNGKeyArray | None = None) -> State:
        """The state once an observation is there.

        Args:
            obs: What the agent observes, one or a batch: see `Policy.act`.
            action: The action that led there, (action,) or (batch, action); none at the start of an episode.
            state: The state before that action; none at the start of an episode.
            key: Samples the state; by default it is the likeliest one.
        """
        if (action is None) != (state is None):
            raise ValueError("Give both the action that led to an observation and the state before it, or neither.")
        obs, single = as_batch(self.spaces, obs)
        count = len(jax.tree.leaves(obs)[0])
        before = self.initial(count) if state is None else jax.tree.map(lambda part: part[None] if single else part, state)
        taken = jnp.zeros((count, self.spaces.action)) if action is None else jnp.asarray(action).reshape(count, -1)
        after = self._infer(obs, taken, before, key)
        return jax.tree.map(lambda part: part[0], after) if single else after

    @jax.jit
    def _infer(self, obs: Observation, action: Array, before: State, key: PRNGKeyArray | None) -> State:
        model = self._network("model")
        noise = None if key is None else model.rssm.latent.noise(key, len(action))
        return model.rssm.infer(before, action.astype(self._agent.dtype), model.encode(obs), noise)[0]

    @jax.jit
    def imagine(self, state: State, actions: Any, key: PRNGKeyArray | None = None) -> State:
        """The states to which actions, (time, *batch, action), lead one after the other, without observations.

        A `state` with fewer leading axes than one step of the actions is where all of them start. A key samples states;
        by default each is the likeliest one.
        """
        model, actions = self._network("model"), jnp.asarray(actions).astype(self._agent.dtype)
        noise = None if key is None else model.rssm.latent.noise(key, *actions.shape[:-1])

        def step(before: State, now: tuple[Array, Array | None]) -> tuple[State, State]:
            after = model.rssm.imagine(before, *now)
            return after, after

        start = State(*(jnp.broadcast_to(part, (*actions.shape[1:-1], part.shape[-1])) for part in state))
        return lax.scan(step, start, (actions, noise))[1]

    @jax.jit
    def decode(self, state: State) -> dict[str, Array]:
        """The observations expected in states: `image`, uint8, and `proprio`, as far as the agent observes them."""
        found = self._network("model").decode(state.features)
        pixels = None if found.image is None else jnp.clip(jnp.round((found.image + 0.5) * 255), 0, 255).astype(jnp.uint8)
        return {name: part for name, part in (("image", pixels), ("proprio", found.proprio)) if part is not None}

    @jax.jit
    def disagreement(self, state: State, action: Any) -> Float[Array, "*batch"]:
        """How far the ensemble's predictions of the next step are apart: their variance (equation 4), without a scale."""
        config = self._agent.config.intrinsic
        if self._agent.objective.reward is not plan2explore.reward:
            raise ValueError(f"A model of the method {config.objective!r} has no ensemble that could disagree.")
        action = jnp.asarray(action).astype(self._agent.dtype)
        after = self._network("model").rssm.imagine(state, action, None)
        inputs = one_step_inputs(Transition(state, action, after), config)
        return ensemble_disagreement(self._network("intrinsic"), inputs).astype(jnp.float32)

    @partial(jax.jit, static_argnames="task")
    def reward(self, state: State, task: str) -> Float[Array, "*batch"]:
        """The predicted reward of a task in states, for the action that led to each."""
        if task not in self.tasks:
            known = ", ".join(self.tasks) or "none"
            raise ValueError(f"The model predicts no reward of {task!r}; its tasks: {known}.")
        row = self.tasks.index(task)
        return jax.tree.map(lambda leaf: leaf[row], self._network("reward"))(state.features).astype(jnp.float32)

    @jax.jit
    def continues(self, state: State) -> Float[Array, "*batch"]:
        """The probability that the episode continues beyond a state: 1 in worlds that never terminate."""
        head = self._network("model").continue_head
        return jnp.ones(state.deter.shape[:-1]) if head is None else head(state.features).astype(jnp.float32)

    def _network(self, kind: str) -> Any:
        return self._agent.network(kind, self._params[kind])

    def __hash__(self) -> int:
        return id(self)  # so that `jax.jit(model.imagine)` can tell it apart

    def __eq__(self, other: object) -> bool:
        return self is other

    def __repr__(self) -> str:
        return f"Model({self.spaces}, tasks={self.tasks})"


def read_params(learner: Learner, folder: RunFolder, steps: int, kinds: Sequence[str]) -> Params:
    """Some kinds of networks of a run's snapshot, if they have the sizes that the settings ask for."""
    found = unpack_params(Checkpoints(folder.snapshots, keep=None).load(steps)[0])
    expected = jax.eval_shape(learner.init, jax.random.key(0)).networks
    for name in kinds:
        if name not in found or found[name].shape != expected[name].params.shape:
            raise RunError(f"The snapshot of {folder.path} does not fit its own settings: {name} has other sizes.")
    return {name: jnp.asarray(found[name]) for name in kinds}
