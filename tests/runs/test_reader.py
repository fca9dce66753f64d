"""What a run's files say, whatever is damaged in them."""

import json

import pytest

from plan2explore.runs.folder import RunError, RunFolder
from plan2explore.runs.reader import (
    greatest,
    open_exploration,
    read_evaluations,
    read_metrics,
    stored,
    summary_of,
)


def explored(**more):
    intrinsic = {"intrinsic": {"objective": "max"}}
    return {"world": {"world": "walker"}, "agent": intrinsic, "seed": 3, "probes": ["walker_run"]} | more


def test_a_summary_is_of_the_exploration_and_of_what_came_after_it(tmp_path):
    run = RunFolder.create(tmp_path / "run", "explore", {"config": explored()})
    settings = {"config": {"shots": 5}, "explored": explored(), "task": "walker_walk", "run": run.id, "snapshot": 1000}
    adapted = summary_of(RunFolder.create(run.adapt / "walker_walk", "adapt", settings))
    about = summary_of(run)
    assert (about.world, about.method, about.seed, about.probes) == ("walker", "max", 3, ("walker_run",))
    assert (adapted.world, adapted.method, adapted.seed, adapted.probes) == ("walker", "max", 3, ("walker_run",))
    assert (adapted.task, adapted.run, adapted.snapshot, adapted.shots) == ("walker_walk", run.id, 1000, 5)
    assert open_exploration(run.path).id == run.id
    with pytest.raises(RunError, match="is an adaptation"):
        open_exploration(run.adapt / "walker_walk")


@pytest.mark.parametrize("config", [None, [], {"agent": 3, "world": [], "probes": 7, "seed": None}])
def test_damaged_settings_say_nothing_and_raise_nothing(tmp_path, config):
    about = summary_of(RunFolder.create(tmp_path / "run", "explore", {"config": config, "snapshot": "many"}))
    assert (about.world, about.method, about.seed, about.probes, about.snapshot) == ("?", "?", None, (), 0)


def test_the_objective_of_version_0_1_has_another_name(tmp_path):
    config = explored(agent={"novelty": {"objective": "curiosity"}})
    assert summary_of(RunFolder.create(tmp_path / "run", "explore", {"config": config})).method == "curiosity"


def test_a_setting_of_another_kind_is_refused(tmp_path):
    run = RunFolder.create(tmp_path / "run", "explore", {"goal": 0, "environments": True})
    for name in ("goal", "environments", "missing"):
        with pytest.raises(RunError, match=f"'{name}' is .*, not int above 0"):
            stored(run, name, int)


def test_metrics_say_when_they_were_written(tmp_path):
    lines = [{"env_steps": 10, "novelty/loss": 2.0}, {"env_steps": "many"}, {"a": 1}, {"env_steps": 20, "update": 7}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + "{torn")
    found = [{"env_steps": 10, "intrinsic/loss": 2.0}, {"env_steps": 20, "update": 7}]
    assert read_metrics(tmp_path) == found
    assert read_metrics(tmp_path, tail=40) == found[1:]  # the line at its start is torn
    assert greatest(found, "env_steps") == 20 and greatest(found, "nothing") == 0
    assert read_metrics(tmp_path / "nowhere") == read_metrics(tmp_path / "nowhere", tail=9) == []


def test_damaged_evaluations_are_named_and_skipped(tmp_path, caplog):
    good = {"task": "a", "env_steps": 5, "mean": 2.0, "std": 1.0, "interval": [1, 3], "episodes": [1, 2, 3], "seconds": 9}
    bad = [{"task": 3}, good | {"mean": "high"}, good | {"episodes": {}}, good | {"env_steps": None}, good | {"task": ""}]
    lines = [good, *bad, good | {"episodes": [1, 3]}, good | {"interval": 7}]
    (tmp_path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    first, few, without = read_evaluations(tmp_path)
    assert first == ("a", 5, 2.0, 1.0, (1.0, 2.0, 3.0), (1.0, 3.0), 9.0)
    assert few.interval is None and without.interval is None  # two episodes are too few; none is told
    assert [record.args[0] for record in caplog.records] == [2, 3, 4, 5, 6]
