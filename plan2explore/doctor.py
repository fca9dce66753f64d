"""`plan2explore doctor`: what this machine has, against what a paper-size run needs; each problem with its fix."""

import functools
import importlib.metadata
import json
import os
import platform
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.markup import escape

# A run of the paper: frames of 64 x 64 x 3 bytes, 501 in an episode of 1000 env steps, all kept in memory.
EPISODE_BYTES = 501 * 64 * 64 * 3
SHORT_RUN, LONG_RUN = 1000, 3500  # episodes: the paper's few-shot and zero-shot runs
GIB = 2**30


@dataclass(frozen=True)
class Finding:
    """One thing looked at: `fine`, a `note` (slower or smaller than the paper's), or a `stop` (no run is possible)."""

    level: str
    what: str
    fix: str = ""


def examine(out: Path | None = None, model: Path | None = None) -> int:
    """Prints every finding about the machine, or about a model file; 1 only if something stops a run."""
    console = Console()
    signs = {"fine": "[green]ok[/]  ", "note": "[yellow]note[/]", "stop": "[red]STOP[/]"}
    findings = []
    for check in CHECKS if model is None else (functools.partial(_model, model),):
        name = getattr(check, "__name__", "the model").strip("_")
        if check is _renderer:  # the longest, and a status line is not seen in a log
            console.print("The ray-caster is compiled, if it was not yet: up to a minute ...", soft_wrap=True)
        try:
            with console.status(f"looking at {name} ..."):
                found = check()
        except Exception as error:  # a check that breaks is itself a finding
            fix = "install the package again in a new environment"
            found = [Finding("stop", f"{name}: {type(error).__name__}: {error}", fix)]
        for finding in found:
            console.print(f"{signs[finding.level]}  {escape(finding.what)}", soft_wrap=True)
            if finding.fix:
                console.print(f"      fix: {escape(finding.fix)}", soft_wrap=True)
        findings += found
    stopped = any(finding.level == "stop" for finding in findings)
    console.print("Something above stops every run." if stopped else "Runs are possible here.")
    if out:
        out.write_text(json.dumps([asdict(finding) for finding in findings], indent=1) + "\n")
    return int(stopped)


def _model(path: Path) -> list[Finding]:
    """What an agent would do and observe in a model file, and what the ray-caster cannot draw of it."""
    from .envs.mjcf import load_world
    from .envs.names import MJCF
    from .envs.render import gl, mjraycast

    try:
        world = load_world(f"{MJCF}{path}")
    except ValueError as error:
        return [Finding("stop", str(error), "give a model that MuJoCo can load, with actuators")]
    model = world.model
    seconds = world.substeps * model.opt.timestep
    parts = {
        "actuators": [model.actuator(index).name for index in range(model.nu)],
        "joints": [model.joint(index).name for index in range(model.njnt)],
        "sensors": [model.sensor(index).name for index in range(model.nsensor)],
        "cameras": [model.camera(index).name for index in range(model.ncam)],
        "key frames": [model.key(index).name for index in range(model.nkey)],
    }
    found = [
        Finding("fine", f"{len(names)} {what}" + (f": {', '.join(name or 'unnamed' for name in names)}" if names else ""))
        for what, names in parts.items()
    ]
    found.append(Finding("fine", f"an env step is {world.substeps} physics steps, {seconds:.3g} s"))
    endless = [name for name, ranged in zip(parts["actuators"], model.actuator_ctrllimited, strict=True) if not ranged]
    if endless:
        fix = "give them a ctrlrange in the model"
        found.append(Finding("note", f"controls without a range go from -1 to 1: {', '.join(endless)}", fix))
    missing = mjraycast.unsupported(model, 0 if model.ncam else -1)
    if not missing:
        found.append(Finding("fine", "the ray-caster draws all of it"))
    else:
        fix = "OpenGL draws it, more slowly" if gl.available_backends() else gl.HOW_TO_GET_GL
        found.append(Finding("note", f"the ray-caster cannot draw: {', '.join(missing)}", f"{fix}; or --obs proprio"))
    found.append(Finding("fine", f"explore it: plan2explore explore {MJCF}{path} --out runs/{path.stem}"))
    return found


def _python() -> list[Finding]:
    what = f"Python {platform.python_version()}, {platform.system()} {platform.machine()}"
    if platform.system() != "Linux":
        return [Finding("stop", what, "use Linux: worker processes share memory by its means")]
    return [Finding("fine", what)]


def _jax() -> list[Finding]:
    import jax

    devices = jax.devices()
    kinds = ", ".join(sorted({device.device_kind for device in devices}))
    what = f"JAX {jax.__version__}, {len(devices)} x {kinds} ({devices[0].platform})"
    if devices[0].platform != "cpu":
        return [Finding("fine", what)]
    if shutil.which("nvidia-smi"):
        unused = f"{what}: there is an NVIDIA GPU, but JAX does not use it"
        return [Finding("note", unused, "pip install -e '.[cuda]'")]
    slow = f"{what}: no GPU, so small models and demos only; the paper's sizes are for a GPU"
    return [Finding("note", slow, "use a machine with an NVIDIA GPU for runs of the paper's size")]


def _mujoco() -> list[Finding]:
    versions = {name: importlib.metadata.version(name) for name in ("mujoco", "dm_control", "gymnasium")}
    what = ", ".join(f"{name} {version}" for name, version in versions.items())
    if int(versions["mujoco"].split(".")[0]) >= 4:
        return [Finding("stop", what, "pip install 'mujoco<4': dm_control does not run with MuJoCo 4")]
    return [Finding("fine", what)]


def _opengl() -> list[Finding]:
    from .envs.render import gl

    found = gl.available_backends()
    if found:
        return [Finding("fine", f"OpenGL: {', '.join(found)} (needed only for skins, height fields and flexes)")]
    fix = "as root: apt-get install libosmesa6, or libegl1 with your GPU's driver"
    none = "OpenGL: none; only worlds with skins, height fields or flexes (dog, quadruped_escape) need it"
    return [Finding("note", none, fix)]


def _renderer() -> list[Finding]:
    from .bench.render import one_process

    start = time.perf_counter()
    speed = one_process("cheetah", "raycast", 64, 1.5)
    ready = time.perf_counter() - start - 1.5
    cores = len(os.sched_getaffinity(0))
    minutes = 500_000 / (speed * cores) / 60
    return [
        Finding("fine", f"ray-caster: {speed:.0f} agent steps/s of cheetah in one process (ready in {ready:.1f} s)"),
        Finding("fine", f"{cores} usable cores: 1M env steps of cheetah about {minutes:.0f} min of stepping and drawing"),
    ]


def _room() -> list[Finding]:
    total, free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), shutil.disk_usage(Path.cwd()).free
    return [
        _against("memory", total, "frames are kept in memory: use fewer steps, or a machine with more"),
        _against("free disk here", free, "run in a folder on a larger disk, or free some space"),
    ]


def _against(what: str, bytes_here: int, fix: str) -> Finding:
    short, long = SHORT_RUN * EPISODE_BYTES, LONG_RUN * EPISODE_BYTES
    text = f"{what}: {bytes_here / GIB:.1f} GiB; frames of 1M env steps take {short / GIB:.1f}, of 3.5M {long / GIB:.1f}"
    if bytes_here < EPISODE_BYTES * 20:
        return Finding("stop", text, fix)
    return Finding("fine", text) if bytes_here > 1.2 * long else Finding("note", text, fix)


CHECKS = (_python, _jax, _mujoco, _opengl, _renderer, _room)
