"""The learner: everything the agent knows as one pytree, and one compiled function that improves it."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree

from plan2explore.agent.behavior import Actor, Dream, Scalar, actor_loss, critic_loss, draw_noise, dream, per_row
from plan2explore.agent.distributions import tanh_normal_mode, tanh_normal_sample
from plan2explore.agent.experience import Experience, Sizes, Transition
from plan2explore.agent.novelty import find_objective
from plan2explore.agent.parts import Layout, Part, init_part, make_optimiser, train_part
from plan2explore.agent.world_model import Observation, State, WorldModel, infer_states, model_loss, squared_miss
from plan2explore.config import AgentConfig, Spaces

Batch = Mapping[str, Num[Array, "batch time ..."]]
"""Sequences: `action` and, as the spaces say, `image`, `proprio` and `reward`. Step t holds o_t, a_(t-1) and r_t."""
Metrics = dict[str, Float[Array, "..."]]
Sampler = Callable[[PRNGKeyArray, Any], Batch]
Mode = Literal["sample", "noise", "mode"]


class LearnerState(NamedTuple):
    """All that training changes. Save it and training goes on as if nothing had happened."""

    parts: dict[str, Part]
    update: Int[Array, ""]
    key: PRNGKeyArray


class Carried(NamedTuple):
    """What a policy carries from one step of its environments to the next."""

    state: State
    action: Float[Array, "environments action"]


class NotFiniteError(FloatingPointError):
    """A loss or a gradient became infinite or undefined."""


class Learner:
    """Trains the parts of the agent from batches of sequences, and acts.

    Its methods are pure functions of a `LearnerState`; the object itself only holds what never changes: the
    configuration, the sizes, and where each network's parameters lie.
    """

    def __init__(self, config: AgentConfig, spaces: Spaces) -> None:
        self.config, self.spaces = config, spaces
        self.objective = find_objective(config.novelty.objective)
        self._check()
        self.behaviors = ["explorer"] * (self.objective.reward is not None) + [f"task {i}" for i in range(spaces.tasks)]
        self.dtype = jnp.dtype(config.precision)
        self.layouts = self._lay_out()
        behavior, model = config.behavior, config.model
        rates = {
            "model": model.learning_rate,
            "novelty": config.novelty.learning_rate,
            "reward": model.learning_rate,
            "actor": behavior.actor_learning_rate,
            "critic": behavior.critic_learning_rate,
        }
        self.optimisers = {name: make_optimiser(rate, config.clip, config.epsilon) for name, rate in rates.items()}
        self.init = jax.jit(self._init)
        self.update = jax.jit(self._update, donate_argnums=0)
        self._block = jax.jit(self._scan_updates, static_argnames=("sample", "count"), donate_argnums=0)
        self._act = jax.jit(self._step_policy, static_argnames=("mode",))

    # --- Making a learner ---

    def _check(self) -> None:
        novelty = self.config.novelty
        if self.objective.reward is not None and not self.objective.bootstrapped and novelty.gradient == "stopped":
            raise ValueError(
                f"The objective {novelty.objective!r} has no critic behind it, so with novelty.gradient=stopped its actor "
                "would never learn: set novelty.gradient=through."
            )
        if self.objective.collector == "task" and self.spaces.tasks < 1:
            raise ValueError(f"The objective {novelty.objective!r} follows a task: give Spaces at least one task.")

    def _lay_out(self) -> dict[str, Layout[Any]]:
        """How each kind of network is built and where its parameters lie."""
        config, spaces = self.config, self.spaces
        model, behavior = config.model, config.behavior
        features = model.deter + model.stoch
        layout = Layout(lambda key: WorldModel(model, spaces, key))
        self.sizes = Sizes(model.deter, model.stoch, layout.rest.embedding, spaces.action)
        return {
            "model": layout,
            "novelty": Layout(lambda key: self.objective.init(config.novelty, self.sizes, key)),
            "reward": Layout(lambda key: Scalar(features, model.reward_width, model.reward_depth, key)),
            "actor": Layout(lambda key: Actor(features, spaces.action, behavior, key)),
            "critic": Layout(lambda key: Scalar(features, behavior.critic_width, behavior.critic_depth, key)),
        }

    def _init(self, key: PRNGKeyArray) -> LearnerState:
        """A learner that knows nothing."""
        key, *keys = jax.random.split(key, 1 + len(self.layouts))
        rows = {"model": 1, "novelty": 1, "reward": self.spaces.tasks}
        parts = {
            name: init_part(layout.init(one, rows.get(name, len(self.behaviors))), self.optimisers[name])
            for (name, layout), one in zip(self.layouts.items(), keys, strict=True)
        }
        return LearnerState(parts, jnp.zeros((), jnp.int32), key)

    def read(self, name: str, rows: Float[Array, "rows size"]) -> Any:
        """The networks of a part in the precision of computation: stacked, except where there is only ever one."""
        layout = self.layouts[name]
        if name in ("model", "novelty"):
            return layout.read(rows[0].astype(self.dtype))
        return jax.vmap(layout.read)(rows.astype(self.dtype))

    # --- One update ---

    def _update(self, state: LearnerState, batch: Batch) -> tuple[LearnerState, Metrics]:
        """Trains every part once on a batch. All gradients are taken at the same parameters."""
        observation, actions, rewards = self._open(batch)
        key, model_key, novelty_key, behavior_key = jax.random.split(state.key, 4)
        rows = {name: part.rows for name, part in state.parts.items()}
        with jax.named_scope("world_model"):
            gradients, losses, experience, metrics = self._learn_model(rows, observation, actions, rewards, model_key)
        if self.objective.loss is not None and self.config.learn_model:
            with jax.named_scope("novelty"):
                learned = self._learn_novelty(rows["novelty"], experience, novelty_key)
            _merge((gradients, losses, metrics), learned)
        if self.behaviors:
            with jax.named_scope("behavior"):
                learned = self._learn_behaviors(rows, experience.states, behavior_key)
            _merge((gradients, losses, metrics), learned)
        with jax.named_scope("optimisers"):
            parts, checks = self._train_parts(state.parts, gradients, losses)
        metrics |= checks | {"update": state.update}
        return LearnerState(parts, state.update + 1, key), metrics

    def _open(self, batch: Batch) -> tuple[Observation, Float[Array, "time batch action"], Float[Array, "time batch tasks"]]:
        """The batch, time-major, as the networks take it."""

        def take(name: str) -> Array | None:
            return jnp.swapaxes(batch[name], 0, 1) if getattr(self.spaces, name) is not None else None

        image, proprio = take("image"), take("proprio")
        actions = jnp.swapaxes(batch["action"], 0, 1).astype(self.dtype)
        rewards = jnp.zeros((*actions.shape[:2], 0))
        if self.spaces.tasks:
            rewards = jnp.swapaxes(batch["reward"], 0, 1).reshape(*actions.shape[:2], -1).astype(jnp.float32)
        if rewards.shape[-1] != self.spaces.tasks:
            raise ValueError(
                f"The batch has rewards of {rewards.shape[-1]} tasks, but the learner was made for {self.spaces.tasks}."
            )
        return Observation(image, proprio), actions, rewards

    def _learn_model(
        self,
        rows: dict[str, Array],
        observation: Observation,
        actions: Float[Array, "time batch action"],
        rewards: Float[Array, "time batch tasks"],
        key: PRNGKeyArray,
    ) -> tuple[dict[str, Array], dict[str, Array], Experience, Metrics]:
        """Gradients of the world model and the reward heads, and the batch as the model sees it."""
        config = self.config

        def loss(trained: dict[str, Array]) -> tuple[Array, Any]:
            model = self.read("model", trained.get("model", rows["model"]))
            if config.learn_model:
                total, seen = model_loss(model, observation, actions, key)
            else:
                total, seen = jnp.zeros(()), infer_states(model, observation, actions, key)
            features = seen.observed.states.features
            # Heads learn from what the model knows; only the supervised oracle's may change it.
            features = features if self.objective.supervised else lax.stop_gradient(features)
            heads = self.read("reward", trained["reward"])
            guesses = jax.vmap(lambda head: head(features), out_axes=-1)(heads)
            missed = config.model.reward_scale * squared_miss(guesses[..., None], rewards[..., None]).mean((0, 1))
            return total + missed.sum(), (total, missed, seen)

        names = ("model", "reward") if config.learn_model else ("reward",)
        gradients, (total, missed, seen) = jax.grad(loss, has_aux=True)({n: rows[n] for n in names})
        losses = {"model": total[None], "reward": missed}
        surprise = sum(seen.costs.values(), jnp.zeros(actions.shape[:2]))
        experience = lax.stop_gradient(Experience(seen.observed.states, actions, seen.embeddings, surprise))
        metrics = {"model/loss": total} | {f"model/{name}": cost.mean() for name, cost in seen.costs.items()}
        metrics |= {f"task {i}/reward_loss": missed[i] for i in range(self.spaces.tasks)}
        return gradients, losses, experience, metrics

    def _learn_novelty(
        self, rows: Float[Array, "1 size"], experience: Experience, key: PRNGKeyArray
    ) -> tuple[dict[str, Array], dict[str, Array], Metrics]:
        """Gradient of the objective's own predictor."""
        assert self.objective.loss is not None

        def loss(rows: Float[Array, "1 size"]) -> tuple[Array, Metrics]:
            return self.objective.loss(self.read("novelty", rows), experience, key, self.config.novelty)

        (total, extra), gradient = jax.value_and_grad(loss, has_aux=True)(rows)
        metrics = {"novelty/loss": total} | {f"novelty/{name}": value for name, value in extra.items()}
        return {"novelty": gradient}, {"novelty": total[None]}, metrics

    def _learn_behaviors(
        self, rows: dict[str, Array], states: State, key: PRNGKeyArray
    ) -> tuple[dict[str, Array], dict[str, Array], Metrics]:
        """Gradients of all actors and critics. Behaviours with the same horizon imagine side by side."""
        objective, horizon = self.objective, self.config.behavior.horizon
        alone = objective.reward is not None and (objective.horizon not in (None, horizon) or not objective.bootstrapped)
        cuts = [0, 1, len(self.behaviors)] if alone else [0, len(self.behaviors)]
        groups = [slice(*pair) for pair in zip(cuts, cuts[1:], strict=False) if pair[0] < pair[1]]
        start = State(*(part.reshape(-1, part.shape[-1]) for part in states))
        learned = []
        for group, group_key in zip(groups, jax.random.split(key, len(groups)), strict=True):
            solitary = alone and group.start == 0
            steps = (objective.horizon or horizon) if solitary else horizon
            learned.append(self._learn_group(rows, group, start, steps, objective.bootstrapped or not solitary, group_key))
        gradients, losses, metrics = zip(*learned, strict=True)
        join = partial(jax.tree.map, lambda *parts: jnp.concatenate(parts))
        return join(*gradients), join(*losses), {name: value for each in metrics for name, value in each.items()}

    def _learn_group(
        self, rows: dict[str, Array], group: slice, start: State, horizon: int, bootstrapped: bool, key: PRNGKeyArray
    ) -> tuple[dict[str, Array], dict[str, Array], Metrics]:
        """Gradients of the actors and critics of behaviours that imagine together."""
        names = self.behaviors[group]
        actors, critics = self.read("actor", rows["actor"][group]), self.read("critic", rows["critic"][group])
        starts = State(*(jnp.broadcast_to(part, (len(names), *part.shape)) for part in start))
        noise = draw_noise(key, horizon, *starts.stoch.shape[:2], self.spaces.action, self.sizes.stoch)
        rssm = self.read("model", rows["model"]).rssm
        rewards = partial(self._rewards, rows, names)
        dreamt, gradient = dream(rssm, actors, critics, rewards, starts, noise, self.config.behavior, bootstrapped)

        def loss(trained: dict[str, Array]) -> tuple[Array, dict[str, Array]]:
            losses = {
                "actor": actor_loss(self.read("actor", trained["actor"]), dreamt, noise, gradient),
                "critic": critic_loss(self.read("critic", trained["critic"]), dreamt),
            }
            return losses["actor"].sum() + losses["critic"].sum(), losses

        trained = {name: rows[name][group] for name in ("actor", "critic")}
        gradients, losses = jax.grad(loss, has_aux=True)(trained)
        losses["actor"] = -(dreamt.weights[:, None] * dreamt.returns.mean(-1)).mean(0)
        return gradients, losses, self._describe(names, dreamt, losses)

    def _rewards(self, rows: dict[str, Array], names: list[str], steps: Transition) -> Float[Array, "horizon rows starts"]:
        """The reward of each behaviour's imagined steps: novelty for the explorer, the heads' predictions for tasks."""
        gained = []
        explorers = int("explorer" in names)
        if explorers:
            assert self.objective.reward is not None
            first = jax.tree.map(lambda part: part[:, 0], steps)
            novelty = self.objective.reward(self.read("novelty", rows["novelty"]), first, self.config.novelty)
            gained.append((novelty if self.config.novelty.gradient == "through" else lax.stop_gradient(novelty))[:, None])
        if len(names) > explorers:
            gained.append(per_row(self.read("reward", rows["reward"]), steps.after.features[:, explorers:]))
        return jnp.concatenate(gained, 1)

    def _describe(self, names: list[str], dreamt: Dream, losses: dict[str, Array]) -> Metrics:
        """What is worth knowing about each behaviour."""
        metrics = {}
        for row, name in enumerate(names):
            metrics[f"{name}/reward"] = dreamt.rewards[:, row].mean()
            metrics[f"{name}/return"] = dreamt.returns[:, row].mean()
            metrics[f"{name}/critic_loss"] = losses["critic"][row]
            metrics[f"{name}/action_size"] = jnp.abs(dreamt.actions[:, row]).mean()
        return metrics

    def _train_parts(
        self, parts: dict[str, Part], gradients: dict[str, Array], losses: dict[str, Array]
    ) -> tuple[dict[str, Part], Metrics]:
        """One step of every part that has a gradient; the norms, and whether all was finite."""
        metrics = {}
        for name, gradient in gradients.items():
            if gradient.size == 0:
                continue
            trained, norms, finite = train_part(parts[name], gradient, losses[name], self.optimisers[name])
            parts = parts | {name: trained}
            for row, label in enumerate(self._labels(name)):
                metrics[f"{label}/gradient"] = norms[row]
                metrics[f"{label}/finite"] = finite[row].astype(jnp.float32)
        return parts, metrics

    def _labels(self, part: str) -> list[str]:
        """What the rows of a part are called in metrics and errors."""
        if part in ("actor", "critic"):
            return [f"{name}/{part}" for name in self.behaviors]
        return [f"task {i}/reward" for i in range(self.spaces.tasks)] if part == "reward" else [part]

    # --- Many updates ---

    def update_block(
        self, state: LearnerState, memory: PyTree, count: int | None = None, sample: Sampler | None = None
    ) -> tuple[LearnerState, Metrics]:
        """Many updates in one compiled loop. Metrics have a leading axis of updates and stay on the device.

        With `sample`, each of the `count` updates draws its batch as `sample(key, memory)` inside the loop: give the same
        function each time, since another one is another program to compile. Without it, `memory` is the batches
        themselves, stacked. The state's buffers are reused: do not read the old state afterwards.
        """
        return self._block(state, memory, count=count, sample=sample)

    def _scan_updates(
        self, state: LearnerState, memory: PyTree, count: int | None, sample: Sampler | None
    ) -> tuple[LearnerState, Metrics]:
        def step(state: LearnerState, batch: Batch | None) -> tuple[LearnerState, Float[Array, " metrics"]]:
            if sample is not None:
                key, sample_key = jax.random.split(state.key)
                state, batch = state._replace(key=key), sample(sample_key, memory)
            assert batch is not None
            state, metrics = self._update(state, batch)
            names[:] = metrics
            # One vector instead of dozens of numbers: each would be written to its own place at every update.
            return state, jnp.stack([metrics[name].astype(jnp.float32) for name in names])

        names: list[str] = []
        state, values = lax.scan(step, state, None if sample else memory, length=count)
        return state, {name: values[:, i] for i, name in enumerate(names)}

    # --- Acting ---

    def carry(self, environments: int) -> Carried:
        """What a policy carries before its first step."""
        deter, stoch = (jnp.zeros((environments, size), self.dtype) for size in (self.sizes.deter, self.sizes.stoch))
        return Carried(State(deter, stoch), jnp.zeros((environments, self.spaces.action)))

    def act(
        self,
        state: LearnerState,
        carried: Carried,
        observation: Observation,
        first: Bool[Array, " environments"],
        key: PRNGKeyArray,
        mode: Mode = "noise",
        task: int | None = None,
    ) -> tuple[Float[Array, "environments action"], Carried]:
        """Actions for a batch of environments, and what to carry to their next step.

        `first` marks environments at the start of an episode: what was carried of them is forgotten. The policy is that
        of a task probe, or whoever collects for the objective. Modes: a `sample` of the policy, a sample with
        exploration `noise` (collection), or the policy's `mode` (evaluation).
        """
        collector = self.objective.collector if task is None else "task"
        if collector == "uniform":
            return jax.random.uniform(key, carried.action.shape, minval=-1.0, maxval=1.0), carried
        row = 0 if collector == "explorer" else self.behaviors.index(f"task {task or 0}")
        rows = {name: state.parts[name].rows for name in ("model", "actor")}
        return self._act(rows, row, carried, observation, first, key, mode=mode)

    def _step_policy(
        self,
        rows: dict[str, Array],
        row: int,
        carried: Carried,
        observation: Observation,
        first: Bool[Array, " environments"],
        key: PRNGKeyArray,
        mode: Mode,
    ) -> tuple[Float[Array, "environments action"], Carried]:
        state_key, action_key, noise_key = jax.random.split(key, 3)
        state, action = jax.tree.map(lambda part: jnp.where(first[:, None], 0, part).astype(part.dtype), tuple(carried))
        model = self.read("model", rows["model"])
        actor = self.layouts["actor"].read(rows["actor"][row].astype(self.dtype))
        embedding = model.encode(observation)
        noise = jax.random.normal(state_key, (*first.shape, self.sizes.stoch))
        state = model.rssm.infer(state, action.astype(self.dtype), embedding, noise)
        policy = actor(state.features)
        if mode == "mode":
            action = tanh_normal_mode(policy)
        else:
            action = tanh_normal_sample(policy, jax.random.normal(action_key, action.shape))
        if mode == "noise":
            action = action + self.config.behavior.action_noise * jax.random.normal(noise_key, action.shape)
        action = jnp.clip(action, -1, 1)
        return action, Carried(state, action)


def _merge(into: tuple[dict, ...], more: tuple[dict, ...]) -> None:
    for old, new in zip(into, more, strict=True):
        old.update(new)


def check_finite(metrics: Mapping[str, Any]) -> None:
    """Raises a `NotFiniteError` that names the first part and update whose loss or gradient was not finite."""
    updates = np.atleast_1d(np.asarray(metrics["update"]))
    flags = {name: np.atleast_1d(np.asarray(values)) for name, values in metrics.items() if name.endswith("/finite")}
    faults = [(int(np.argmin(flag)), name.removesuffix("/finite")) for name, flag in flags.items() if not flag.all()]
    if not faults:
        return
    index = min(index for index, _ in faults)
    guilty = [name for at, name in faults if at == index]
    also = f" (and, after it, of {', '.join(guilty[1:])})" if guilty[1:] else ""
    raise NotFiniteError(
        f"The loss or gradient of {guilty[0]!r}{also} was not finite at update {int(updates[index])}. Its parameters were kept "
        "as they were before. Go on from the last checkpoint with a lower learning rate, or with precision=float32."
    )
