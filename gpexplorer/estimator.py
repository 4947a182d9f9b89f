"""Any method as a scikit-learn regressor: fit, predict, clone, grid search, pipelines."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from types import NoneType
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from .data import Split
from .data.table_checks import LARGEST
from .errors import DataError, SettingError
from .methods.base import registry
from .problem import Dataset
from .runs import Spec
from .runs.setting_checks import number, quoted

SEEDS = 2**31 - 1


class Estimator(RegressorMixin, BaseEstimator):
    """A sparse Gaussian process, fitted by one of `gpexplorer.methods`.

    Parameters
    ----------
    method : key of a method, such as "cholqr".
    kernel : key of a kernel, or {"name": key, "theta": [...]}, as in `Spec`.
    num_inducing : inducing points, for methods that have them, at most one a row; None takes the method's own.
    settings : any other settings of the method, by name.
    budget : {"steps": ..., "seconds": ...}; without one, the method runs to its own end.
    random_state : seed, or a numpy RandomState to draw one from; None is 0, as no global state is used.
    device, dtype : where and how to compute, as in `Spec`.

    Attributes
    ----------
    run_ : the finished Run, with its trace, outcome and posterior.
    theta_ : log-hyperparameters [p] in the scaled space, the last the log noise sd.
    n_features_in_, feature_names_in_ : as everywhere in scikit-learn.
    """

    def __init__(  # noqa: PLR0913 - scikit-learn reads the parameters off this signature
        self,
        method: str = "cholqr",
        kernel: str | dict[str, Any] = "se-ard",
        num_inducing: int | None = 128,
        settings: Mapping[str, Any] | None = None,
        budget: Mapping[str, Any] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        device: str = "cpu",
        dtype: str = "float64",
    ) -> None:
        self.method = method
        self.kernel = kernel
        self.num_inducing = num_inducing
        self.settings = settings
        self.budget = budget
        self.random_state = random_state
        self.device = device
        self.dtype = dtype

    def fit(self, X: ArrayLike, y: ArrayLike) -> Estimator:
        """Fit to inputs X [n, d] and targets y [n], n >= 2. Raises what the method raised, if it failed."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        names = tuple(getattr(self, "feature_names_in_", ()))
        split = _everything(np.asarray(X, np.float64), np.asarray(y, np.float64), names)
        run = self._spec(len(split.train)).open(data=split)
        run.finish()
        run.close()
        if run.error is not None:
            raise run.error
        self.run_ = run
        self.theta_ = getattr(run.trace[-1].step.state, "theta", run.problem.theta).detach().cpu().numpy().copy()
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False
    ) -> NDArray[np.float64] | tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Predicted mean [t] at X [t, d]; with `return_std` also the standard deviation of y, noise included."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, var = (part.cpu().numpy() for part in self.run_.posterior(of="y")(X))
        return (mean, np.sqrt(var)) if return_std else mean

    def _spec(self, n: int) -> Spec:
        settings = _mapping("settings", self.settings)
        method = registry.get(self.method) if isinstance(self.method, str) else None
        if method is not None and "num_inducing" in method.param and self.num_inducing is not None:
            settings.setdefault("num_inducing", self.num_inducing)
        if isinstance(settings.get("num_inducing"), (int, np.integer)) and settings["num_inducing"] is not True:
            settings["num_inducing"] = min(int(settings["num_inducing"]), n)
        return Spec(
            self.method,
            settings,
            kernel=self.kernel,
            seed=_seed(self.random_state),
            device=self.device,
            dtype=self.dtype,
            budget=_mapping("budget", self.budget),
        )


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS))
    return int(number("random_state", 0 if random_state is None else random_state, whole=True, low=0, high=SEEDS))


def _mapping(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(given, (Mapping, NoneType)):
        raise SettingError(f"{name} is {quoted(given)}; give names with their values, or None.")
    return dict(given or {})


def _everything(X: NDArray[np.float64], y: NDArray[np.float64], names: tuple[str, ...]) -> Split:
    """All rows to train on and none to test on, named by what they hold."""
    if max(np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise DataError(f"X or y holds numbers beyond {LARGEST:g}, whose square no 64-bit number holds: rescale them.")
    content = hashlib.sha256(np.ascontiguousarray(X).tobytes() + y.tobytes()).hexdigest()[:16]
    train = Dataset(torch.tensor(X), torch.tensor(y), names or tuple(f"x{i}" for i in range(X.shape[1])))
    return Split(train, train.rows(torch.arange(0)), "arrays", key=f"arrays-{content}")
