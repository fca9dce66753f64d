"""The learner: everything that training changes as one pytree, and one compiled function that improves it."""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree

from plan2explore.agent import acting, shards
from plan2explore.agent.acting import Carried, Mode
from plan2explore.agent.actor_critic import (
    MEAN_RATE,
    RANGE_DECAY,
    Stats,
    Trajectory,
    actor_loss,
    clip_through,
    critic_loss,
    draw_noise,
    imagine_trajectories,
    init_stats,
    per_behavior,
    return_scale,
    running_mean,
    update_return_range,
    value_limits,
)
from plan2explore.agent.agent import Agent, Group, Networks, Params
from plan2explore.agent.fast.linear import pad_rows
from plan2explore.agent.heads import ScalarHead
from plan2explore.agent.intrinsic.objective import Experience, Transition
from plan2explore.agent.off_policy import TwinCritic, replay_losses
from plan2explore.agent.optimizer import TrainState, apply_gradients
from plan2explore.agent.world_model import Observation, Sequences, State, known_states, model_loss
from plan2explore.config import AgentConfig, Spaces

CAUSES = ("model", "intrinsic", "reward", "critic", "actor")
"""Kinds of networks in the order in which trouble spreads."""
REWARD_EVERY = 8
"""When tasks are learned from replay their policies need no reward head, so it is trained on every eighth sequence."""
Metrics = dict[str, Float[Array, "..."]]
BatchArrays = Mapping[str, Num[Array, "batch time ..."]]
"""Sequences: `action`, `is_first`, `is_terminal` and, as the spaces say, `image`, `proprio` and `reward` (batch, time,
tasks); of a frozen world model `features` in place of observations. Step t holds the observation o_t, the action
a_(t-1) that led to it and the reward r_t that came with it."""


class LearnerState(NamedTuple):
    """All that training changes. Save it, and training resumes as if nothing had happened."""

    networks: dict[str, TrainState]
    slow_critic: Float[Array, "behaviors size"]
    """Exponential moving average of the critics' parameters; empty if it is not used."""
    stats: Stats
    update: Int[Array, ""]
    key: PRNGKeyArray

    @property
    def params(self) -> Params:
        """Parameters by kind of network."""
        return {name: state.params for name, state in self.networks.items()}


class Gradients(NamedTuple):
    """Gradients, losses and metrics of some kinds of networks."""

    grads: dict[str, Any]
    losses: dict[str, Float[Array, " rows"]]
    metrics: Metrics


def compiler_options() -> dict[str, Any] | None:
    """What XLA is told when it compiles for the default device.

    On a GPU: not to merge products that share a matrix. Each member of the ensemble is trained on 2,450 steps and
    asked about 37,500, and putting these together for one product moves more memory than the product.
    """
    return {"xla_gpu_dot_merger_threshold_mb": 0} if jax.default_backend() == "gpu" else None


