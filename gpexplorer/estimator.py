"""Any method as a scikit-learn regressor, for grid searches, pipelines and all else that scikit-learn offers."""

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
    method : str
        The key of a method, such as "cholqr".
    kernel : str or dict
        The key of a kernel, or ``{"name": key, "theta": [...]}``, as in `Spec`.
    num_inducing : int or None
        The number of inducing points, for methods that have them. It is reduced to the number of rows if there are
        fewer. None takes the default of the method.
    settings : mapping, optional
        Other settings of the method, by name.
    budget : mapping, optional
        ``{"steps": ..., "seconds": ...}``. Without one, the method runs to its own end.
    random_state : int, RandomState or None
        The seed, or a NumPy RandomState to draw it from. None means 0, because no global random state is used.
    device, dtype : str
        Where and in which precision to compute, as in `Spec`.

    Attributes
    ----------
    run_ : Run
        The finished run, with its trace, outcome and posterior.
    theta_ : array [p]
        Log-hyperparameters in the scaled space. The last one is the log noise standard deviation.
    n_features_in_ : int
        The number of input columns.
    feature_names_in_ : array of str
        The names of the input columns, if `fit` was given a frame.

    Examples
    --------
    >>> model = Estimator(num_inducing=32, budget={"seconds": 10}).fit(X, y)
    >>> mean, sd = model.predict(X_test, return_std=True)
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
        """Fit to training rows.

        Parameters
        ----------
        X : array
            Inputs [n, d], n >= 2.
        y : array
            Targets [n].

        Raises
        ------
        GPExplorerError
            If a parameter cannot be used. If the method itself fails, its error is raised.
        """
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True, ensure_min_samples=2)
        names = tuple(getattr(self, "feature_names_in_", ()))
        split = _all_for_training(np.asarray(X, np.float64), np.asarray(y, np.float64), names)
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
        """Predict at inputs.

        Parameters
        ----------
        X : array
            Inputs [t, d].
        return_std : bool
            Whether to return the standard deviation of y as well.

        Returns
        -------
        array or tuple of arrays
            The mean [t], and if requested the standard deviation of y [t], which includes the noise.
        """
        check_is_fitted(self)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        mean, var = (part.cpu().numpy() for part in self.run_.posterior(of="y")(X))
        return (mean, np.sqrt(var)) if return_std else mean

    def _spec(self, n: int) -> Spec:
        """The spec of this estimator for n rows."""
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


def _all_for_training(X: NDArray[np.float64], y: NDArray[np.float64], names: tuple[str, ...]) -> Split:
    """A split with all rows for training and none for testing. Its key is a hash of the content."""
    if max(np.abs(X).max(), np.abs(y).max()) > LARGEST:
        raise DataError(f"X or y holds numbers beyond {LARGEST:g}, whose square no 64-bit number holds: rescale them.")
    content = hashlib.sha256(np.ascontiguousarray(X).tobytes() + y.tobytes()).hexdigest()[:16]
    train = Dataset(torch.tensor(X), torch.tensor(y), names or tuple(f"x{i}" for i in range(X.shape[1])))
    return Split(train, train.rows(torch.arange(0)), "arrays", key=f"arrays-{content}")
