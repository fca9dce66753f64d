"""Configurations from plain values: whatever is wrong with them is said, by name."""

import json
from dataclasses import asdict, replace

import pytest

from plan2explore.config import PRESETS, AdaptConfig, ExploreConfig, Schedule, WorldConfig, differences, read_config


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
        ({"agent": {"model": {"depth": 3}}}, "no setting agent.model.depth; known are deter"),
        ({"seed": "0"}, "seed cannot be '0'; expected int"),
        ({"seed": True}, "seed cannot be True"),
        ({"seed": 1.5}, "seed cannot be 1.5"),
        ({"agent": {"clip": True}}, "agent.clip cannot be True; expected float"),
        ({"agent": {"precision": "float16"}}, "agent.precision cannot be 'float16'; expected .*bfloat16.*float32"),
        ({"probes": "walker_walk"}, "probes cannot be 'walker_walk'"),
        ({"probes": [1]}, "probes cannot be 1; expected str"),
        ({"agent": {"novelty": {"max_log_variance": [1.0]}}}, "max_log_variance cannot be"),
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
