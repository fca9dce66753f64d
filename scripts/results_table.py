"""The table of all 20 tasks in docs/results.md, made from results/:

python scripts/results_table.py
"""

from pathlib import Path

from plan2explore.reference import TASK_AVERAGE, paper_table, published_curve, with_reward
from plan2explore.report.tables import result_rows
from plan2explore.runs.results import OFFLINE, PROBE, read_results

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results.md"
BEGIN, END = "<!-- scripts/results_table.py -->\n", "<!-- end -->\n"
COLUMNS = {
    "`paper`, `through`": ("results/zero_shot.csv", "plan2explore", PROBE),
    "`paper`, `stopped`": ("results/stopped/zero_shot.csv", "plan2explore", PROBE),
    "`modern`, probe": ("results/modern.csv", "plan2explore", PROBE),
    "`modern`, from replay": ("results/modern.csv", "plan2explore", OFFLINE),
    "random exploration": ("results/zero_shot.csv", "random", PROBE),
}
STEPS, SLACK = 500_000, 1.02
Scores = dict[str, float]


def scores_of(file: str, method: str, protocol: str) -> Scores:
    """Scores at 0.5M env steps by task: the mean of the last 20 episodes."""
    rows = result_rows(read_results([ROOT / file]))
    rows = [row for row in rows if (row["method"], row["protocol"]) == (method, protocol)]
    return {row["task"]: float(row["score"]) for row in rows if STEPS / SLACK < row["env_steps"] < STEPS * SLACK}


def table() -> str:
    """The table as Markdown. A column's mean is over the tasks that it has; theirs are beside it."""
    tasks = [task for task in paper_table(1) if task != TASK_AVERAGE]
    columns = {name: scores_of(*source) for name, source in COLUMNS.items()}
    curves = {task: [point for point in published_curve(task) if point.env_steps == STEPS] for task in tasks}
    published = {task: points[0].mean for task, points in curves.items() if points}
    reward = {task: score for task in tasks if (score := with_reward(task, STEPS)) is not None}
    columns |= {"published Plan2Explore": published, "DreamerV3, with reward": reward}
    rows = [["task", *columns], ["---"] * (1 + len(columns))]
    rows += [[task, *(f"{scores[task]:.0f}" if task in scores else "" for scores in columns.values())] for task in tasks]
    for name, other in (("mean", None), ("published mean of the same tasks", published), ("with reward", reward)):
        row = [f"{name} of {len(tasks)}" if other is None else name]
        for scores in columns.values():
            mine = [task for task in scores if task in tasks]
            values = [(scores if other is None else other)[task] for task in mine]
            count = "" if other is not None or len(mine) == len(tasks) else f" ({len(mine)} tasks)"
            row.append(f"{sum(values) / len(values):.0f}{count}")
        rows.append(row)
    return "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"


def page() -> str:
    """The page with its table made anew."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page())