class Learner:
    """Trains an agent on batches of sequences, and acts. All methods are pure functions of the state.

    They are compiled with options of their own, which JAX allows at the outermost level only: to call one inside another
    compiled function, take its `__wrapped__`.

    With several devices, each has all parameters and its part of every batch; one of them acts.
    """

    def __init__(self, config: AgentConfig, spaces: Spaces, devices: int = 1) -> None:
        self.agent = Agent(config, spaces)
        self.mesh = make_mesh(devices, config.batch) if devices > 1 else None
        whole = {} if self.mesh is None else {"out_shardings": NamedSharding(self.mesh, PartitionSpec())}
        self.init = self._compile(_init, **whole)
        """`init(key)`: the state of an untrained learner."""
        self.update = self._compile_update(_update, PartitionSpec(shards.AXIS))
        """`update(state, batch)`: the next state, and metrics. The old state's buffers are reused."""
        self.update_block = self._compile_update(_update_block, PartitionSpec(None, shards.AXIS))
        """`update_block(state, batches)`: many updates, on stacked batches, in one compiled loop. Metrics have a
        leading axis of updates and stay on the device. The old state's buffers are reused."""
        self._act = self._compile(acting.act, static_argnames="mode")

    def _compile(self, function: Callable[..., Any], **options: Any) -> Any:
        """Compiles a function of the agent. With float32, products are so too, not a GPU's shorter format."""
        precision = "highest" if self.agent.config.precision == "float32" else None

        def run(*args: Any, **kwargs: Any) -> Any:
            with jax.default_matmul_precision(precision) if precision else nullcontext():
                return function(self.agent, *args, **kwargs)

        return jax.jit(run, compiler_options=compiler_options(), **options)

    def _compile_update(self, function: Callable[..., Any], batch: PartitionSpec) -> Any:
        """Compiles an update: on several devices each has its part of the batch, split as told."""
        if self.mesh is None:
            return self._compile(function, donate_argnums=0)
        whole, mesh = PartitionSpec(), self.mesh

        def on_all(agent: Agent, state: LearnerState, batches: BatchArrays) -> tuple[LearnerState, Metrics]:
            part = partial(function, agent)
            return jax.shard_map(part, mesh=mesh, in_specs=(whole, batch), out_specs=whole, check_vma=False)(state, batches)

        placed = NamedSharding(mesh, whole), NamedSharding(mesh, batch)
        return self._compile(on_all, donate_argnums=0, in_shardings=placed, out_shardings=placed[0])

    def join_hosts(self, batches: BatchArrays) -> BatchArrays:
        """Batches for `update_block` on several hosts (`jax.distributed`), of which each has its own sequences."""
        assert self.mesh is not None
        split = NamedSharding(self.mesh, PartitionSpec(None, shards.AXIS))
        return {name: jax.make_array_from_process_local_data(split, array) for name, array in batches.items()}

    def compile_block(self, state: LearnerState, batches: PyTree) -> None:
        """Compiles `update_block` for batches of this form, so that its first call need not."""
        self.update_block.lower(state, batches).compile()

    def carry(self, environments: int) -> Carried:
        """What to give to the first call of `act`: nothing to remember."""
        sizes, dtype = self.agent.sizes, self.agent.dtype
        state = State(*(jnp.zeros((environments, size), dtype) for size in (sizes.deter, sizes.stoch)))
        return Carried(state, jnp.zeros((environments, sizes.action)))

    def act(
        self,
        state: LearnerState,
        carried: Carried,
        observation: Observation,
        is_first: Bool[Array | np.ndarray, " environments"],
        key: PRNGKeyArray,
        mode: Mode = "noise",
        task: int | None = None,
    ) -> tuple[Float[Array, "environments action"], Carried]:
        """Actions for a batch of environments, and what to carry to their next step.

        `is_first` marks environments at the start of an episode: what was carried of them is dropped. The policy is that of
        a task, or of whoever collects for the objective. Modes: a `sample` of the policy, one with exploration `noise` (to
        collect), or the policy's `mode` (to evaluate).
        """
        behavior = acting.choose_behavior(self.agent, task)
        if behavior is None:
            return acting.act_uniformly(self.agent, carried, key)
        params = {name: state.networks[name].params for name in ("model", "actor")}
        if self.mesh is not None:
            params = jax.tree.map(lambda each: each.addressable_data(0), params)
        return self._act(params, behavior, carried, observation, is_first, key, mode=mode)


def make_mesh(devices: int, batch: int) -> jax.sharding.Mesh:
    """The devices that share an update."""
    if devices > (there := len(jax.devices())):
        raise ValueError(f"An update on {devices} devices needs as many; there are {there}: use fewer (--devices).")
    if batch % devices:
        raise ValueError(f"{devices} devices cannot share a batch of {batch} sequences evenly (--devices, --agent.batch).")
    return jax.sharding.Mesh(np.array(jax.devices()[:devices]), (shards.AXIS,))


def _init(agent: Agent, key: PRNGKeyArray) -> LearnerState:
    key, network_key = jax.random.split(key)
    networks = agent.init(network_key)
    slow = networks["critic"].params if agent.config.actor_critic.slow_critic else jnp.zeros((0, 0))
    # A copy: `update` gives away the buffers of its argument, and no buffer can be given away twice.
    return LearnerState(networks, jnp.copy(slow), init_stats(len(agent.behaviors)), jnp.zeros((), jnp.int32), key)


