"""Names of worlds and tasks."""

import pytest

from plan2explore import list_tasks, make
from plan2explore.envs.names import (
    UnknownName,
    check_module,
    folder_name,
    full_name,
    read_arguments,
    split_name,
    split_world,
)
from plan2explore.envs.suite import DEFAULT_TASK, tasks_of_domains


def test_the_papers_tasks_are_there():
    paper, extra = list_tasks("paper"), list_tasks("extra")
    assert len(paper) == 20
    assert extra == ["cheetah_flip_backward", "cheetah_flip_forward", "cheetah_run_backward"]
    assert set(paper) | set(extra) <= set(list_tasks())


def test_every_name_splits_into_a_domain_and_a_task_of_it():
    for name in list_tasks():
        domain, task = split_name(name)
        assert task in tasks_of_domains()[domain]
    assert split_name("cup_catch") == split_name("ball_in_cup_catch") == ("ball_in_cup", "catch")
    assert split_name("humanoid_CMU_run") == ("humanoid_CMU", "run")
    assert split_name("cup") == ("ball_in_cup", None)


def test_every_domain_has_a_default_task():
    assert {d: DEFAULT_TASK[d] in tasks for d, tasks in tasks_of_domains().items()} == dict.fromkeys(DEFAULT_TASK, True)


def test_unknown_names_answer_with_the_nearest():
    with pytest.raises(UnknownName, match="walker_walk"):
        make("walker_wlk")
    with pytest.raises(UnknownName, match="cheetah"):
        make("chetah")
    with pytest.raises(UnknownName, match="Domains: acrobot"):
        make("zzzzzz")
    with pytest.raises(ValueError, match="paper, extra, domains, all"):
        list_tasks("some")


@pytest.mark.parametrize(
    ("options", "answer"),
    [
        (dict(size=0), "size is a whole number from 8 to 1024; got 0"),
        (dict(size=64.0), "size is a whole number"),
        (dict(action_repeat=0), "action_repeat is a whole number from 1 to 100; got 0"),
        (dict(renderer="opengl"), "one of auto, raycast, gl; got 'opengl'"),
        (dict(seed=-1), "seed is a whole number from 0"),
    ],
)
def test_wrong_options_say_what_is_allowed(options, answer):
    with pytest.raises(ValueError, match=answer):
        make("pendulum_swingup", **options)


def test_arguments_of_a_world_are_part_of_its_name_and_come_back():
    arguments = {"xml_file": "a&b=c.xml", "speed": 0.5, "maze": [[1, "r"], [1, 0]], "flag": True, "text": "5", "none": None}
    name = full_name("gymnasium:Pendulum-v1", arguments)
    assert split_world(name) == ("gymnasium:Pendulum-v1", arguments)
    assert full_name(name, {"speed": 1}) == full_name("gymnasium:Pendulum-v1", arguments | {"speed": 1})
    assert read_arguments(["flag=true", "speed=1e3", "maze=[1, 2]"]) == {"flag": True, "speed": 1000.0, "maze": [1, 2]}
    with pytest.raises(ValueError, match="written key=value; got 'speed'"):
        read_arguments(["speed"])
    with pytest.raises(ValueError, match="walker takes no arguments"):
        full_name("walker", {"speed": 1})


def test_folders_are_named_after_worlds():
    assert folder_name("gymnasium:ALE/Pong-v5?frameskip=4") == "gymnasium_ALE_Pong-v5_frameskip_4"
    assert folder_name("mjcf:models/robot.xml") == "robot"


def test_a_file_cannot_start_a_module():
    for world in ("gymnasium:evil_module:Nice-v0", "mjcf:/robot.xml?reset=evil_module:start"):
        with pytest.raises(ValueError, match="add --import evil_module"):
            check_module(world, "runs/found")
    check_module("gymnasium:json:Nice-v0", "runs/mine")  # imported already
    check_module("mjcf:/robot.xml?reset=json:loads", "runs/mine")
