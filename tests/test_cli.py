"""The command line as a person uses it: sentences instead of stack traces, files where it says."""

import contextlib
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import imageio_ffmpeg
import numpy as np
import pytest
from PIL import Image

import plan2explore
from plan2explore import doctor
from plan2explore.agent.learner import NotFiniteError
from plan2explore.cli import main
from plan2explore.config import PRESETS, Schedule, WorldConfig
from plan2explore.envs.render import gl
from plan2explore.phases import load
from plan2explore.phases.callbacks import Stopped
from plan2explore.phases.evaluate import Scores
from plan2explore.reference import METHODS
from plan2explore.runs.files import check_folder
from plan2explore.runs.folder import RunFolder

ROOT = Path(__file__).parents[1]


def run(capsys, *arguments):
    """(status, standard output, standard error) of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    streams = capsys.readouterr()
    return ended.value.code or 0, streams.out, streams.err


def test_look_leaves_a_video_and_a_contact_sheet(capsys, tmp_path):
    status, printed, _ = run(capsys, "look", "pendulum", "--size", "32", "--out", str(tmp_path / "a" / "b"))
    assert status == 0
    assert re.search(r"\d+ agent steps/s in one process", printed)
    for suffix in ("mp4", "png"):
        assert str(tmp_path / "a" / "b" / f"pendulum.{suffix}") in printed
    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "a" / "b" / "pendulum.mp4"))
    assert frames == 501 and seconds == pytest.approx(501 / 25, abs=0.2)  # real time: two steps of 20 ms a frame
    assert np.asarray(Image.open(tmp_path / "a" / "b" / "pendulum.png")).std() > 10


def test_look_shows_the_start_of_an_episode_without_end(capsys, tmp_path):
    pytest.importorskip("pygame")
    world = ["gymnasium:Pendulum-v1", "--env-arg", f"max_episode_steps={10**30}"]
    status, printed, _ = run(capsys, "look", *world, "--size", "8", "--action-repeat", "100", "--out", str(tmp_path))
    assert status == 0 and "first 2,000 env steps: the episode was not over" in printed and "20 agent steps" in printed


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("look", "walkr"), "no world or task 'walkr'. Nearest names: walker"),
        (("look", "walker", "--size", "4"), "size is a whole number from 8 to 1024"),
        (("look", "walker", "--renderer", "pencil"), "one of auto, raycast, gl"),
        (("look", "gymnasium:Pendulum-v1", "--seed", "-1"), "seed must be from 0 to 4294967295; got -1"),
        (("bench", "everything"), "Available subcommands: render, update"),
        (("bench", "render", "--backends", "directx"), "invalid choice 'directx'"),
        (("bench", "render", "--worlds", "pendulum", "--seconds", "0"), "seconds must be above 0, and finite; got 0.0."),
        (("bench", "update", "--preset", "tiny", "--count", "0"), "count must be at least 1; got 0."),
        (("tasks", "--which", "mine"), "list_tasks knows"),
        (("tasks", "labyrinth"), "No name begins with 'labyrinth'; the domains are acrobot, antmaze_u, ball_in_cup"),
    ],
)
def test_mistakes_end_in_a_sentence(capsys, arguments, sentence):
    status, printed, error = run(capsys, *arguments)
    assert status == 2
    assert sentence in printed + error and "Traceback" not in error


def test_names_are_listed_from_their_beginning_on(capsys):
    assert run(capsys, "tasks", "point")[:2] == (0, "point_mass_easy\npoint_mass_hard\n")
    assert run(capsys, "tasks", "maze", "--which", "domains")[:2] == (0, "maze_large\nmaze_rooms\nmaze_u\n")


WITH_A_FOLDER = [
    ("look", "pendulum", "--size", "8"),
    ("table", str(ROOT / "results" / "zero_shot.csv")),
    ("plot", str(ROOT / "results" / "zero_shot.csv")),
    ("reproduce", "zero-shot", "--preset", "tiny"),
]


@pytest.mark.parametrize("arguments", WITH_A_FOLDER, ids=lambda words: words[0])
def test_a_file_where_a_folder_is_wanted_is_said(capsys, tmp_path, arguments):
    file = tmp_path / "file"
    file.write_text("mine")
    for out in (file, file / "x"):
        status, printed, error = run(capsys, *arguments, "--out", str(out))
        assert (status, printed) == (2, "")
        assert error == f"plan2explore: {file} is a file, and a folder is wanted: give another --out.\n"
    assert file.read_text() == "mine"


@pytest.mark.parametrize("arguments", WITH_A_FOLDER, ids=lambda words: words[0])
def test_a_name_that_looks_like_a_files_is_refused_for_a_folder(capsys, tmp_path, arguments):
    for name in ("x.mp4", "x.CSV"):
        status, _, error = run(capsys, *arguments, "--out", str(tmp_path / name))
        assert status == 2 and error.endswith(f"{name} is a file's name, and a folder is wanted: give another --out.\n")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_may_have_dots_in_its_name_and_may_be_there(tmp_path):
    check_folder(tmp_path / "look.v2")
    (tmp_path / "x.mp4").mkdir()
    check_folder(tmp_path / "x.mp4")


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped"),
        (Stopped(signal.SIGTERM), 143, "stopped"),
        (BrokenPipeError("ffmpeg has ended"), 2, "ffmpeg has ended"),  # a pipe that is not the reader's
        (NotFiniteError("The loss of 'model' was not finite"), 2, "The loss of 'model' was not finite"),
    ],
)
def test_what_ends_a_command_has_its_status_and_a_sentence(monkeypatch, capsys, raised, status, said):
    monkeypatch.setattr("plan2explore.cli._run", Mock(side_effect=raised))
    assert run(capsys, "explore", "walker") == (status, "", f"plan2explore: {said}\n")


def assert_quiet_without_reader(*command):
    """A program whose output nobody reads ends as others do."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    finally:
        os.close(writer)
    assert (ended.stderr, ended.returncode) == ("", 128 + signal.SIGPIPE)