def _update(agent: Agent, state: LearnerState, batch: BatchArrays) -> tuple[LearnerState, Metrics]:
    """One update of the whole agent. All gradients are taken at the same parameters, those before the update."""
    key, *keys = jax.random.split(state.key, 4)
    model_key, intrinsic_key, behavior_key = map(shards.own, keys)
    nets, sequences = agent.networks(state.params), open_batch(agent, batch)
    stats = observe_rewards(agent, state.stats, sequences.rewards)

    # World model: reconstruction, KL divergence, and reward heads on stopped features (equation 1).
    with jax.named_scope("world_model"):
        model, experience = model_gradients(agent, nets, sequences, model_key)

    # Exploration reward: the objective's predictor, an ensemble of one-step models for Plan2Explore (equations 3 and 4).
    with jax.named_scope("intrinsic"):
        intrinsic = intrinsic_gradients(agent, nets, experience, intrinsic_key)

    # Imagination, then actors and critics: the explorer and every task from all states of the batch (equation 2).
    slow = agent.network("critic", state.slow_critic) if state.slow_critic.size else nets.critic
    alive = ~sequences.is_terminal
    with jax.named_scope("actor_critic"):
        if agent.from_replay:
            behavior = replay_gradients(agent, nets, slow, experience.states, sequences, stats, behavior_key)
        else:
            behavior, stats = behavior_gradients(
                agent, nets, slow, experience.states, alive, stats, state.update, behavior_key
            )

    networks, metrics = state.networks, {"update": state.update}
    with jax.named_scope("optimizer"):
        for each in (model, intrinsic, behavior):
            networks, checks = _apply(agent, networks, each, state.update)
            metrics |= shards.mean(each.metrics) | checks
        slow_critic, rate = state.slow_critic, agent.config.actor_critic.slow_critic
        if rate:
            slow_critic = slow_critic + rate * (networks["critic"].params - slow_critic)
    # As parameters do, statistics survive a batch with numbers that are not finite.
    stats = jax.tree.map(lambda new, old: jnp.where(jnp.isfinite(new), new, old), stats, state.stats)
    return LearnerState(networks, slow_critic, stats, state.update + 1, key), metrics


def open_batch(agent: Agent, batch: BatchArrays) -> Sequences:
    """The batch with time first, checked."""
    spaces = agent.spaces
    observed = [name for name in ("image", "proprio") if getattr(spaces, name) is not None]
    needed = observed if agent.config.learn_model else ["features"]
    needed += ["action", "is_first", "is_terminal"] + ["reward"] * (spaces.tasks > 0)
    missing = [name for name in needed if name not in batch]
    if missing:
        raise ValueError(f"The batch lacks {' and '.join(missing)}, which the agent's spaces {spaces} ask for.")
    taken = {name: jnp.swapaxes(batch[name], 0, 1) for name in needed}
    steps = taken["action"].shape[:2]
    rewards = taken["reward"].reshape(*steps, -1) if spaces.tasks else jnp.zeros((*steps, 0))
    if rewards.shape[-1] != spaces.tasks:
        raise ValueError(f"The batch has rewards of {rewards.shape[-1]} tasks, the agent's spaces {spaces.tasks}.")
    return Sequences(
        Observation(taken.get("image"), taken.get("proprio")),
        taken["action"].astype(agent.dtype),
        rewards.astype(jnp.float32),
        taken["is_first"],
        taken["is_terminal"],
        taken.get("features"),
    )


def observe_rewards(agent: Agent, stats: Stats, rewards: Float[Array, "time batch tasks"]) -> Stats:
    """Widens the tasks' ranges of rewards by a batch, and lets the explorer's shrink slowly."""
    explorer = jnp.full(agent.explorers, RANGE_DECAY)
    low = jnp.concatenate([stats.reward_low[: agent.explorers] * explorer, shards.minimum(rewards.min((0, 1)))])
    high = jnp.concatenate([stats.reward_high[: agent.explorers] * explorer, shards.maximum(rewards.max((0, 1)))])
    tasks = slice(agent.explorers, None)
    return stats._replace(
        reward_low=low.at[tasks].min(stats.reward_low[tasks]), reward_high=high.at[tasks].max(stats.reward_high[tasks])
    )


