"""What happened, in a sentence."""

from collections.abc import Sequence

from .explored import Explored, last_of
from .html import Markup, text
from .scores import SOLVED, Scored, find_scores, solved


def headline(every: Sequence[Explored]) -> Markup:
    """Coverage and tasks of the method that explores, and in parentheses of the others."""
    methods = sorted(dict.fromkeys(explored.method for explored in every), key=lambda method: method == "random")
    runs = {method: [explored for explored in every if explored.method == method] for method in methods}
    said = [sentence for sentence in (_coverage(runs), _tasks(runs)) if sentence]
    worlds = ", ".join(dict.fromkeys(explored.world for explored in every))
    steps = max(int(last_of(explored.metrics, "env_steps")) for explored in every)
    seeds = max(map(len, runs.values()))
    about = f"{methods[0]} in {worlds}, {steps:,} env steps" + (f", {seeds} runs" if seeds > 1 else "")
    return text(f"{about}: {'; '.join(said)}." if said else f"{about}.")


def _coverage(runs: dict[str, list[Explored]]) -> str:
    """Of mazes, the share of free cells; means over seeds."""
    shares = {method: [last_of(explored.metrics, "coverage") for explored in each] for method, each in runs.items()}
    told = {method: f"{sum(each) / len(each):.0%}" for method, each in shares.items() if all(each)}
    return _beside("visited {} of the maze", told)


def _tasks(runs: dict[str, list[Explored]]) -> str:
    found = {method: [scored for explored in each for scored in find_scores(explored)] for method, each in runs.items()}
    counts = {method: count for method, each in found.items() if (count := solved(each))}
    if counts and len(counts) == sum(map(bool, found.values())):
        told = {method: f"{done} of {count}" for method, (done, count) in counts.items()}
        return _beside("{} tasks solved", told) + f", with a score of {SOLVED} or more"
    return _beside("last scores: {}", {method: _last(each) for method, each in found.items() if each})


def _last(found: Sequence[Scored]) -> str:
    """The last score of each task, of several the best."""
    best: dict[str, float] = {}
    for each in found:
        best[each.last.task] = max(best.get(each.last.task, each.last.score), each.last.score)
    return ", ".join(f"{task} {score:,.0f}" for task, score in best.items())


def _beside(sentence: str, told: dict[str, str]) -> str:
    """The first method's words, and the others' in parentheses."""
    if not told:
        return ""
    words, others = next(iter(told.values())), list(told.items())[1:]
    listed = ", ".join(f"{name} {value}" for name, value in others)
    return sentence.format(words) + (f" ({listed})" if listed else "")
