"""A reward is known again by all that it consists of, and two that differ in anything are two."""

import functools
import math
import re
import sys
import threading
from dataclasses import dataclass
from types import ModuleType

import jax
import numpy as np
import pytest

from plan2explore import Task
from plan2explore.envs.identity import NoIdentity, digest_of

HEIGHT = 1.0
LIMITS = {"low": [0.0, 1.0], "high": np.arange(3)}
constants = ModuleType("constants")
constants.SPEED = 2.0


def helper(x):
    return x > HEIGHT


def reads_globals(physics):
    data = [helper(each) for each in LIMITS["low"]]
    return sum(data) * constants.SPEED + math.pi


def closes_over(speed):
    def reward(physics):
        return speed * 2

    return reward


def takes(physics, speed=1.0, *, scale=1.0):
    return speed * scale


@dataclass
class Reach:
    target: np.ndarray
    radius: float = 0.1

    def __call__(self, physics):
        return float(np.linalg.norm(self.target) < self.radius)

    def near(self, physics):
        return self(physics)


class Counts:
    WEIGHT = 1.0

    def __call__(self, physics):
        return self.WEIGHT


ONE = np.array([1.0, 2.0])
PAIRS = {
    "closures": (closes_over(1.0), closes_over(2.0)),
    "partials": (functools.partial(takes, speed=1.0), functools.partial(takes, speed=2.0)),
    "attributes": (Reach(ONE), Reach(ONE + 1e-9)),
    "methods": (Reach(ONE).near, Reach(ONE, 0.2).near),
    "lambdas on one line": (lambda physics: 1.0, lambda physics: 2.0),
    "functions in closures": (closes_over(helper), closes_over(takes)),
    "functions of packages": (np.sin, np.cos),
    "built-in functions": (math.sin, math.cos),
    "methods of built-in objects": ([1].count, [2].count),
    "compiled patterns": (closes_over(re.compile("a")), closes_over(re.compile("b"))),
    "sets": (closes_over({1, 2}), closes_over({1, 3})),
    "types of numbers": (closes_over(1), closes_over(1.0)),
    "compiled by JAX": (jax.jit(closes_over(1.0)), jax.jit(closes_over(2.0))),
}


@pytest.mark.parametrize("what", PAIRS)
def test_two_rewards_that_differ_have_two_digests(what):
    one, other = PAIRS[what]
    assert digest_of(one) != digest_of(other)
    assert digest_of(one) == digest_of(one)


def test_the_same_made_twice_has_one_digest():
    assert digest_of(closes_over(LIMITS)) == digest_of(closes_over({"low": [0.0, 1.0], "high": np.arange(3)}))
    assert digest_of(Reach(ONE)) == digest_of(Reach(ONE.copy()))
    assert digest_of(functools.partial(takes, speed=1.0)) == digest_of(functools.partial(takes, speed=1.0))


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [
        (sys.modules[__name__], "HEIGHT", 2.0),
        (sys.modules[__name__], "helper", takes),
        (constants, "SPEED", 3.0),
        (LIMITS, "low", [0.0, 2.0]),
    ],
)
def test_constants_and_functions_that_it_reads_count(place, name, value, monkeypatch):
    before = digest_of(reads_globals)
    monkeypatch.setitem(place, name, value) if isinstance(place, dict) else monkeypatch.setattr(place, name, value)
    assert digest_of(reads_globals) != before


def test_defaults_and_attributes_of_classes_count(monkeypatch):
    before, reward = digest_of(takes), Counts()
    counted = digest_of(reward)
    monkeypatch.setattr(takes, "__kwdefaults__", {"scale": 2.0})
    monkeypatch.setattr(Counts, "WEIGHT", 2.0)
    assert digest_of(takes) != before and digest_of(reward) != counted


def test_globals_that_it_does_not_read_do_not_count(monkeypatch):
    before = digest_of(reads_globals)
    monkeypatch.setattr(sys.modules[__name__], "data", 1, raising=False)  # a local variable there
    monkeypatch.setattr(constants, "OTHER", 1, raising=False)
    assert digest_of(reads_globals) == before


def test_what_has_no_identity_is_refused_unless_the_user_names_it():
    reward = closes_over(threading.Lock())
    with pytest.raises(NoIdentity, match="cannot pickle"):
        digest_of(reward)
    with pytest.raises(ValueError, match=r"The reward 'mine' uses something .*lock.*version='1'"):
        _ = Task("mine", reward=reward).digest
    assert Task("mine", reward, version="1").digest == Task("mine", abs, version="1").digest == "version 1"


def test_a_package_counts_by_its_name_wherever_pip_has_installed_it(tmp_path, monkeypatch):
    """On `PYTHONPATH`, say, or in another environment's folder: NumPy's functions hold what has no identity."""
    for name in ("installed", "written"):
        (tmp_path / name / f"{name}_package").mkdir(parents=True)
        (tmp_path / name / f"{name}_package" / "__init__.py").write_text("from .inner import norm\n")
        source = "import threading\nlock = threading.Lock()\ndef norm(x):\n    with lock:\n        return x\n"
        (tmp_path / name / f"{name}_package" / "inner.py").write_text(source)
        monkeypatch.syspath_prepend(str(tmp_path / name))
    (tmp_path / "installed" / "installed_package-1.0.dist-info").mkdir()
    import installed_package
    import written_package

    assert digest_of(closes_over(installed_package.norm)) != digest_of(closes_over(np.linalg.norm))
    with pytest.raises(NoIdentity, match="cannot pickle"):
        digest_of(closes_over(written_package.norm))