def model_gradients(agent: Agent, nets: Networks, batch: Sequences, key: PRNGKeyArray) -> tuple[Gradients, Experience]:
    """Gradients of the world model and the reward heads, and the batch as the model infers it."""

    def loss(trained: dict[str, Any]) -> tuple[Array, Any]:
        model = trained.get("model", nets.model)
        if agent.config.learn_model:
            total, output = model_loss(model, batch, key)
        else:
            total, output = jnp.zeros(()), known_states(model, batch)
        every = REWARD_EVERY if agent.from_replay else 1
        sampled = (each[:, ::every] for each in (output.states.features, batch.rewards, batch.is_first))
        losses = reward_losses(agent, trained["reward"], *sampled)
        return total + losses.sum(), (total, losses, output)

    trained = {"reward": nets.reward} | ({"model": nets.model} if agent.config.learn_model else {})
    grads, (total, losses, output) = jax.grad(loss, has_aux=True)(trained)
    observed = [each for name, each in output.losses.items() if name != "continue"]
    model_losses = sum(observed, jnp.zeros(batch.actions.shape[:2]))
    experience = Experience(output.states, batch.actions, output.embeddings, model_losses, batch.is_first)
    metrics = {"model/loss": total} | {f"model/{name}": each.mean() for name, each in output.losses.items()}
    metrics |= {f"{task}/reward_loss": losses[i] for i, task in enumerate(agent.tasks)}
    return Gradients(grads, {"model": total[None], "reward": losses}, metrics), lax.stop_gradient(experience)


def reward_losses(
    agent: Agent,
    heads: ScalarHead,
    features: Float[Array, "time batch features"],
    rewards: Float[Array, "time batch tasks"],
    is_first: Bool[Array, "time batch"],
) -> Float[Array, " tasks"]:
    """Each reward head's loss. Features are stopped: only the supervised oracle's first task shapes the world model.

    First steps of episodes do not count: no action led there, and the stored reward of 0 is nobody's.
    """
    counted = ~is_first

    def loss(head: ScalarHead, target: Array, features: Array) -> Array:
        return (head.loss(head.mlp(features), target) * counted).sum() / jnp.maximum(shards.mean(counted.sum()), 1)

    tasks_first, stopped = jnp.moveaxis(rewards, -1, 0), lax.stop_gradient(features)
    losses = jax.vmap(loss, (0, 0, None))(heads, tasks_first, stopped)
    if agent.objective.supervised:
        first = loss(jax.tree.map(lambda leaf: leaf[0], heads), tasks_first[0], features)
        losses = losses.at[0].set(first)
    return agent.config.model.reward_scale * losses


def intrinsic_gradients(agent: Agent, nets: Networks, experience: Experience, key: PRNGKeyArray) -> Gradients:
    """Gradients of the objective's predictor, if it has one."""
    loss = agent.objective.loss
    if loss is None or not agent.config.learn_model:
        return Gradients({}, {}, {})

    def total_loss(predictor: Any) -> tuple[Array, Metrics]:
        return loss(predictor, experience, key, agent.config.intrinsic)

    (total, extra), grads = jax.value_and_grad(total_loss, has_aux=True)(nets.intrinsic)
    metrics = {"intrinsic/loss": total} | {f"intrinsic/{name}": value for name, value in extra.items()}
    return Gradients({"intrinsic": grads}, {"intrinsic": total[None]}, metrics)


def replay_gradients(
    agent: Agent,
    nets: Networks,
    slow_critics: TwinCritic,
    states: State,
    batch: Sequences,
    stats: Stats,
    key: PRNGKeyArray,
) -> Gradients:
    """Gradients of the tasks' actors and critics, learned from replayed steps."""

    def loss(trained: dict[str, Any]) -> tuple[Array, Any]:
        return replay_losses(
            agent.policy, trained["actor"], trained["critic"], slow_critics, lax.stop_gradient(states.features), batch,
            stats, agent.config.actor_critic, key,
        )  # fmt: skip

    grads, (losses, means) = jax.grad(loss, has_aux=True)({"actor": nets.actor, "critic": nets.critic})
    metrics = {f"{task}/{what}": mean[row] for row, task in enumerate(agent.tasks) for what, mean in means.items()}
    return Gradients(grads, {"actor": losses, "critic": losses}, metrics)


