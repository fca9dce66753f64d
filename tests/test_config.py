"""Configurations from plain values: whatever is wrong with them is said, by name, and older names still work."""

import json
from dataclasses import asdict, replace

import pytest
from older import older_settings

from plan2explore.config import (
    PRESETS,
    ActorCriticConfig,
    AdaptConfig,
    AgentConfig,
    ExploreConfig,
    IntrinsicConfig,
    Schedule,
    WorldConfig,
    check_numbers,
    check_seed,
    differences,
    preset_of,
    read_config,
    rename_flags,
    whole_steps,
)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_configuration_comes_back_from_a_file_as_it_was(preset):
    config = ExploreConfig(WorldConfig("cheetah"), Schedule(collect="in-turn"), PRESETS[preset], ("cheetah_run", "b"), 3)
    assert read_config(ExploreConfig, json.loads(json.dumps(asdict(config)))) == config
    adaptation = AdaptConfig(shots=3, at=None)
    assert read_config(AdaptConfig, json.loads(json.dumps(asdict(adaptation)))) == adaptation


def test_what_is_left_out_has_its_default_and_whole_numbers_may_be_given_for_others():
    assert read_config(Schedule, {"checkpoint_seconds": 5}) == Schedule(checkpoint_seconds=5.0)
    assert isinstance(read_config(Schedule, {"checkpoint_seconds": 5}).checkpoint_seconds, float)
    assert read_config(AdaptConfig, {"at": 500}).at == 500


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"walls": 3}, "no setting walls; known are world, schedule"),
        ({"agent": {"model": {"depth": 3}}}, "no setting agent.model.depth; known are latent"),
        ({"seed": "0"}, "seed cannot be '0'; expected int"),
        ({"seed": True}, "seed cannot be True"),
        ({"seed": 1.5}, "seed cannot be 1.5"),
        ({"agent": {"clip": True}}, "agent.clip cannot be True; expected float"),
        ({"agent": {"clip": 10**400}}, "agent.clip cannot be 10{99}; expected float"),
        ({"agent": {"precision": "float16"}}, "agent.precision cannot be 'float16'; expected .*bfloat16.*float32"),
        ({"probes": "walker_walk"}, "probes cannot be 'walker_walk'"),
        ({"probes": [1]}, "probes cannot be 1; expected str"),
        ({"agent": {"intrinsic": {"max_log_variance": [1.0]}}}, "max_log_variance cannot be"),
        ({"world": ["walker"]}, "world cannot be"),
        ({"world": {"renderer": None}}, "world.renderer cannot be None"),
    ],
)
def test_a_wrong_value_is_named(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        read_config(ExploreConfig, values)


def test_differences_are_named_with_both_values():
    one = ExploreConfig()
    other = replace(one, seed=2, agent=replace(one.agent, model=replace(one.agent.model, deter=8)))
    assert differences(one, one) == []
    assert differences(other, one) == ["agent.model.deter: 8, not 400", "seed: 2, not 0"]


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"seed": -1}, r"^seed must be from 0 to 4294967295; got -1\.$"),
        ({"seed": 2**32}, "seed must be from 0"),
        ({"schedule": {"snapshot_every": 0}}, r"^schedule.snapshot_every must be at least 1; got 0\.$"),
        ({"schedule": {"checkpoint_seconds": float("nan")}}, "checkpoint_seconds must be at least 0, and finite; got nan"),
        ({"agent": {"length": -3}}, "agent.length must be at least 1"),
        ({"agent": {"clip": 0.0}}, "agent.clip must be above 0"),
        ({"agent": {"model": {"conv_depth": 0}}}, "agent.model.conv_depth must be at least 1"),
        ({"agent": {"model": {"reward_depth": -1}}}, "agent.model.reward_depth must be at least 0"),
        ({"agent": {"model": {"learning_rate": float("inf")}}}, "agent.model.learning_rate must be above 0, and finite"),
        ({"agent": {"actor_critic": {"discount": 1.5}}}, "agent.actor_critic.discount must be from 0 to 1; got 1.5"),
        ({"agent": {"actor_critic": {"lambda_": 1.5}}}, "agent.actor_critic.lambda_ must be from 0 to 1"),
        ({"agent": {"actor_critic": {"max_std": 0.0}}}, "agent.actor_critic.max_std must be above 0"),
        ({"agent": {"intrinsic": {"members": 1}}}, "agent.intrinsic.members must be at least 2; got 1"),
        ({"agent": {"actor_critic": {"action_noise": -0.1}}}, "agent.actor_critic.action_noise must be at least 0"),
        ({"agent": {"intrinsic": {"max_log_variance": [0.0, float("inf")]}}}, "max_log_variance must be finite; got"),
        ({"agent": {"adapt_batch": 0}}, "agent.adapt_batch must be at least 1"),
        ({"agent": {"adapt_discount": 1.5}}, "agent.adapt_discount must be from 0 to 1; got 1.5"),
    ],
)
def test_a_number_that_makes_no_sense_is_named(values, sentence):
    with pytest.raises(ValueError, match=sentence):
        check_numbers(read_config(ExploreConfig, values))


