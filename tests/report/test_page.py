"""The page shows all that a run has, says what it lacks, and lets nothing of a run's files become markup."""

import json
import shutil
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from small_run import TASK, score

import plan2explore
from plan2explore.cli import main
from plan2explore.replay.files import EpisodeFolder
from plan2explore.report import frames, page
from plan2explore.report.facts import headline
from plan2explore.report.html import Markup
from plan2explore.report.page import write_report
from plan2explore.report.run import open_runs
from plan2explore.runs.files import append_line
from plan2explore.runs.folder import RunError, RunFolder


class Elements(HTMLParser):
    """Counts the elements of a page, and keeps its text."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()
        self.attributes: set[str] = set()
        self.sources: list[str] = []
        self.charts: list[dict] = []
        self.words = ""
        self.feed(file.read_text())

    def handle_starttag(self, tag, attrs):
        self.count[tag] += 1
        self.attributes |= {name for name, _ in attrs}
        self.charts += [json.loads(value) for name, value in attrs if name == "data-chart" and value]
        self.sources += [value for name, value in attrs if name in ("src", "href") and value and not value.startswith("#")]

    def handle_data(self, data):
        self.words += data


def test_a_page_compares_runs(page_of_both):
    found = Elements(page_of_both)
    for words in ("127.0", "zero-shot offline", "760 (plan2explore, 3.5M)", "first (plan2explore)", "second (random)"):
        assert words in found.words, words
    for words in ("cells of the whole state", "slider", "hinge_1 velocity", "Episode 0", "its peaks", "True, imagined"):
        assert words in found.words, words
    assert found.count["video"] == 2 * (3 + 1 + 1)  # of each run: episodes, the policy, the prediction
    # Scores 1; coverage 1; curiosity 2; open loop 1 + 5 of each run; learning 5 metrics.
    assert len(found.charts) == 1 + 1 + 2 + 12 + 5
    assert found.count["canvas"] == 2 * 3  # a map of each pair and run
    assert "no intrinsic reward" not in found.words  # what random exploration lacks is left out
    assert page_of_both.stat().st_size < 20_000_000
    assert all(source.startswith("data:") for source in found.sources)
    text = page_of_both.read_text()  # scores come first, and settings are folded
    assert text.index('id="scores"') < text.index('id="what-was-run"') < text.index("<details><summary>Settings, machine")


def test_the_page_of_one_run_is_put_into_it(small_runs, copied, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "compose", lambda *_: "")
    assert plan2explore.write_report([copied]) == copied / "report.html"
    monkeypatch.chdir(tmp_path)
    assert write_report([copied, small_runs[1]]) == Path("report.html") and Path("report.html").exists()


def test_what_is_no_run_is_an_error(small_runs, tmp_path):
    with pytest.raises(RunError, match="There is no folder"):
        write_report([tmp_path / "nothing"])
    with pytest.raises(RunError, match=r"no run\.json"):
        write_report([tmp_path])
    with pytest.raises(RunError, match="is an adaptation"):
        write_report([small_runs[0] / "adapt" / TASK])
    with pytest.raises(ValueError, match="at least one run"):
        write_report([])


def test_names_cannot_become_markup(hostile_page):
    found = Elements(hostile_page)
    assert found.count["script"] == 1 and not found.count["b"]
    assert not {"onerror", "onclick"} & found.attributes
    assert found.words.count("onerror=document") > 5
    assert any("<img src=x" in line["label"] for chart in found.charts for line in chart["lines"])


def test_damaged_pieces_are_said_and_the_rest_is_shown(copied):
    run = copied
    (run / "episodes" / "000002.npz").write_bytes(b"PK nonsense")
    (run / "starts.jsonl").unlink()
    next((run / "snapshots").glob("*.safetensors")).write_bytes(b"nothing")
    (run / "adapt" / TASK / "videos" / f"{TASK}-0.mp4").write_bytes(b"no video at all")
    (run / "adapt" / "broken").mkdir()
    with (run / "evaluations.jsonl").open("ab") as file:
        file.write(b'{"task": 3}\n{"task": "x", "env_steps": 1, "mean": "high", "interval": 5, "episodes": {}}\n}{\n')
    with (run / "metrics.jsonl").open("ab") as file:
        file.write(b'{"env_steps": "many", "model/loss": []}\n{"env_steps": 3, "model/loss": [1], "time": "now"}\n')
    found = Elements(write_report(run))
    for words in ("no snapshot that can be read", "not an mp4", "starts.jsonl", "000002.npz cannot", "broken is not a run"):
        assert words in found.words, words
    assert found.count["video"] == 2  # the first episode and the middle one
    assert "zero-shot offline" in found.words and "cells of the whole state" in found.words and "model/loss" in found.words


def test_an_empty_run_has_a_page(small_runs, tmp_path):
    run = tmp_path / "empty"
    run.mkdir()
    shutil.copy(small_runs[0] / "run.json", run)
    found = Elements(write_report([run]))
    assert found.count["h2"] == 1 and "What was run" in found.words
    assert "plan2explore in cartpole, 0 env steps." in found.words
    assert "could not be shown" not in found.words  # what has nothing to say is left out


@pytest.fixture
def no_videos(monkeypatch):
    """Encoding them takes time."""
    monkeypatch.setattr(page, "videos", lambda *_: Markup())


def test_settings_that_cannot_be_read_are_said(copied, tmp_path, no_videos):
    broken = tmp_path / "broken"
    text = (copied / "run.json").read_text()
    (copied / "run.json").write_text(text.replace('"horizon"', '"hoopla"'))
    broken.mkdir()
    (broken / "run.json").write_text("{")
    words = Elements(write_report([copied, broken], tmp_path / "page.html")).words
    assert "hoopla" in words and "is damaged" in words and "127.0" in words


def test_a_damaged_run_is_refused_and_its_page_stays(copied, capsys):
    (copied / "report.html").write_text("the old page")
    (copied / "run.json").write_text("{")
    with pytest.raises(SystemExit) as exited:
        main(["report", str(copied)])
    told = capsys.readouterr().err
    assert exited.value.code == 2 and told.count("\n") == 1 and "run.json is damaged" in told
    assert (copied / "report.html").read_text() == "the old page"


def test_an_objective_that_is_not_registered_here_is_said(copied, caplog, no_videos):
    text = (copied / "run.json").read_text()
    (copied / "run.json").write_text(text.replace('"objective": "plan2explore"', '"objective": "outskirts"'))
    words = Elements(write_report(copied)).words
    assert words.count("which is not registered here") == 2 and "127.0" in words and "cells of the whole state" in words
    (record,) = caplog.records
    assert record.exc_info is None and record.getMessage().endswith("Where it was curious, Open-loop prediction.")


def test_a_world_whose_module_is_not_here_is_shown_all_the_same(copied, caplog):
    run = copied
    text, world = (run / "run.json").read_text(), "gymnasium:nowhere_to_be_found:Dot-v0"
    (run / "run.json").write_text(text.replace('"world": "cartpole"', f'"world": "{world}"'))
    episodes = EpisodeFolder(run / "episodes")
    for number, episode in list(episodes.load_all()):
        episodes.save(number, replace(episode, world=world))
    found = Elements(write_report(run))
    for words in (world, "observation 0", "127.0", "peaks", "True, imagined"):
        assert words in found.words, words
    assert found.count["video"] == 5 and not caplog.records


def test_an_episode_of_another_environment_starts_no_simulator(copied, monkeypatch):
    episodes = EpisodeFolder(copied / "episodes")
    for number, episode in list(episodes.load_all()):
        episodes.save(number, replace(episode, world="mjcf:/elsewhere.xml", image=0 * episode.image))
    monkeypatch.setattr(frames, "make", lambda *_, **__: pytest.fail("a file's name was followed"))
    found = Elements(write_report(copied))
    assert found.words.count("'mjcf:/elsewhere.xml', which is not the run's world") == 3 and found.count["video"] == 1
    assert found.words.count("has no whole episode that can be read") == 2


def test_the_headline_says_what_happened(page_of_both, small_runs, tmp_path):
    first = f"plan2explore in cartpole, 3,000 env steps: scored 127 in {TASK} (random 127 in {TASK})."
    assert f"<h1>{first}</h1>" in page_of_both.read_text()
    runs = [shutil.copytree(run, tmp_path / run.name) for run in small_runs]
    for run, share, scored in zip(runs, (0.97, 0.41), (501.0, 499.0), strict=True):
        (run / "run.json").write_text((run / "run.json").read_text().replace('"world": "cartpole"', '"world": "maze_u"'))
        append_line(run / "metrics.jsonl", {"env_steps": 3000, "time": 1.0, "coverage": share})
        score(RunFolder.open(run), TASK, [scored] * 3, 3000)
        score(RunFolder.open(run), "maze_u_goal_n", [5.0] * 3, 3000)
    assert str(headline(open_runs(runs)[0])) == (
        "plan2explore in maze_u, 3,000 env steps: visited 97% of the maze (random 41%); "
        "1 of 2 tasks solved (random 0 of 2), with a score of 500 or more."
    )
    shutil.copytree(runs[0], tmp_path / "third")
    every = open_runs([*runs, tmp_path / "third"])[0]
    assert "3,000 env steps, 2 runs each: visited 97% of the maze" in headline(every) and "2 of 4 tasks solved" in headline(
        every
    )


def test_a_page_stays_below_its_limit(copied, monkeypatch):
    monkeypatch.setattr(page, "LARGEST", 1_000)
    monkeypatch.setattr(page, "intrinsic_reward", lambda run: Markup())
    monkeypatch.setattr(page, "open_loop_prediction", lambda run: Markup())  # its video has a limit of its own
    found = Elements(write_report(copied))
    assert found.count["video"] == 0 and found.words.count("There is no room for it") == 4