def behavior_gradients(
    agent: Agent,
    nets: Networks,
    slow_critics: ScalarHead,
    states: State,
    alive: Bool[Array, "time batch"],
    stats: Stats,
    update: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Gradients, Stats]:
    """Gradients of all actors and critics. Behaviours of a group imagine together."""
    start = lax.stop_gradient(State(*(part.reshape(-1, part.shape[-1]) for part in states)))
    made, new_stats = [], []
    for group, group_key in zip(agent.groups, jax.random.split(key, max(1, len(agent.groups))), strict=False):
        behaviors = nets.actor, nets.critic, slow_critics, stats
        actors, critics, slow, own = jax.tree.map(itemgetter(group.members), behaviors)
        theirs = nets._replace(actor=actors, critic=critics)
        trained, own = group_gradients(agent, theirs, group, slow, own, start, alive.reshape(-1), update, group_key)
        made.append(trained)
        new_stats.append(own)
    if not made:
        return Gradients({}, {}, {}), stats
    grads, losses, own_stats = (
        jax.tree.map(lambda *parts: jnp.concatenate(parts), *each)
        for each in ([one.grads for one in made], [one.losses for one in made], new_stats)
    )
    return Gradients(grads, losses, {name: value for one in made for name, value in one.metrics.items()}), own_stats


def group_gradients(
    agent: Agent,
    nets: Networks,
    group: Group,
    slow_critics: ScalarHead,
    stats: Stats,
    start: State,
    alive: Bool[Array, " starts"],
    update: Int[Array, ""],
    key: PRNGKeyArray,
) -> tuple[Gradients, Stats]:
    """Gradients of the actors and critics of one group, those in `nets`: imagination, then both losses."""
    config, names = agent.config.actor_critic, agent.behaviors[group.members]
    noise = draw_noise(key, (group.horizon, len(names), alive.size), agent.policy, nets.model.rssm.latent)
    start, noise = jax.tree.map(pad_rows, (start, noise))
    starts = State(*(jnp.broadcast_to(part, (len(names), *part.shape)) for part in start))
    rewards = partial(imagined_rewards, agent, nets, names, alive.size, update)
    trajectory, stats, action_grads = imagine_trajectories(
        nets.model, agent.policy, nets.actor, slow_critics, rewards, starts, alive, noise, stats, config, group.bootstrapped
    )
    if config.normalize_returns:
        stats = update_return_range(stats, trajectory.returns, update)

    def loss(trained: dict[str, Any]) -> tuple[Array, Any]:
        losses, values = critic_loss(trained["critic"], trajectory)
        total, about = actor_loss(
            agent.policy, trained["actor"], trajectory, noise, action_grads, values, stats, config, names.count("explorer")
        )
        return total + losses.sum(), (losses, about)

    grads, (critic_losses, about) = jax.grad(loss, has_aux=True)({"actor": nets.actor, "critic": nets.critic})
    losses = {"actor": -trajectory.returns.mean((1, 2)), "critic": critic_losses}
    return Gradients(grads, losses, describe(names, trajectory, critic_losses, about, stats, config)), stats


def imagined_rewards(
    agent: Agent, nets: Networks, names: list[str], count: int, update: Int[Array, ""], steps: Transition, stats: Stats
) -> tuple[Float[Array, "behaviors horizon starts"], Stats]:
    """Rewards of imagined steps: the intrinsic reward for the explorer, predicted rewards for the tasks.

    Also the statistics, with the running mean of the intrinsic reward over the first `count` starts: others are padding.
    """
    explorers, made = names.count("explorer"), []
    if agent.objective.reward is not None and explorers:
        config, first = agent.config.intrinsic, jax.tree.map(lambda part: part[0], steps)
        intrinsic = agent.objective.reward(nets.intrinsic, first, config)
        mean = stats.intrinsic_mean
        now = jnp.zeros_like(mean).at[0].set(shards.mean(lax.stop_gradient(jnp.abs(intrinsic[..., :count]).mean())))
        stats = stats._replace(intrinsic_mean=running_mean(mean, now, MEAN_RATE, update))
        if config.normalize:
            intrinsic = intrinsic / jnp.maximum(stats.intrinsic_mean[0], 1e-12)
        made.append((intrinsic if config.gradient == "through" else lax.stop_gradient(intrinsic))[None])
    if len(names) > explorers:
        reward = per_behavior(nets.reward, steps.after.features[explorers:])
        if agent.config.actor_critic.bound_values:
            reward = clip_through(reward, stats.reward_low[explorers:], stats.reward_high[explorers:])
        made.append(reward)
    return jnp.concatenate(made), stats