@pytest.mark.parametrize("arguments", [["--help"], ["tasks"], ["table", "results"]])
def test_a_reader_that_leaves_early_ends_a_command_quietly(arguments):
    assert_quiet_without_reader(sys.executable, "-m", "plan2explore", *arguments)


def test_output_to_a_full_disk_is_one_sentence():
    command = [sys.executable, "-m", "plan2explore", "--version"]
    with open("/dev/full", "w") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, check=False)
    assert ended.returncode == 2 and ended.stderr.count("\n") == 1 and "No space left on device" in ended.stderr


def test_a_console_whose_reader_left_ends_quietly():
    """Consoles of rich exit by themselves, with a status that would mean a fault."""
    code = "from plan2explore import cli, doctor; doctor.CHECKS = (); cli.main(['doctor'])"
    assert_quiet_without_reader(sys.executable, "-c", code)


def test_help_and_version_do_not_load_the_simulator():
    code = "import sys; from plan2explore.cli import main\n"
    code += "for flag in ('--help', '--version'):\n try: main([flag])\n except SystemExit: pass\n"
    code += "print([m for m in ('jax', 'mujoco', 'numba') if m in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(r"\nplan2explore \d+\.\d+\.\d+\n\[\]\n$", result.stdout)


def test_doctor_finds_this_machine_able(capsys, tmp_path):
    status, printed, _ = run(capsys, "doctor", "--json", str(tmp_path / "found.json"))
    assert status == 0, printed
    for word in ("Python", "JAX", "mujoco", "OpenGL", "ray-caster", "memory", "disk"):
        assert word in printed
    findings = json.loads((tmp_path / "found.json").read_text())
    assert all(finding["fix"] for finding in findings if finding["level"] != "fine")


