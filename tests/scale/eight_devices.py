"""On eight CPU devices: prints `same` if updates equal those of one device, then what else is asked.

`eight_devices.py FOLDER` takes the modern agent; `eight_devices.py HOST ADDRESS` the paper's, on one of two hosts that have
four of the devices each.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec
from sizes import NANO

from plan2explore.agent import latents, policies, shards
from plan2explore.agent.learner import Learner, make_mesh
from plan2explore.bench.update import Trial
from plan2explore.config import AgentConfig, Spaces

BATCH, LENGTH, PARTS, UPDATES = 8, 4, 8, 2
SPACES = Spaces(action=2, image=None, proprio=5, tasks=2, terminates=True)
PAPER = replace(NANO, batch=BATCH, length=LENGTH, intrinsic=replace(NANO.intrinsic, bootstrap=False))
MODERN = replace(
    PAPER,
    model=replace(
        NANO.model, latent="categorical", core="block_gru", classes=3, blocks=2, norm=True, symlog=True,
        reward_head="two_hot",
    ),
    intrinsic=replace(PAPER.intrinsic, normalize=True, scale=1.0),
    actor_critic=replace(
        NANO.actor_critic, actor_gradient="reinforce", critic_head="two_hot", norm=True, start_std=0.9, max_std=1.0,
        entropy=3e-4, normalize_returns=True, slow_critic=0.02,
    ),
)  # fmt: skip


def batches() -> dict[str, jax.Array]:
    """Sequences in which some parts have more first and terminal steps than others."""
    rng = np.random.default_rng(0)
    shape = UPDATES, BATCH, LENGTH
    found = {
        "proprio": rng.normal(size=(*shape, 5)).astype(np.float32),
        "action": rng.uniform(-1, 1, (*shape, 2)).astype(np.float32),
        "reward": rng.normal(size=(*shape, 2)).astype(np.float32),
        "is_first": rng.random(shape) < np.linspace(0, 0.6, BATCH)[:, None],
        "is_terminal": rng.random(shape) < 0.2,
    }
    return {name: jnp.asarray(array) for name, array in found.items()}


def same_noise(draw: Any, key: Any, *shape: int) -> jax.Array:
    """Noise that is the same in every part of the batch: drawn for one part, on one device repeated for all."""
    if shards.count() > 1:
        return draw(key, *shape)
    axis = next(index for index, size in enumerate(shape) if size in (BATCH, BATCH * LENGTH))
    times = (shape[axis] // BATCH,) if shape[axis] > BATCH else ()
    part = draw(key, *shape[:axis], *times, BATCH // PARTS, *shape[axis + 1 :])
    return jnp.concatenate([part] * PARTS, axis + len(times)).reshape(shape)


def check_agent(agent: AgentConfig, host: int | None = None) -> None:
    """One device and eight, with the same noise; `host`: of two, which have half of the sequences each."""
    one, all_of_them = (Learner(agent, SPACES, devices) for devices in (1, PARTS))
    draws = {each: partial(same_noise, getattr(latents, each)) for each in ("draw_normal", "draw_uniform")}
    alike = mock.patch.object(shards, "own", lambda key: key)
    whole = given = batches()
    if host is not None:
        mine = slice(host * BATCH // 2, (host + 1) * BATCH // 2)
        given = all_of_them.join_hosts({name: np.asarray(array[:, mine]) for name, array in whole.items()})
    with alike, mock.patch.multiple(latents, **draws), mock.patch.multiple(policies, **draws):
        shared, shared_metrics = all_of_them.update_block(all_of_them.init(jax.random.key(1)), given)
        state, metrics = one.update_block(one.init(jax.random.key(1)), whole)
    assert metrics.keys() == shared_metrics.keys()
    for metric, values in metrics.items():
        np.testing.assert_allclose(shared_metrics[metric], values, rtol=2e-4, atol=1e-5, err_msg=metric)
    plain = [each._replace(key=jax.random.key_data(each.key)) for each in (state, shared)]
    for (path, leaf), other in zip(jax.tree.leaves_with_path(plain[0]), jax.tree.leaves(plain[1]), strict=True):
        np.testing.assert_allclose(other, leaf, rtol=2e-4, atol=2e-6, err_msg=jax.tree_util.keystr(path))
    print("same")


def check_noise() -> None:
    """Every part has noise of its own."""

    def draw(key: Any) -> jax.Array:
        return jax.random.uniform(shards.own(key), (1,))

    drawn = jax.shard_map(
        draw, mesh=make_mesh(PARTS, BATCH), in_specs=PartitionSpec(), out_specs=PartitionSpec(shards.AXIS), check_vma=False
    )(jax.random.key(0))
    assert len(set(drawn.tolist())) == PARTS
    print("own noise")


def check_bench() -> None:
    """`bench update --devices 2` times an update of two."""
    print("bench", Trial(PAPER, SPACES, 1, devices=2).measure(repeats=1)[0] > 0)


def check_run(out: Path) -> None:
    """A run whose updates two devices share explores, evaluates and resumes."""
    import plan2explore as p2e
    from plan2explore.config import ExploreConfig, Schedule, WorldConfig

    schedule = Schedule(
        seed_episodes=1, updates_per_episode=10, block=5, evaluate_every=1000, evaluate_episodes=1, environments=1, devices=2
    )
    config = ExploreConfig(WorldConfig("cartpole", obs="proprio", size=8, action_repeat=100), schedule, NANO)
    run = p2e.explore("cartpole", 2000, out, probes=["cartpole_swingup"], config=config)
    run = p2e.explore(run.path, 3000)
    print("a run", len(run.folder.evaluations_file.read_text().splitlines()))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        jax.distributed.initialize(sys.argv[2], num_processes=2, process_id=int(sys.argv[1]))
        assert (len(jax.devices()), len(jax.local_devices())) == (PARTS, PARTS // 2)
        check_agent(PAPER, int(sys.argv[1]))
        sys.exit()
    assert len(jax.devices()) == PARTS
    check_agent(MODERN)
    check_noise()
    check_bench()
    check_run(Path(sys.argv[1]))