def describe(
    names: list[str], trajectory: Trajectory, critic_losses: Array, about: Metrics, stats: Stats, config: Any
) -> Metrics:
    """Metrics of each behaviour."""
    means = about | {
        "reward": trajectory.rewards.mean((1, 2)),
        "return": trajectory.returns.mean((1, 2)),
        "value": trajectory.values.mean((1, 2)),
        "value_limit": jnp.maximum(*map(jnp.abs, value_limits(stats, config))) * jnp.ones(len(names)),
        "return_scale": return_scale(stats, config),
        "action_size": jnp.abs(trajectory.actions).mean((1, 2, 3)),
        "critic_loss": critic_losses,
    }
    metrics = {f"{name}/{what}": mean[row] for row, name in enumerate(names) for what, mean in means.items()}
    return metrics | ({"intrinsic/mean": stats.intrinsic_mean[0]} if "explorer" in names else {})


def _apply(
    agent: Agent, networks: dict[str, TrainState], trained: Gradients, update: Int[Array, ""]
) -> tuple[dict[str, TrainState], Metrics]:
    """Applies gradients. Metrics: their norms, and whether all was finite."""
    metrics = {}
    for name, grads in trained.grads.items():
        flat, losses = shards.mean((agent.layouts[name].flatten(grads), trained.losses[name]))
        networks_of, norms, finite = apply_gradients(networks[name], flat, losses, update, agent.adam(name))
        networks = networks | {name: networks_of}
        for row, label in enumerate(agent.labels(name)):
            metrics[f"{label}/gradient"] = norms[row]
            metrics[f"{label}/finite"] = finite[row].astype(jnp.float32)
    return networks, metrics


def _update_block(agent: Agent, state: LearnerState, batches: BatchArrays) -> tuple[LearnerState, Metrics]:
    names: list[str] = []

    def step(state: LearnerState, batch: BatchArrays) -> tuple[LearnerState, Float[Array, " metrics"]]:
        state, metrics = _update(agent, state, batch)
        names[:] = metrics
        # One vector instead of dozens of numbers, each of which would be written to its own place every time.
        return state, jnp.stack([metrics[name].astype(jnp.float32) for name in names])

    state, values = lax.scan(step, state, batches)
    return state, {name: values[:, i] for i, name in enumerate(names)}


class NotFiniteError(FloatingPointError):
    """A loss or a gradient became infinite or undefined."""


def check_finite(metrics: Mapping[str, Any]) -> set[str]:
    """The tasks whose losses or gradients were not finite: each one's networks stay as they were, the rest learns on.

    Where the world model, the objective or the explorer are concerned it is a `NotFiniteError` that names the first.
    """
    metrics = jax.device_get(dict(metrics))
    flags = {name: np.atleast_1d(flag) for name, flag in metrics.items() if name.endswith("/finite")}
    faults = {name.removesuffix("/finite"): int(np.argmin(flag)) for name, flag in flags.items() if not np.all(flag)}
    fatal = {name: index for name, index in faults.items() if not name.startswith("task ")}
    if not fatal:
        return {name.split("/")[0] for name in faults}
    earliest = min(fatal.values())
    guilty = [name for name, index in fatal.items() if index == earliest]
    first, *others = sorted(guilty, key=lambda name: CAUSES.index(name.split("/")[-1]))
    also = f" (and then of {', '.join(others)})" if others else ""
    raise NotFiniteError(
        f"The loss or the gradient of {first!r}{also} was not finite at update "
        f"{int(np.atleast_1d(metrics['update'])[earliest])}. Its parameters were kept as they were before. "
        "Start again with a smaller learning rate, or with precision=float32."
    )