def test_doctor_says_what_is_in_a_model_file_and_cannot_be_drawn(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(gl, "available_backends", list)
    status, printed, _ = run(capsys, "doctor", str(MODELS / "cart.xml"))
    assert status == 0 and "2 actuators: left, right" in printed and "1 cameras: side" in printed
    assert "an env step is 4 physics steps, 0.02 s" in printed and "the ray-caster draws all of it" in printed
    path = tmp_path / "model.xml"
    sky = "<asset><texture name='a' type='2d' builtin='flat' colorspace='sRGB' width='2' height='2'/>"
    floor = "<geom type='plane' size='1 1 1' material='a'/><body><joint name='a'/><geom size='1'/></body>"
    motor = "<actuator><motor name='push' joint='a'/></actuator>"
    path.write_text(f"<mujoco>{sky}<material name='a' texture='a'/></asset><worldbody>{floor}</worldbody>{motor}</mujoco>")
    status, printed, _ = run(capsys, "doctor", str(path))
    assert status == 0 and "the ray-caster cannot draw: sRGB texture" in printed and "--obs proprio" in printed
    assert "controls without a range go from -1 to 1: push" in printed
    path.write_text("<mujoco/>")
    status, printed, _ = run(capsys, "doctor", str(path))
    assert status == 1 and "has no actuators" in printed


def test_doctor_ends_with_1_only_for_what_stops_a_run(capsys, monkeypatch):
    note = doctor.Finding("note", "slow", "wait")
    monkeypatch.setattr(doctor, "CHECKS", (lambda: [note],))
    assert run(capsys, "doctor")[0] == 0
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda name: "4.0.0")
    monkeypatch.setattr(doctor, "CHECKS", (doctor._mujoco,))
    status, printed, _ = run(capsys, "doctor")
    assert status == 1 and "mujoco<4" in printed

    def broken():
        raise ImportError("no module of that name")

    monkeypatch.setattr(doctor, "CHECKS", (broken,))
    status, printed, _ = run(capsys, "doctor")
    assert status == 1 and "no module of that name" in printed


def test_bench_render_prints_and_writes_what_it_measured(capsys, tmp_path):
    file = tmp_path / "speed.json"
    status, printed, _ = run(
        capsys, "bench", "render", "--worlds", "pendulum", "--seconds", "0.2", "--backends", "raycast", "--json", str(file)
    )
    assert status == 0 and "agent steps/s" in printed
    measured = json.loads(file.read_text())
    assert measured["rows"][0]["one"] > 50 and measured["rows"][0]["all"] > 50
    assert measured["machine"]["cores"] >= 1 and measured["machine"]["time"]


# --- Explore, adapt, evaluate ---


def help_of(verb, monkeypatch, capsys, *arguments, flag="--help"):
    """The help of a verb as one line of words."""
    monkeypatch.setenv("COLUMNS", "100")
    status, printed, _ = run(capsys, verb, *arguments, flag)
    assert status == 0
    return " ".join(re.sub(r"[│╭╮╰╯─]", " ", printed).split())


def flags_of(kind, prefix=""):
    """Every setting of a configuration as its flag, with the default."""
    for each in fields(kind):
        value = getattr(kind, each.name)
        if is_dataclass(value):
            yield from flags_of(value, f"{prefix}{each.name}.")
        else:
            yield f"--{prefix}{each.name}".rstrip("_").replace("_", "-"), value


EXPLORE = "steps out preset method probe obs seed environments updates-per-episode env-arg config import"
SHORT = {
    "explore": EXPLORE,
    "learn": "updates out preset method probe obs size seed wandb no-wandb config import",
    "reproduce": "tasks methods seeds steps out preset shots updates final-episodes obs environments updates-per-episode on "
    "cell list no-list config import",
    "sweep": "worlds methods presets seeds vary probes steps out obs environments updates-per-episode on cell list no-list "
    "config import",
}


@pytest.mark.parametrize("verb", SHORT)
def test_help_is_short_in_a_sensible_order_and_names_the_option_that_shows_all(verb, monkeypatch, capsys):
    text = help_of(verb, monkeypatch, capsys)
    options = re.findall(r"--([a-z-]+)(?=,? (?:[A-Z{\[]|--|Also|List))", text.partition("show this help message")[2])
    assert options == SHORT[verb].split() and "--help-all shows every option" in text
    monkeypatch.setenv("COLUMNS", "80")
    assert len(run(capsys, verb, "--help")[1].splitlines()) <= 72
    assert "--agent.model.deter" in help_of(verb, monkeypatch, capsys, flag="--help-all")


@pytest.mark.parametrize("verb", ["explore", "learn", "adapt", "evaluate", "report", "look", "reproduce", "sweep"])
def test_help_of_what_makes_environments_tells_how_to_register_ones_own(verb, monkeypatch, capsys):
    assert re.search("--import MODULE:? A module to import first", help_of(verb, monkeypatch, capsys))


