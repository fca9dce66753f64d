"""Results are what evaluations were, whatever is damaged around them."""

import json
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from plan2explore.runs.folder import RunError
from plan2explore.runs.results import (
    COLUMNS,
    FEW_SHOT,
    OFFLINE,
    PROBE,
    SUPERVISED,
    Result,
    append_results,
    read_results,
    results_of,
)

ONE = Result("cheetah_run", "plan2explore", PROBE, 0, 500_010, 560.7, 34.9, 10, "45bb014", "H200, 16 cores", 12.5, "ab")


def explored(seed=3, method="plan2explore", probes=("walker_walk", "walker_run")):
    return {"seed": seed, "probes": list(probes), "agent": {"intrinsic": {"objective": method}}}


def start(commit="abc", cores=16, devices=("NVIDIA H200",)):
    return {"commit": commit, "machine": {"cpu": "Xeon", "cores": cores, "devices": list(devices)}}


def evaluation(task="walker_walk", env_steps=25_000, mean=100.0, episodes=(90.0, 110.0), seconds=7.0):
    return {"task": task, "env_steps": env_steps, "mean": mean, "std": 14.1, "episodes": list(episodes), "seconds": seconds}


def make_run(path: Path, settings, evaluations, kind="explore", run="a" * 12, starts=(), created="now") -> Path:
    """A run folder as far as results go."""
    path.mkdir(parents=True)
    content = {"format": 1, "version": "0", "kind": kind, "id": run, "created": created, "settings": settings}
    (path / "run.json").write_text(json.dumps(content))
    (path / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in evaluations))
    (path / "starts.jsonl").write_text("".join(json.dumps(line) + "\n" for line in starts or [start()]))
    return path


def make_adaptation(run: Path, name: str, shots: int, evaluations, of="a" * 12, own="b" * 12, created="now") -> Path:
    settings = {"config": {"shots": shots, "seed": 9}, "explored": explored(), "run": of, "snapshot": 1_000_000}
    return make_run(run / "adapt" / name, settings, evaluations, "adapt", own, created=created)


def test_a_run_tells_every_evaluation_and_its_origin(tmp_path):
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation(), evaluation("walker_run", 50_000, 200.0)])
    first, second = results_of(run)
    assert first == Result(
        "walker_walk", "plan2explore", PROBE, 3, 25_000, 100.0, 14.1, 2, "abc", "NVIDIA H200, 16 cores", 7.0, "a" * 12
    )
    assert (second.task, second.env_steps, second.score) == ("walker_run", 50_000, 200.0)


def test_adaptations_count_from_where_exploration_ended(tmp_path):
    run = make_run(tmp_path / "run", {"config": explored()}, [])
    make_adaptation(run, "walker_walk", 0, [evaluation(env_steps=0)])
    make_adaptation(run, "walker_walk-150-shots", 150, [evaluation(env_steps=25_000), evaluation(env_steps=150_000)])
    found = [(result.protocol, result.env_steps, result.seed, result.run) for result in results_of(run)]
    assert found == [
        (OFFLINE, 1_000_000, 3, "a" * 12),
        (FEW_SHOT, 1_025_000, 3, "a" * 12),
        (FEW_SHOT, 1_150_000, 3, "a" * 12),
    ]
    assert results_of(run / "adapt" / "walker_walk")[0].protocol == OFFLINE


def test_adaptations_are_told_apart_the_newest_last(tmp_path):
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation()])
    make_adaptation(run, "a", 0, [evaluation(env_steps=0)], own="new", created="2026-11-16T00:00:00+00:00")
    make_adaptation(run, "b", 0, [evaluation(env_steps=0)], own="old", created="2026-11-15T00:00:00+00:00")
    assert [result.adaptation for result in results_of(run)] == ["", "old", "new"]
    newest = results_of(run)[-1:]
    append_results(tmp_path / "results.csv", newest)
    assert read_results([tmp_path / "results.csv"]) == newest
    assert [result.adaptation for result in read_results([tmp_path / "results.csv", run])] == ["", "old", "new"]


def test_a_file_that_does_not_tell_adaptations_stays_as_it_is(tmp_path):
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation()])
    make_adaptation(run, "walker_walk", 0, [evaluation(env_steps=0)])
    results, file = results_of(run), tmp_path / "results.csv"
    columns = [name for name in COLUMNS if name != "adaptation"]
    file.write_text(",".join(columns) + "\n")
    assert [append_results(file, results) for _ in range(2)] == [2, 0]
    assert read_results([file]) == [replace(result, adaptation="") for result in results]
    for sources in ([file, run], [run, file]):
        assert sorted(read_results(sources), key=lambda result: result.adaptation) == results


def test_dreamers_own_task_is_no_zero_shot(tmp_path):
    lines = [evaluation(), evaluation("walker_run")]
    run = make_run(tmp_path / "run", {"config": explored(method="dreamer")}, lines)
    assert [(result.task, result.protocol) for result in results_of(run)] == [
        ("walker_walk", SUPERVISED),
        ("walker_run", PROBE),
    ]


