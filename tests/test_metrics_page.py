"""docs/metrics.md explains every metric that a run writes, and no other."""

import ast
import re
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp

from plan2explore.agent.learner import Learner
from plan2explore.config import AgentConfig, ExploreConfig, Schedule, Spaces, WorldConfig, modern_tiny, tiny
from plan2explore.phases.adapt import task_agent
from plan2explore.runs.metrics import tag_of

ROOT = Path(__file__).parents[1]


def metrics_of(agent: AgentConfig) -> set[str]:
    """The names that an update of this agent with one task gives, as the page of metrics writes them."""
    learner = Learner(agent, Spaces(action=2, proprio=4, tasks=1, terminates=True))
    shapes = {"action": (2,), "proprio": (4,), "reward": (1,), "is_first": (), "is_terminal": (), "image": (64, 64, 3)}
    shapes["features"] = (learner.agent.sizes.deter + learner.agent.sizes.stoch,)
    kinds = {"is_first": bool, "is_terminal": bool, "image": jnp.uint8}
    batch = {name: jax.ShapeDtypeStruct((2, 3, *shape), kinds.get(name, jnp.float32)) for name, shape in shapes.items()}
    _, metrics = jax.eval_shape(learner.update, jax.eval_shape(learner.init, jax.random.key(0)), batch)
    names = {re.sub("^(explorer|task 0)/", "NAME/", name) for name in metrics if not name.endswith("/finite")}
    return {re.sub("^NAME/reward([_/])", r"TASK/reward\1", name) for name in names}


def written_beside_updates() -> set[str]:
    """The names that callbacks add: keys of `values`, and literal names of metrics, histograms and videos."""
    found = set()
    for file in ("callbacks.py", "watch.py"):
        for node in ast.walk(ast.parse((ROOT / "plan2explore" / "phases" / file).read_text())):
            if isinstance(node, ast.AugAssign) and ast.unparse(node.target) == "values":
                found |= {key.value for part in ast.walk(node) if isinstance(part, ast.Dict) for key in part.keys}
            if isinstance(node, ast.Call) and re.search(r"metrics\.(histogram|video|write)$", ast.unparse(node.func)):
                name = node.args[1].key if isinstance(node.args[1], ast.DictComp) else node.args[1]
                if isinstance(name, ast.Constant | ast.JoinedStr):
                    found.add(re.sub(r"\{.*?\}", "TASK", ast.unparse(name).strip("f'")))
    return found


def test_every_metric_is_explained_and_no_other():
    text = (ROOT / "docs" / "metrics.md").read_text()
    rows = [
        [re.findall(r"`([\w/]+)`", cell) for cell in row.split("|")] for row in re.findall(r"^\| (`.+|\| `.+)$", text, re.M)
    ]
    lines, tags = {name for row in rows for name in row[0]}, {name for row in rows for name in row[1]}
    objectives = ("plan2explore", "max", "curiosity")
    explorers = [replace(tiny, intrinsic=replace(tiny.intrinsic, objective=name)) for name in objectives]
    explored = ExploreConfig(WorldConfig("maze_u"), Schedule(), modern_tiny)
    updates = set.union(*map(metrics_of, [*explorers, modern_tiny]))
    written = written_beside_updates()
    in_each_line = {"env_steps", "time"}
    for name in updates | written | in_each_line:
        assert name in lines or tag_of(name) in tags, f"docs/metrics.md does not explain {name}"
    assert lines <= updates | written | in_each_line
    from_replay = re.findall(r"^\| (`.*?) \| .*? \| .+ \|$", text[text.index("| from replay |") :], re.M)
    named = {name for cell in from_replay for name in re.findall("`(.*?)`", cell)}
    assert named == {name for name in metrics_of(task_agent(explored, learn_model=False)) if name[:4] in ("NAME", "TASK")}