def test_help_all_of_explore_shows_every_knob_with_its_default(monkeypatch, capsys):
    text = help_of("explore", monkeypatch, capsys, flag="--help-all")
    knobs = [*flags_of(PRESETS["paper"], "agent."), *flags_of(Schedule()), *flags_of(WorldConfig())]
    for flag, value in knobs:
        if flag in ("--world", "--env-arg"):  # the first argument; one that may be repeated, and has no default
            continue
        shown = " ".join(map(str, value)) if isinstance(value, tuple) else str(value)
        about = re.search(rf"{flag}[ ,].*?\(default: ([^)]*)\)", text)
        assert about and about[1] == shown, flag
    for piece in (
        "--seed-episodes INT Episodes of random actions before anything is learned (the paper: 5). (default: 5)",
        "--agent.actor-critic.lambda FLOAT Mixing of n-step returns (lambda). (default: 0.95)",
        "--size INT Side of the images in pixels (the paper: 64). (default: 64)",
        "--action-repeat INT Env steps per action (the paper: 2). (default: 2)",
        "--method STR",
        "plan2explore, retrospective, max, curiosity, random, dreamer",
    ):
        assert piece in text


def test_help_of_explore_names_the_methods_and_presets(monkeypatch, capsys):
    text = help_of("explore", monkeypatch, capsys)
    named = re.search(r"--method STR (.*), or an objective of one's own", text)
    assert named and set(named[1].split(", ")) == set(METHODS)
    assert all(f"{preset}: " in text for preset in PRESETS)


def test_defaults_in_the_help_are_those_of_the_preset(monkeypatch, capsys):
    text = help_of("explore", monkeypatch, capsys, "--preset", "tiny", flag="--help-all")
    assert re.search(r"--agent.model.deter INT [^(]*\([^)]*\)[^(]*\(default: 64\)", text)
    assert help_of("explore", monkeypatch, capsys, "--preset=tiny", flag="--help-all") == text


OPTIONS = {
    "run.toml": """steps = 5e4
preset = "tiny"
probe = ["walker_walk", "walker_run"]
wandb = false
obs = "both"
[agent.intrinsic]
members = 7
max_log_variance = [-9.0, 1.0]
""",
    "run.yaml": """steps: 5e4
preset: tiny
probe: [walker_walk, walker_run]
wandb: false
obs: both
agent: {intrinsic: {members: 7, max_log_variance: [-9.0, 1.0]}}
""",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_read_from_a_file_and_the_command_line_wins(monkeypatch, capsys, tmp_path, name):
    given = []
    monkeypatch.setattr("plan2explore.phases.explore.explore", lambda *args, **options: given.append((args, options)))
    (tmp_path / name).write_text(OPTIONS[name])
    run(capsys, "explore", "walker", "--config", str(tmp_path / name))
    run(capsys, "explore", "walker", f"--config={tmp_path / name}", "--preset", "modern-tiny", "--obs", "proprio")
    (of_file, options), (_, changed) = given
    assert of_file[1] == 50_000 and [task.name for task in options["probes"]] == ["walker_walk", "walker_run"]
    assert options["config"].world.obs == "both" and not options["wandb"]
    ensemble = replace(PRESETS["tiny"].intrinsic, members=7, max_log_variance=(-9.0, 1.0))
    assert options["config"].agent == replace(PRESETS["tiny"], intrinsic=ensemble)
    assert changed["config"].world.obs == "proprio" and changed["config"].agent.model == PRESETS["modern-tiny"].model


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "run.toml cannot be read: No such file"),
        ("steps = = 3", "run.toml is neither TOML (.toml) nor YAML"),
        ("", "run.yaml has no options"),
        ('presett = "tiny"', "Unrecognized options: --presett"),
    ],
)
def test_a_config_file_that_cannot_be_used_is_said(capsys, tmp_path, text, sentence):
    file = tmp_path / ("run.yaml" if text == "" else "run.toml")
    if text is not None:
        file.write_text(text)
    status, printed, error = run(capsys, "explore", "walker", "--config", str(file))
    assert status == 2 and sentence in printed + error


