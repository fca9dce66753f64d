"""How each part should change after one batch: the gradients of the world model, of novelty and of
behaviours.

Every function takes the parameters as they were before the batch, and returns the gradients and losses of the
parts that it teaches, by name, with metrics.
"""

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, Num, PRNGKeyArray

from plan2explore.agent.agent import Agent, Rows
from plan2explore.agent.behavior import Dream, actor_loss, critic_loss, draw_noise, dream, per_row, row_means
from plan2explore.agent.experience import Experience, Transition
from plan2explore.agent.products import fill_rows
from plan2explore.agent.world_model import Observation, Seen, State, infer_states, model_loss, squared_miss

Metrics = dict[str, Float[Array, "..."]]
BatchArrays = Mapping[str, Num[Array, "batch time ..."]]
"""Sequences: `action` and, as the spaces say, `image`, `proprio` and `reward` (batch, time, tasks).
Step t holds the observation o_t, the action a_(t-1) that led to it and the reward r_t that came with it."""


class Sequences(NamedTuple):
    """A batch as the networks take it: time first."""

    observation: Observation
    actions: Float[Array, "time batch action"]
    rewards: Float[Array, "time batch tasks"]


class Lesson(NamedTuple):
    """What parts should learn from a batch."""

    gradients: Rows
    losses: dict[str, Float[Array, " rows"]]
    metrics: Metrics


def open_batch(agent: Agent, batch: BatchArrays) -> Sequences:
    """The batch with time first, checked."""
    spaces = agent.spaces
    needed = [name for name in ("image", "proprio") if getattr(spaces, name) is not None]
    needed += ["action"] + ["reward"] * (spaces.tasks > 0)
    missing = [name for name in needed if name not in batch]
    if missing:
        raise ValueError(
            f"The batch lacks {' and '.join(missing)}, which the agent's spaces {spaces} ask for."
        )
    taken = {name: jnp.swapaxes(batch[name], 0, 1) for name in needed}
    steps = taken["action"].shape[:2]
    rewards = taken["reward"].reshape(*steps, -1) if spaces.tasks else jnp.zeros((*steps, 0))
    if rewards.shape[-1] != spaces.tasks:
        raise ValueError(
            f"The batch has rewards of {rewards.shape[-1]} tasks, the agent's spaces {spaces.tasks}."
        )
    observation = Observation(taken.get("image"), taken.get("proprio"))
    return Sequences(observation, taken["action"].astype(agent.dtype), rewards.astype(jnp.float32))


def learn_model(agent: Agent, rows: Rows, batch: Sequences, key: PRNGKeyArray) -> tuple[Lesson, Experience]:
    """Teaches the world model and the reward heads; also returns the batch as the model sees it."""
    learning = agent.config.learn_model

    def loss(taught: Rows) -> tuple[Array, tuple[Array, Array, Seen]]:
        model = agent.read("model", taught.get("model", rows["model"]))
        if learning:
            total, seen = model_loss(model, batch.observation, batch.actions, key)
        else:
            total, seen = jnp.zeros(()), infer_states(model, batch.observation, batch.actions, key)
        features = seen.observed.states.features
        # Heads learn from what the model knows. Only the supervised oracle's may change what it knows.
        features = features if agent.objective.supervised else lax.stop_gradient(features)
        missed = head_losses(agent, taught["reward"], features, batch.rewards)
        return total + missed.sum(), (total, missed, seen)

    names = ("model", "reward") if learning else ("reward",)
    gradients, (total, missed, seen) = jax.grad(loss, has_aux=True)({name: rows[name] for name in names})
    surprise = sum(seen.costs.values(), jnp.zeros(batch.actions.shape[:2]))
    experience = Experience(seen.observed.states, batch.actions, seen.embeddings, surprise)
    metrics = {"model/loss": total} | {f"model/{name}": cost.mean() for name, cost in seen.costs.items()}
    metrics |= {f"{task}/reward_loss": missed[i] for i, task in enumerate(agent.tasks)}
    return Lesson(gradients, {"model": total[None], "reward": missed}, metrics), lax.stop_gradient(experience)


def head_losses(
    agent: Agent,
    rows: Float[Array, "tasks size"],
    features: Float[Array, "time batch features"],
    rewards: Float[Array, "time batch tasks"],
) -> Float[Array, " tasks"]:
    """What each task's reward head misses of its rewards."""
    guesses = jax.vmap(lambda head: head(features), out_axes=-1)(agent.read("reward", rows))
    return agent.config.model.reward_scale * squared_miss(guesses[..., None], rewards[..., None]).mean((0, 1))


