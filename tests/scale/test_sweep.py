"""A sweep is every combination of worlds, methods, presets, seeds and settings, each in a run of its own."""

import json
from dataclasses import asdict

import pytest

from plan2explore.config import PRESETS
from plan2explore.options import flags_of
from plan2explore.phases.run import Run
from plan2explore.runs.folder import RunFolder
from plan2explore.runs.results import read_results
from plan2explore.scale import cells as module
from plan2explore.scale.sweep import cells_of, main, parse

FLAGS = "--worlds walker cheetah_run --methods plan2explore random --presets tiny small --seeds 3 4 --steps 2e3"
GRID = FLAGS.split()
VARY = ["--vary", "agent.batch=4,6", "--vary", "obs=proprio"]


def cells(arguments):
    return cells_of(parse(arguments), arguments)


def test_every_combination_is_a_cell_with_its_own_settings():
    found = cells([*GRID, *VARY, "--environments", "3", "--agent.length", "9"])
    assert len(found) == len({cell.name for cell in found}) == 2 * 2 * 2 * 2 * 2
    assert found[0].name == "plan2explore-walker-tiny-agent.batch=4-obs=proprio-3"
    for cell in found:
        method, world, preset, *vary, seed = cell.name.split("-")
        config = cell.config
        assert (config.agent.intrinsic.objective, config.world.world, config.seed) == (method, world, int(seed))
        assert vary == [f"agent.batch={config.agent.batch}", f"obs={config.world.obs}"]
        assert (config.agent.model, config.agent.length) == (PRESETS[preset].model, 9)
        assert (config.schedule.environments, cell.steps) == (3, 2000)


def test_a_file_says_the_same_as_flags(tmp_path):
    file = tmp_path / "sweep.toml"
    file.write_text(
        'worlds = ["walker", "cheetah_run"]\nmethods = ["plan2explore", "random"]\npresets = ["tiny", "small"]\n'
        'seeds = [3, 4]\nsteps = 2e3\nvary = ["agent.batch=4,6", "obs=proprio"]\n[agent]\nlength = 9\n'
    )
    assert cells(flags_of(file)) == cells([*GRID, *VARY, "--agent.length", "9"])


def test_probes_are_followed_in_worlds_with_their_body(tmp_path, monkeypatch):
    (tmp_path / "own.py").write_text("def tall(state):\n    return state[0]\n")
    monkeypatch.chdir(tmp_path)
    found = cells([*GRID, "--probes", "walker_run", "walker_walk", "own.py:tall"])
    own = f"{tmp_path}/own.py:tall"
    assert {(cell.config.world.world, cell.config.probes) for cell in found} == {
        ("walker", ("walker_run", "walker_walk", own)), ("cheetah_run", (own,)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("--vary agent.batch", "agent.batch=16,32; got 'agent.batch'"),
        ("--vary agent.batch=4,4", "Two cells would be the same"),
        ("--vary steps=1e3,2e3", "vary settings of explore only"),
        ("--vary agent.intrinsic.objective=max,random", "Two cells would be the same"),
        ("--vary agent.batch=0,4", "agent.batch must be at least 1"),
        ("--methods magic", "no objective 'magic'"),
        ("--probes hopper_stand", "hopper_stand belongs to none of the worlds walker, cheetah_run"),
        ("--seeds", "nothing to run"),
        ("--steps 0.5", "nothing to run"),
        ("--cell 9 --seeds 3", "--cell is from 1 to 8 here; got 9"),
        ("--on ray --cell 1", "leave out --cell and --list"),
    ],
)
def test_mistakes_are_found_before_the_first_cell(tmp_path, wrong, said):
    with pytest.raises(ValueError, match=said):
        main([*GRID, *wrong.split(), "--out", str(tmp_path / "out")])
    assert not (tmp_path / "out").exists()


@pytest.fixture
def explored(monkeypatch):
    """Names of the explorations that were asked for; each writes a run with one evaluation, but those of `max` fail."""
    asked = []

    def explore(world, goal, path, probes, config):
        asked.append(path.name)
        if config.agent.intrinsic.objective == "max":
            raise RuntimeError("out of memory")
        folder = RunFolder.create(path, "explore", {"config": asdict(config), "goal": goal})
        line = {"task": probes[0].name, "env_steps": goal, "mean": 5.0, "std": 1.0, "episodes": [5.0]}
        folder.evaluations_file.write_text(json.dumps(line) + "\n")
        return Run(path)

    monkeypatch.setattr(module, "explore", explore)
    return asked


def test_elements_of_a_job_array_and_one_command_share_a_sweep(tmp_path, explored, capsys):
    flags = "--worlds walker --methods random max --probes walker_run --presets tiny --seeds 0 1 --steps 2000"
    sweep = [*flags.split(), "--out", str(tmp_path)]
    assert main([*sweep, "--cell", "3"]) == 0
    assert capsys.readouterr().out == ("[3/4] random-walker-tiny-1: walker_run 5.0 at 2,000 env steps (1 episode), 0 s\n")
    assert main([*sweep, "--cell", "2"]) == 1
    assert "[2/4] max-walker-tiny-0: failed: out of memory" in capsys.readouterr().out
    assert main([*sweep, "--list"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "[1/4] random-walker-tiny-0", "[2/4] max-walker-tiny-0", "[3/4] random-walker-tiny-1: finished",
        "[4/4] max-walker-tiny-1",
    ]  # fmt: skip
    assert main(sweep) == 1
    names = [f"{method}-walker-tiny-{seed}" for seed in (0, 1) for method in ("random", "max")]
    assert explored == [names[2], names[1], names[0], names[1], names[3]]
    assert "2 of 4 cells failed: max-walker-tiny-0, max-walker-tiny-1" in capsys.readouterr().err
    assert sorted(result.seed for result in read_results([tmp_path])) == [0, 1]
    assert main([*sweep, "--steps", "1000"]) == 1 and explored[5:] == [names[1], names[3]]  # a shorter one is held


def test_a_cell_of_a_version_with_fewer_settings_is_finished_if_they_are_at_their_defaults(tmp_path, explored, capsys):
    sweep = ["--worlds", "walker", "--probes", "walker_run", "--seeds", "0", "--out", str(tmp_path)]
    assert main(sweep) == 0
    log = tmp_path / "cells.jsonl"
    log.write_text(log.read_text().replace(', "devices": 1', ""))
    assert '"devices"' not in log.read_text() and main(sweep) == 0
    assert main([*sweep, "--devices", "2"]) == 1  # its run has other settings
    assert "finished before" in (said := capsys.readouterr().out) and "schedule.devices: 1, not 2" in said
