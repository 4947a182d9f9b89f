"""scikit-learn's own checks of an estimator, for every method; as a script, `estimator_checks.py KEY ...` or all."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import SkipTest

from sklearn.utils.estimator_checks import estimator_checks_generator

from gpexplorer import Estimator
from gpexplorer.methods.base import registry

SMALL: dict[str, Any] = {  # enough to fit the few rows of a check; given to the methods that have such a setting
    "evaluations": 4, "max_iterations": 30, "num_eigenfunctions": 30, "grid_points": 5, "num_features": 20, "epochs": 3,
    "search": 2, "trial": 1, "chains": 2, "warm_up": 3, "folds": 2, "num_rows": 30, "num_regressors": 12,
}  # fmt: skip
STEPS = 15
LONGER = {"sdd": 200}  # steps of the methods whose first ones fit no better than the mean
# A row of weight 2 is not two rows where rows are drawn at random and standardised; array API needs other packages.
LEFT_OUT = ("array_api", "check_sample_weight_equivalence")


def report(keys: Sequence[str], only: str = "") -> Iterator[str]:
    """Run the checks of every method.

    Parameters
    ----------
    keys : sequence of str
        Methods.
    only : str
        Run the checks whose names contain this.

    Yields
    ------
    str
        One line per method: checks passed, those that need weights and are refused in a sentence, and those failed.
    """
    for key in keys:
        settings = {name: value for name, value in SMALL.items() if name in registry[key].param}
        steps = LONGER.get(key, STEPS)
        if "max_iterations" in settings:
            settings["max_iterations"] = max(settings["max_iterations"], steps)
        model, begun = Estimator(key, num_inducing=8, settings=settings, budget={"steps": steps}), time.process_time()
        passed, refused, failed = 0, 0, []
        for estimator, check in estimator_checks_generator(model):
            name: str = check.func.__name__
            if only not in name or any(part in name for part in LEFT_OUT):
                continue
            problem = _problem(estimator, check)
            if not problem:
                passed += 1
            elif "sample_weight" in name and not registry[key].row_noise and "takes no relative noise" in problem:
                refused += 1
            else:
                failed.append(f"{name} ({problem[:60]})")
        seconds = time.process_time() - begun
        yield f"{key:<26}{passed:>4} passed{refused:>4} refuse weights  {seconds:>6.1f} s  {'; '.join(failed)}".rstrip()


def _problem(estimator: Any, check: Any) -> str:
    """What a check found; empty if it has passed or does not apply."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check(estimator)
    except SkipTest:
        return ""
    except Exception as error:  # a check may raise anything
        causes = [str(cause) for cause in (error, error.__cause__, error.__context__) if cause is not None]
        return next((text for text in causes if "takes no relative noise" in text), f"{type(error).__name__}: {error}")
    return ""


if __name__ == "__main__":
    for each in report(sys.argv[1:] or sorted(registry)):
        print(each, flush=True)