def learn_novelty(agent: Agent, rows: Rows, experience: Experience, key: PRNGKeyArray) -> Lesson:
    """Teaches the objective's predictor, if it has one."""
    teach = agent.objective.loss
    if teach is None or not agent.config.learn_model:
        return Lesson({}, {}, {})

    def loss(row: Float[Array, "1 size"]) -> tuple[Array, Metrics]:
        return teach(agent.read("novelty", row), experience, key, agent.config.novelty)

    (total, extra), gradient = jax.value_and_grad(loss, has_aux=True)(rows["novelty"])
    metrics = {"novelty/loss": total} | {f"novelty/{name}": value for name, value in extra.items()}
    return Lesson({"novelty": gradient}, {"novelty": total[None]}, metrics)


def learn_behaviors(agent: Agent, rows: Rows, states: State, key: PRNGKeyArray) -> Lesson:
    """Teaches all actors and critics in imagination. Those with the same horizon imagine together."""
    objective, horizon = agent.objective, agent.config.behavior.horizon
    start = lax.stop_gradient(State(*(part.reshape(-1, part.shape[-1]) for part in states)))
    alone = agent.explorers and (objective.horizon not in (None, horizon) or not objective.bootstrapped)
    ends = [0, *[1] * alone, len(agent.behaviors)]
    lessons = []
    for group, group_key in zip(pairwise(ends), jax.random.split(key, len(ends) - 1), strict=True):
        by_rules = alone and group[0] == 0
        steps = objective.horizon or horizon if by_rules else horizon
        bootstrapped = objective.bootstrapped or not by_rules
        if group[0] < group[1]:
            lessons.append(learn_group(agent, rows, slice(*group), start, steps, bootstrapped, group_key))
    if not lessons:
        return Lesson({}, {}, {})
    metrics = {name: value for lesson in lessons for name, value in lesson.metrics.items()}
    join = partial(jax.tree.map, lambda *parts: jnp.concatenate(parts))
    return Lesson(
        join(*(each.gradients for each in lessons)), join(*(each.losses for each in lessons)), metrics
    )


def learn_group(
    agent: Agent, rows: Rows, group: slice, start: State, horizon: int, bootstrapped: bool, key: PRNGKeyArray
) -> Lesson:
    """Teaches the actors and critics of behaviours that imagine together."""
    names = agent.behaviors[group]
    taught = {name: rows[name][group] for name in ("actor", "critic")}
    count = start.deter.shape[0]
    noise = draw_noise(key, (horizon, len(names), count), agent.spaces.action, agent.sizes.stoch)
    start, noise = jax.tree.map(fill_rows, (start, noise))
    starts = State(*(jnp.broadcast_to(part, (len(names), *part.shape)) for part in start))
    dreamt, gradient = dream(
        agent.read("model", rows["model"]).rssm,
        agent.read("actor", taught["actor"]),
        agent.read("critic", taught["critic"]),
        rewards=partial(imagined_rewards, agent, rows, names),
        start=starts,
        noise=noise,
        config=agent.config.behavior,
        bootstrapped=bootstrapped,
        count=count,
    )

    def loss(taught: Rows) -> tuple[Array, Array]:
        missed = critic_loss(agent.read("critic", taught["critic"]), dreamt)
        return actor_loss(
            agent.read("actor", taught["actor"]), dreamt, noise, gradient
        ) + missed.sum(), missed

    gradients, missed = jax.grad(loss, has_aux=True)(taught)
    losses = {"actor": -row_means(dreamt, dreamt.returns), "critic": missed}
    return Lesson(gradients, losses, describe(names, dreamt, missed))


def imagined_rewards(
    agent: Agent, rows: Rows, names: list[str], steps: Transition
) -> Float[Array, "rows horizon starts"]:
    """What imagined steps are worth: novelty to the explorer, what the reward heads guess to the tasks."""
    explorers, gained = names.count("explorer"), []
    if agent.objective.reward is not None and explorers:
        predictor, first = agent.read("novelty", rows["novelty"]), jax.tree.map(lambda part: part[0], steps)
        novelty = agent.objective.reward(predictor, first, agent.config.novelty)
        through = agent.config.novelty.gradient == "through"
        gained.append((novelty if through else lax.stop_gradient(novelty))[None])
    if len(names) > explorers:
        gained.append(per_row(agent.read("reward", rows["reward"]), steps.after.features[explorers:]))
    return jnp.concatenate(gained)


def describe(names: list[str], dreamt: Dream, missed: Float[Array, " rows"]) -> Metrics:
    """What is worth knowing about each behaviour."""
    means = {
        "reward": dreamt.rewards.mean((1, 2)),
        "return": dreamt.returns.mean((1, 2)),
        "action_size": jnp.abs(dreamt.actions).mean((1, 2, 3)),
        "critic_loss": missed,
    }
    return {f"{name}/{what}": mean[row] for row, name in enumerate(names) for what, mean in means.items()}