@pytest.mark.parametrize("preset", PRESETS)
def test_numbers_of_the_presets_make_sense_and_so_does_0_where_it_means_none(preset):
    schedule = Schedule(updates_per_episode=0, environments=0, block=0, evaluate_every=0, evaluate_episodes=0)
    model = replace(PRESETS[preset].model, reward_depth=0, free_nats=0.0, kl_scale=0)
    check_numbers(ExploreConfig(schedule=schedule, agent=replace(PRESETS[preset], model=model)))
    check_numbers(AdaptConfig(shots=0, at=0))
    check_seed(2**32 - 1)


def test_numbers_of_steps_may_be_written_as_people_do():
    assert whole_steps(1e6) == 1_000_000 and whole_steps(7) == 7
    for value in (float("inf"), float("nan")):
        with pytest.raises(ValueError, match=f"such as 1e6; got {value}"):
            whole_steps(value)


def test_presets_are_values_that_can_be_changed():
    tiny = PRESETS["tiny"]
    changed = replace(tiny, model=replace(tiny.model, deter=7))
    assert isinstance(changed, AgentConfig) and changed.model.deter == 7 != tiny.model.deter


def test_a_schedule_takes_the_presets_updates_unless_it_has_its_own():
    assert Schedule().resolved(PRESETS["paper"]).updates_per_episode == 100
    assert Schedule().resolved(PRESETS["tiny"]).updates_per_episode == 500
    assert Schedule(updates_per_episode=0).resolved(PRESETS["tiny"]).updates_per_episode == 0


@pytest.mark.parametrize(
    ("arguments", "preset"),
    [([], "paper"), (["--preset", "tiny"], "tiny"), (["--preset=modern-tiny"], "modern-tiny"), (["--preset"], "paper")],
)
def test_the_preset_of_a_command_line_is_known_before_it_is_parsed(arguments, preset):
    assert preset_of(["explore", "walker", *arguments]) == PRESETS[preset]


# --- Names of version 0.1 ---


def test_settings_that_were_stored_under_older_names_are_read():
    agent = AgentConfig(
        intrinsic=IntrinsicConfig(members=7), actor_critic=ActorCriticConfig(lambda_=0.8, start_std=2.0), batch=7
    )
    config = ExploreConfig(WorldConfig("cheetah", obs="both"), agent=agent)
    stored = older_settings(json.loads(json.dumps(asdict(config))))
    assert stored["agent"]["behavior"]["trace"] == 0.8 and stored["world"]["see"] == "both"
    assert stored["agent"]["novelty"]["members"] == 7 and stored["agent"]["behavior"]["actor_start_std"] == 2.0
    assert read_config(ExploreConfig, stored) == config


def test_older_flags_become_those_of_today():
    old = ["--agent.behavior.trace", "0.9", "--agent.novelty.members=3", "--agent.behavior.actor_start_std=1"]
    new = ["--agent.actor-critic.lambda", "0.9", "--agent.intrinsic.members=3", "--agent.actor-critic.start-std=1"]
    assert rename_flags(old) == new == rename_flags(new)
    other = ["--out", "runs/novelty", "--novelty", "--agent.model.deter=8"]
    assert rename_flags(other) == other
