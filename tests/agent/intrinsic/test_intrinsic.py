"""The table of objectives: what each gives, and that anyone can add one."""

from dataclasses import replace
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from plan2explore.agent.intrinsic import OBJECTIVES, Experience, Nothing, Objective, Sizes, find_objective, register
from plan2explore.agent.intrinsic import max as max_objective
from plan2explore.agent.intrinsic.ensemble import disagreement, one_step_inputs
from plan2explore.agent.intrinsic.max import jensen_renyi
from plan2explore.agent.learner import Learner
from plan2explore.agent.world_model import State
from plan2explore.config import IntrinsicConfig

SIZES = Sizes(deter=4, stoch=3, embedding=5, action=2)
CONFIG = IntrinsicConfig(members=3, width=8)
TIME, BATCH = 4, 6


@pytest.fixture(scope="module")
def experience():
    rng = np.random.default_rng(0)

    def draw(*size):
        return jnp.asarray(rng.normal(size=(TIME, BATCH, *size)), jnp.float32)

    return Experience(State(draw(4), draw(3)), draw(2), draw(5), jnp.abs(draw()) * 1000, jnp.zeros((TIME, BATCH), bool))


def test_the_papers_methods_are_there():
    assert list(OBJECTIVES)[:6] == ["plan2explore", "retrospective", "max", "curiosity", "random", "dreamer"]


def test_disagreement_is_scaled_by_ten_thousand(experience):
    objective, steps = find_objective("plan2explore"), experience.transitions()
    ensemble = objective.init(CONFIG, SIZES, jax.random.key(0))
    expected = 10_000 * disagreement(ensemble(one_step_inputs(steps, CONFIG)))
    np.testing.assert_allclose(objective.reward(ensemble, steps, CONFIG), expected, rtol=1e-5)


def test_retrospection_is_one_step_of_the_same_disagreement():
    ahead, back = find_objective("plan2explore"), find_objective("retrospective")
    assert (back.reward, back.loss) == (ahead.reward, ahead.loss)
    assert (back.horizon, back.bootstrapped) == (1, False)
    assert (ahead.horizon, ahead.bootstrapped) == (None, True)


@pytest.mark.parametrize("variance", ["trained", "untrained"])
def test_the_variances_of_max_are_trained_unless_the_released_codes_variant_is_asked_for(experience, variance):
    config, objective = replace(CONFIG, max_variance=variance), find_objective("max")
    ensemble = objective.init(config, SIZES, jax.random.key(0))

    def loss(ensemble):
        return objective.loss(ensemble, experience, jax.random.key(1), config)[0]

    last = eqx.filter_jit(eqx.filter_grad(loss))(ensemble).members.layers[-1]
    of_means, of_variances = jnp.split(last.weight, 2, -1)
    assert jnp.any(of_means != 0)
    assert bool(jnp.any(of_variances != 0)) == (variance == "trained")


def test_max_rewards_the_divergence_of_its_members(experience):
    objective, steps = find_objective("max"), experience.transitions()
    ensemble = objective.init(CONFIG, SIZES, jax.random.key(0))
    mean, log_variance = max_objective.predict(ensemble, steps, CONFIG)
    low, high = CONFIG.max_log_variance
    assert low < log_variance.min() and log_variance.max() < high
    for reduce in ("mean", "sum"):
        reward = objective.reward(ensemble, steps, replace(CONFIG, max_reduce=reduce))
        np.testing.assert_allclose(reward, jensen_renyi(mean, jnp.exp(log_variance), reduce), rtol=1e-5)


def test_the_log_variance_stays_between_its_bounds(experience):
    steps = experience.transitions()
    steps = steps._replace(after=State(1e4 * steps.after.deter, steps.after.stoch))
    ensemble = max_objective.init(CONFIG, SIZES, jax.random.key(0))
    _, log_variance = max_objective.predict(ensemble, steps, CONFIG)
    low, high = CONFIG.max_log_variance
    assert low <= log_variance.min() < low + 0.1 and high - 0.1 < log_variance.max() <= high + 1e-3


def test_curiosity_predicts_the_models_loss(experience):
    objective = find_objective("curiosity")
    head = objective.init(CONFIG, SIZES, jax.random.key(0))
    loss, metrics = objective.loss(head, experience, jax.random.key(1), CONFIG)
    model_loss = 1e-3 * experience.model_loss[1:]
    predicted = objective.reward(head, experience.transitions(), CONFIG)
    np.testing.assert_allclose(loss, 0.5 * np.square(predicted - model_loss).mean(), rtol=1e-5)
    np.testing.assert_allclose(metrics["model_loss"], model_loss.mean(), rtol=1e-5)


def test_only_the_oracle_reads_a_reward():
    assert [name for name, each in OBJECTIVES.items() if each.supervised] == ["dreamer"]
    collectors = {name: each.collector for name, each in OBJECTIVES.items() if each.collector != "explorer"}
    assert collectors == {"random": "uniform", "dreamer": "task"}


def test_an_unknown_objective_is_refused_with_the_known_ones(nano, spaces):
    with pytest.raises(ValueError, match="no objective 'boredom': choose one of plan2explore"):
        Learner(replace(nano, intrinsic=replace(nano.intrinsic, objective="boredom")), spaces)


def test_a_retrospective_actor_without_a_gradient_is_refused(nano, spaces):
    intrinsic = replace(nano.intrinsic, objective="retrospective", gradient="stopped")
    with pytest.raises(ValueError, match=r"never learn: set intrinsic.gradient=through"):
        Learner(replace(nano, intrinsic=intrinsic), spaces)


def test_the_oracle_needs_a_task(nano, spaces):
    with pytest.raises(ValueError, match="give Spaces at least one"):
        Learner(replace(nano, intrinsic=replace(nano.intrinsic, objective="dreamer")), replace(spaces, tasks=0))


def test_the_objective_that_the_documentation_adds_trains(nano, spaces, state_of, batch_of, monkeypatch):
    """docs/objectives.md adds an objective from outside the package: its code is run as it stands there."""
    monkeypatch.setattr("plan2explore.agent.intrinsic.OBJECTIVES", OBJECTIVES | {})
    page = (Path(__file__).parents[3] / "docs" / "objectives.md").read_text()
    code = page.split("```python\n")[1].split("```")[0]
    assert len(code.splitlines()) <= 35
    exec(compile(code, "docs/objectives.md", "exec"), {})
    config = replace(nano, intrinsic=replace(nano.intrinsic, objective="outskirts"))
    learner = Learner(config, replace(spaces, tasks=0))
    before = state_of(learner)
    copied = jax.tree.map(lambda leaf: leaf.copy(), before)
    after, metrics = learner.update(copied, batch_of())
    assert metrics["intrinsic/spread"] > 0 and metrics["explorer/actor/finite"] == 1
    for kind in ("intrinsic", "actor", "critic"):
        assert np.any(before.networks[kind].params != after.networks[kind].params)
    assert "outskirts" not in OBJECTIVES


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="already: choose another name"):
        register("max", Objective(lambda *_: Nothing(), None, None))