def test_wall_time_is_told_only_of_a_run_in_one_piece(tmp_path):
    starts = [start("abc"), start("def", 2, ["cpu"])]
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation()], starts=starts)
    (result,) = results_of(run)
    assert result.wall_s is None
    assert (result.commit, result.hardware) == ("abc def", "NVIDIA H200, 16 cores; Xeon, 2 cores")


def test_damaged_lines_of_a_run_are_named_and_skipped(tmp_path, caplog):
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation()])
    strange = [b"{broken", b'{"task": 3}', json.dumps(evaluation() | {"mean": None}).encode(), b'{"task": "x", "env_st']
    with open(run / "evaluations.jsonl", "ab") as file:
        file.write(b"\n".join(strange))
    make_adaptation(run, "foreign", 0, [evaluation()], of="another run")
    make_adaptation(run, "damaged", 0, [evaluation()])
    (run / "adapt" / "damaged" / "run.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert len(results_of(run)) == 1
    for named in ("Line 2", "Line 3", "Line 4", "foreign", "damaged"):
        assert named in caplog.text, named


def test_nothing_is_written_to_a_run(tmp_path):
    run = make_run(tmp_path / "run", {"config": explored()}, [evaluation()])
    make_adaptation(run, "walker_walk", 0, [evaluation()])
    before = {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in run.rglob("*") if file.is_file()}
    results_of(run)
    assert before == {file: (file.stat().st_mtime_ns, file.read_bytes()) for file in run.rglob("*") if file.is_file()}


def test_a_csv_file_gives_back_what_was_written_once(tmp_path):
    path = tmp_path / "deep" / "results.csv"
    other = replace(ONE, seed=1, wall_s=None, std=0.0, hardware='a "quoted", name')
    assert append_results(path, [ONE, other, ONE]) == 2
    assert append_results(path, [replace(ONE, wall_s=None)]) == 0  # told otherwise later, it is the same result
    assert path.read_text().splitlines()[0] == ",".join(COLUMNS)
    assert read_results([path, path]) == [ONE, other]


def test_a_csv_file_and_its_run_count_once(tmp_path):
    line = evaluation(mean=100.123456789)
    run = make_run(tmp_path / "runs" / "run", {"config": explored()}, [line])
    append_results(tmp_path / "results.csv", results_of(run))
    assert len(read_results([tmp_path / "results.csv", run, tmp_path / "runs"])) == 1


def test_damaged_lines_of_a_csv_file_are_named_and_skipped(tmp_path, caplog):
    path = tmp_path / "results.csv"
    append_results(path, [ONE])
    good = path.read_text().splitlines()[1]
    bad = ["nonsense", good.replace("560.700", "nan"), good.replace(PROBE, "guess"), '"' + good, good[:30]]
    path.write_bytes(path.read_bytes() + "\n".join([*bad, good.replace("500010", "600000")]).encode() + b"\n\xff\0,torn")
    with caplog.at_level(logging.WARNING):
        assert [result.env_steps for result in read_results([path])] == [500_010, 600_000]
    assert all(f"Line {number} " in caplog.text for number in (3, 4, 5, 6, 7, 9))
    assert append_results(path, [replace(ONE, seed=5)]) == 1  # not glued to the torn line
    assert [result.seed for result in read_results([path])] == [0, 0, 5]


def test_a_wrong_word_names_its_column_and_spreadsheets_may_mark_their_files(tmp_path, caplog):
    path = tmp_path / "results.csv"
    append_results(path, [ONE])
    good = path.read_text().splitlines()[1]
    bad = good.replace("560.700", "much"), good.replace("500010", "5e5"), good.replace("500010", "1" + "0" * 400)
    path.write_bytes("\n".join([path.read_text().strip(), *bad]).encode("utf-8-sig"))  # as Excel does
    with caplog.at_level(logging.WARNING):
        assert len(read_results([path])) == 1
    assert "score is 'much', not a number" in caplog.text and "env_steps is '5e5', not a whole number" in caplog.text
    assert f"Line 5 of {path}" in caplog.text and "not finite or too large" in caplog.text


def test_what_has_no_results_is_refused_with_a_reason(tmp_path):
    (tmp_path / "other.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").mkdir()
    for source, said in (("other.csv", "no column 'task'"), ("empty", "neither runs nor"), ("nowhere", "no file or folder")):
        with pytest.raises(RunError, match=said):
            read_results([tmp_path / source])


def test_a_folder_is_read_whatever_else_is_in_it(tmp_path):
    append_results(tmp_path / "results.csv", [ONE])
    (tmp_path / "table_1.csv").write_text("a,b\n1,2\n")
    assert read_results([tmp_path]) == [ONE]


def test_the_results_in_this_repository_can_be_read():
    found = read_results([Path(__file__).parents[2] / "results"])
    assert len(found) >= 24 and all(result.commit and result.hardware for result in found)
