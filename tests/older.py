"""What version 0.1 wrote: settings under their older names, and checkpoints of format 1."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from plan2explore.config import RENAMED
from plan2explore.runs import checkpoint
from plan2explore.runs.checkpoint import load_arrays, save_arrays

ADDED = {
    "latent", "core", "classes", "blocks", "prior_depth", "norm", "symlog", "reward_head", "continue_scale",
    "continue_gradient", "rep_scale", "normalize", "max_reduce", "actor_gradient", "critic_head", "mean_scale", "min_std",
    "max_std", "entropy", "normalize_returns", "slow_critic", "bound_values", "warmup",
}  # fmt: skip
"""Some settings that came later, and are not in older files."""


def older_settings(values: Any) -> Any:
    """Plain values under their older names, without those that came later."""
    if not isinstance(values, dict):
        return values
    old = {new: name for name, new in RENAMED.items()}
    return {old.get(name, name): older_settings(value) for name, value in values.items() if name not in ADDED}


def write_format_1(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> None:
    """A checkpoint as version 0.1 wrote it: other names, and no statistics."""
    old = {new: name for name, new in checkpoint.RENAMED.items()}
    named = {"/".join(old.get(part, part) for part in name.split("/")): array for name, array in arrays.items()}
    kept = {name: array for name, array in named.items() if name != "slow_critic" and not name.startswith("stats/")}
    save_arrays(path, kept, meta)
    description = path.with_name(path.name + ".json")
    description.write_text(json.dumps(json.loads(description.read_text()) | {"format": 1}))


def make_older(run: Path) -> None:
    """Rewrites a run as version 0.1 would have left it."""
    content = json.loads((run / "run.json").read_text())
    content["settings"]["config"] = older_settings(content["settings"]["config"])
    (run / "run.json").write_text(json.dumps(content))
    for file in [*(run / "checkpoints").glob("*.json"), *(run / "snapshots").glob("*.json")]:
        write_format_1(file.with_suffix(""), *load_arrays(file.with_suffix("")))