COMPLETE = """source {script}
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 ))
_tyro_plan2explore
echo "${{COMPREPLY[*]}}"
"""


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("plan2explore ex", "explore export"),
        ("plan2explore explore walker --pre", "--preset"),
        ("plan2explore explore walker --preset mod", "modern modern-tiny"),
        ("plan2explore explore walker --agent.intrinsic.mem", "--agent.intrinsic.members"),
        ("plan2explore table --ga", "--gate"),
    ],
)
def test_a_shell_completes_commands_options_and_values(words, found, completion):
    asked = COMPLETE.format(script=completion, words=words)
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == found.split()


@pytest.fixture(scope="module")
def completion(tmp_path_factory):
    """The script that `plan2explore --tyro-print-completion bash` prints, in a file."""
    file = tmp_path_factory.mktemp("completion") / "plan2explore"
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        main(["--tyro-print-completion", "bash"])
    file.write_text(printed.getvalue())
    return file


@pytest.mark.parametrize(
    "flags",
    [
        ("--agent.intrinsic.members", "7", "--agent.actor-critic.lambda", "0.5", "--obs", "proprio"),
        ("--agent.novelty.members", "7", "--agent.behavior.trace", "0.5", "--see", "proprio"),
    ],
)
def test_flags_have_their_names_of_today_and_those_of_version_0_1(monkeypatch, capsys, flags):
    given = []
    monkeypatch.setattr("plan2explore.phases.explore.explore", lambda *args, **options: given.append(options["config"]))
    run(capsys, "explore", "walker", *flags)
    (config,) = given
    assert (config.agent.intrinsic.members, config.agent.actor_critic.lambda_, config.world.obs) == (7, 0.5, "proprio")


def test_help_of_adapt_and_evaluate_shows_what_they_take(monkeypatch, capsys):
    text = help_of("adapt", monkeypatch, capsys)
    assert "0 is zero-shot (the paper's few-shot: 150). (default: 0)" in text
    for flag in ("--task", "--reward", "--updates", "--at", "--out", "--evaluate-episodes"):
        assert flag in text
    text = help_of("evaluate", monkeypatch, capsys)
    for flag in ("--episodes INT Episodes to play. (default: 10)", "--video", "--reward", "--json", "--mode"):
        assert flag in text


def test_evaluate_says_whether_its_scores_are_kept(monkeypatch, capsys, tmp_path):
    folder = RunFolder.create(tmp_path / "adapted", "adapt", {})
    scores = Scores("walker_walk", (3.0, 4.0, 8.0))
    policy = SimpleNamespace(path=folder.path, evaluate=lambda *arguments: scores)
    monkeypatch.setattr(load, "load_for_evaluation", lambda *arguments: policy)
    status, printed, _ = run(capsys, "evaluate", str(folder.path))
    assert status == 0 and printed.endswith("\nThese scores are not kept: --json FILE writes them to a file.\n")
    file = tmp_path / "scores.json"
    status, printed, _ = run(capsys, "evaluate", str(folder.path), "--json", str(file))
    assert status == 0 and printed.endswith(f"\nscores: {file}\n") and json.loads(file.read_text())["mean"] == 5.0
    assert not folder.evaluations_file.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("explore", "walkr"), "no world or task 'walkr'. Nearest names: walker"),
        (("explore", "walker", "--method", "boredom"), "no objective 'boredom': choose one of plan2explore, retrospective"),
        (("explore", "walker", "--preset", "huge"), "invalid choice 'huge'"),
        (("explore", "walker", "--probe", "walker_wlk"), "Nearest names: walker_walk"),
        (("explore", "walker", "--probe", "rewards.py:moonwalk"), "There is no file rewards.py"),
        (("explore", "walker", "--steps", "many"), "--steps"),
        (("explore", "walker", "--steps", "inf"), "A number of env steps is one such as 1e6; got inf"),
        (("explore", "walker", "--seed", "-1"), "seed must be from 0 to 4294967295; got -1"),
        (("explore", "walker", "--agent.batch", "0"), "agent.batch must be at least 1; got 0"),
        (("explore", "runs/walker"), "There is no run in runs/walker: there is no such folder. A new run needs a world's"),
        (("explore", "gymnasium:my_worlds:Dot-v0"), "no module 'my_worlds' on Python's path. If it is in this"),
        (("adapt", "nowhere", "--task", "walker_walk", "--at", "inf"), "one such as 1e6; got inf"),
        (("explore", "walker", "--colour", "red"), "Unrecognized options: --colour"),
        (("adapt", "nowhere", "--task", "walker_walk"), "There is no folder nowhere"),
        (("adapt", "nowhere"), "--task NAME, or a reward of your own as --reward file.py:function"),
        (("adapt", "nowhere", "--task", "walker_walk", "--reward", "a.py:b"), "Both --task walker_walk and --reward a.py:b"),
        (("adapt", "nowhere", "--task", "walker_jog"), "Nearest names: walker, walker_run"),
        (("evaluate", "nowhere", "--json", "new/x.json"), "There is no folder nowhere"),
        (("learn", "x.npz", "--updates", "0"), "updates must be at least 1; got 0"),
        (("reproduce", "zero-shot", "--final-episodes", "0"), "final_episodes must be at least 1; got 0"),
    ],
)
def test_mistakes_of_the_phases_end_in_a_sentence_and_leave_nothing(capsys, tmp_path, monkeypatch, arguments, sentence):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    status, printed, error = run(capsys, *arguments)
    assert status == 2
    assert sentence in printed + error and "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("flags", [("--shots", "-1"), ("--updates", "-1")])
