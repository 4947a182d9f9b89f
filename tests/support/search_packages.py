"""Stand-ins for Optuna and MLflow: what the documentation calls of them, with their signatures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from types import ModuleType
from typing import Any


class Trial:
    """A trial that takes the first or the last choice of every name."""

    def __init__(self, number: int, reported: list[float]) -> None:
        self.number, self.params, self._reported = number, dict[str, Any](), reported

    def suggest_int(self, name: str, low: int, high: int, *, step: int = 1, log: bool = False) -> int:
        self.params[name] = high if self.number else low
        return self.params[name]

    def suggest_categorical(self, name: str, choices: Sequence[Any]) -> Any:
        self.params[name] = choices[-1 if self.number else 0]
        return self.params[name]

    def report(self, value: float, step: int) -> None:
        assert isinstance(value, float)
        assert isinstance(step, int)
        self._reported.append(value)

    def should_prune(self) -> bool:
        return False


class Study:
    """Runs the objective for each trial, one after another."""

    def __init__(self) -> None:
        self.reported: list[float] = []
        self._done: list[tuple[float, dict[str, Any]]] = []

    def optimize(self, objective: Callable[[Trial], float], n_trials: int) -> None:
        for number in range(n_trials):
            trial = Trial(number, self.reported)
            self._done.append((objective(trial), trial.params))

    @property
    def best_params(self) -> dict[str, Any]:
        return min(self._done, key=lambda done: done[0])[1]

    @property
    def best_value(self) -> float:
        return min(self._done, key=lambda done: done[0])[0]


def stand_ins() -> dict[str, Any]:
    """The two packages as modules; `mlflow.logged` has what was logged last under each name."""
    optuna, mlflow = ModuleType("optuna"), ModuleType("mlflow")
    logged: dict[str, Any] = {}

    def log_metric(key: str, value: float, step: int | None = None) -> None:
        logged[key] = value

    def log_many(values: Mapping[str, Any]) -> None:
        logged.update(values)

    names = {"TrialPruned": type("TrialPruned", (Exception,), {})}
    vars(optuna).update(names, create_study=lambda study_name, storage, load_if_exists: Study())
    vars(mlflow).update(
        logged=logged,
        log_metric=log_metric,
        log_metrics=log_many,
        log_params=log_many,
        log_text=lambda text, artifact_file: logged.update({artifact_file: text}),
        start_run=lambda run_name: nullcontext(),
    )
    return {"optuna": optuna, "mlflow": mlflow}
