"""The paper's numbers are those of its tables, and they travel with the package."""

from importlib import resources

import pytest

from plan2explore.envs.names import PAPER_TASKS, split_name
from plan2explore.reference import METHODS, TASK_AVERAGE, paper_scores, paper_table, published_curve, with_reward


@pytest.mark.parametrize(("number", "methods"), [(1, ("plan2explore", "curiosity", "random", "dreamer")), (2, METHODS)])
def test_a_table_has_the_papers_tasks_and_agrees_with_its_own_average(number, methods):
    table = paper_table(number)
    tasks = [task for task in table if task != TASK_AVERAGE]
    assert sorted(tasks) == sorted(PAPER_TASKS) if number == 1 else len(tasks) == 8
    for method in methods:  # copied wrongly, a number would show in the mean
        mean = sum(table[task][method] for task in tasks) / len(tasks)
        assert mean == pytest.approx(table[TASK_AVERAGE][method], abs=0.4), method


def test_a_score_that_the_paper_lacks_is_left_out():
    assert "max" not in paper_scores("cup_catch")
    assert paper_scores("cheetah_run")["max"] == 0.76
    assert paper_scores("cheetah_run", table=2)["plan2explore"] == 697.8
    assert paper_scores("cheetah_run_backward") == {}
    with pytest.raises(ValueError, match="Table 1"):
        paper_table(3)
    # The suite's own name of a task is known too.
    assert paper_scores("ball_in_cup_catch") == paper_scores("cup_catch") != {}
    assert published_curve("ball_in_cup_catch") == published_curve("cup_catch") != []


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_every_task_has_published_curves(task):
    assert split_name(task)[1]
    for method, seeds in (("plan2explore", 3), ("dreamer", 5)):
        curve = published_curve(task, method)
        assert [point.env_steps for point in curve] == [250_000, 500_000, 1_000_000, 2_000_000, 3_500_000]
        assert {point.seeds for point in curve} == {seeds}
    assert published_curve(task, "curiosity") == []


@pytest.mark.parametrize("env_steps", [500_000, 1_000_000])
def test_scores_with_reward_agree_with_their_own_mean(env_steps):
    scores = [with_reward(task, env_steps) for task in PAPER_TASKS]
    assert sum(scores) / len(scores) == pytest.approx(with_reward("mean_of_20", env_steps), abs=1)
    assert with_reward("cheetah_run", 500_000) == 655 and with_reward("cheetah_run", 600_000) is None
    assert with_reward("cheetah_run_backward", 500_000) is None


def test_every_file_names_its_source():
    for name in ("paper_tables.csv", "published_curves.csv", "crafter_no_reward.csv", "supervised_dmc_vision.csv"):
        text = resources.files("plan2explore.reference").joinpath(name).read_text()
        assert text.startswith("# ") and name in resources.files("plan2explore.reference").joinpath("README.md").read_text()