def test_an_adaptation_of_a_negative_length_is_a_short_sentence(capsys, tmp_path, flags):
    RunFolder.create(tmp_path / "run", "explore", {})
    status, _, error = run(capsys, "adapt", str(tmp_path / "run"), "--task", "walker_walk", *flags)
    assert status == 2 and f"{flags[0][2:]} must be at least" in error and error.endswith("; got -1.\n") and len(error) < 80


def test_a_folder_that_is_no_run_is_said_but_does_not_hide_a_world_of_its_name(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine").mkdir()
    (tmp_path / "walker").mkdir()
    assert "There is no run in mine: it has no run.json" in run(capsys, "explore", "mine")[2]
    assert "seed must be" in run(capsys, "explore", "walker", "--seed", "-1")[2]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["mine", "walker"]


def test_a_world_that_cannot_draw_itself_leaves_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    status, _, error = run(capsys, "explore", "gymnasium:Pendulum-v1")
    assert status == 2 and "gymnasium:Pendulum-v1 needs another package to draw itself" in error
    assert list(tmp_path.iterdir()) == []


def test_the_package_lists_what_it_is_for():
    assert dir(plan2explore) == sorted([*plan2explore.__all__, "__version__"])
    assert all(hasattr(plan2explore, name) for name in dir(plan2explore))


MODELS = Path(__file__).parents[1] / "examples" / "models"
WORLDS = """
import gymnasium, numpy as np
class Dot(gymnasium.Env):
    metadata = {"render_modes": ["rgb_array"]}
    observation_space = action_space = gymnasium.spaces.Box(-1, 1, (2,))
    def __init__(self, render_mode=None, start=0.0): self.render_mode, self.start = render_mode, start
    def reset(self, *, seed=None, options=None): return np.full(2, self.start, np.float32), {}
    def step(self, action): return np.full(2, self.start, np.float32), 0.0, False, False, {}
    def render(self): return np.full((16, 16, 3), 255 * self.start, np.uint8)
gymnasium.register("Dot-v0", entry_point=Dot, max_episode_steps=4)
"""


def test_modules_are_imported_from_the_command_line_and_arguments_reach_the_environment(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cli_worlds.py").write_text(WORLDS)
    look = ["look", "gymnasium:Dot-v0", "--env-arg", "start=0.5", "--size", "16", "--action-repeat", "1"]
    status, _, said = run(capsys, *look)
    assert status == 2 and "add --import MODULE" in said
    (tmp_path / "look.toml").write_text('import = ["json", "cli_worlds"]')
    status, printed, _ = run(capsys, *look, "--config", "look.toml", "--import", "math")
    assert status == 0 and "4 agent steps" in printed
    assert (tmp_path / "look" / "gymnasium_Dot-v0_start_0.5.png").is_file()
    status, _, said = run(capsys, "look", "walker", "--env-arg", "start=1")
    assert status == 2 and "walker takes no arguments" in said
    status, _, said = run(capsys, "look", "walker", "--import=nowhere")
    assert status == 2 and "--import nowhere: ModuleNotFoundError" in said
