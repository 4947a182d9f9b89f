"""Any method as a scikit-learn regressor, for grid searches, pipelines and the other tools of scikit-learn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data

from ..data.in_memory import array_table, column_titles, is_frame, is_texts, plain_array
from ..data.reader.table_reader import TableReader
from ..data.standardising import inputs_in_units
from ..errors import DataError, PosteriorError, SettingError, flag, number
from ..kernels.row_scaled import unscaled_kernel
from ..methods.base import registry
from ..posteriors import InducingPosterior, InUnits, UnitRowsPosterior
from ..problem import Dataset, MixedRows, joined_rows
from ..runs import Run, Spec
from ..runs.trace import Record
from . import training_rows
from .fitted_run import evidence, finish, last_theta, learned_kernel, posterior_of
from .parameters import callbacks_of, mapping_of, seed_of, sized_settings, spec_kernel
from .training_rows import (
    RowDetails,
    all_for_training,
    checked_groups,
    checked_targets,
    kept_rows,
    needs_reader,
    read_frame,
    refuse_mixed_up,
    refuse_words,
    rows_of,
    units_of,
    warn_of_stand_ins,
)

NESTED = "settings__"
FEW_ROWS = 20  # with fewer rows, hyperparameters are learned again when rows are added
Floats = NDArray[np.float64]
Prediction = Floats | tuple[Floats, Floats]


@dataclass(eq=False, repr=False)  # scikit-learn reads the parameters off the signature of its constructor
class Estimator(RegressorMixin, BaseEstimator):
    """A sparse Gaussian process, fitted by one of `gpexplorer.methods`.

    Parameters
    ----------
    method : str
        The key of a method, such as "cholqr".
    kernel : str, dict or kernel
        The key of a kernel, ``{"name": key, "theta": [...]}`` as in `Spec`, a kernel of this package, or one of
        scikit-learn or GPyTorch. The hyperparameters of the latter two are in the units of the data and become the
        initial values; one lengthscale for all inputs is one for the standardised inputs.
    num_inducing : int, "auto" or None
        The number of inducing points, for methods that have them. It is reduced to the number of rows if there are
        fewer. "auto" uses the time: with ``budget={"seconds": s}`` as many points as a whole fit on this machine can
        have in s seconds, without one about 2.25 sqrt(n), from 128 to 512; cholqr then takes few epochs of swaps,
        and moves the points off their rows (its setting `polish`). None takes the default of the method.
    settings : mapping, optional
        Other settings of the method, by name. In a grid they are ``settings__NAME``.
    budget : mapping, optional
        ``{"steps": ..., "seconds": ...}``. Without one, the method runs to its own end.
    random_state : int, RandomState or None
        The seed, or a NumPy RandomState to draw it from. None means 0, because no global random state is used.
    device, dtype : str
        Where and in which precision to compute, as in `Spec`.
    warm_start : bool
        Whether a further `fit` with the same kernel, transform and inputs starts from the hyperparameters of the last
        one. Those that are fixed keep their values in the units of the data.
    keep_run : bool
        Whether a pickle contains the run, with its trace and training rows. Without it, a pickle contains what
        predictions need.
    verbose : int
        Print a line with the objective at every multiple of this number of steps; 0 prints nothing.
    callbacks : sequence of callables, optional
        Each is called with every `Record` of the run; fitting ends where one returns True.
    folds : splitter or iterable, optional
        For methods of cross-validation, such as "gpcv-admm": a splitter of scikit-learn, such as GroupKFold(5), or
        pairs (training rows, held-out rows). It replaces the random folds of the method.
    target_transform : str
        What the Gaussian process models in place of y, as in `Spec`: "log", "yeo-johnson", "yeo-johnson 0.5", or "" for
        y itself. Predictions and `log_marginal_likelihood_value_` are those of y; the noise of new rows, and the
        hyperparameters of kernels of other packages, are in units of the transformed y.

    Attributes
    ----------
    posterior_ : InUnits
        The predictive distribution of y: means, covariances, samples, sample paths, gradients, `save`, `to_torch`.
        With several targets it is a list, and so are `run_`, `theta_` and `kernel_`.
    run_ : Run
        The finished run, with its trace and outcome. An unpickled estimator has it if `keep_run` was set.
    theta_ : array [p]
        Log-hyperparameters in the scaled space. The last one is the log noise standard deviation.
    hyperparameters_ : Hyperparameters
        The learned hyperparameters by name, in the units of X and y.
    kernel_ : dict
        The kernel with the theta that was learned, as the parameter `kernel` takes it.
    inducing_points_ : array [m, d] or list
        The inducing inputs, for methods that have them.
    log_marginal_likelihood_value_ : float
        The log marginal likelihood of the targets or the bound of it that the method maximises, at the end of the last
        fit: rows that `partial_fit` adds to the posterior without learning again do not count.
    n_features_in_ : int
        The number of input columns.
    feature_names_in_ : array of str
        The names of the input columns, if `fit` was given a frame.

    Notes
    -----
    If the fit is not good enough, try in this order: more seconds in `budget`, since m grows with them; more points,
    such as ``num_inducing=1000``, which ``settings={"max_epochs": 1, "polish": 200}`` moves off their rows as "auto"
    does, or as many as bring the bound within 3 nat of the exact model, ``settings={"gap": 3}``;
    another kernel, such as "matern32-ard" for rough functions; ``method="scgd"`` with many rows and inputs; and
    `recommend(X, y, seconds=60)`, which tries these on held-out rows and says when a simple model is better.

    Examples
    --------
    >>> model = Estimator(num_inducing=32, budget={"seconds": 10}).fit(X, y)
    >>> mean, sd = model.predict(X_test, return_std=True)
    >>> model.posterior_.save("model.safetensors")
    """

    method: str = "cholqr"
    kernel: Any = "se-ard"
    num_inducing: int | str | None = "auto"
    settings: Mapping[str, Any] | None = None
    budget: Mapping[str, Any] | None = None
    random_state: int | np.random.RandomState | None = 0
    device: str = "cpu"
    dtype: str = "float64"
    warm_start: bool = False
    keep_run: bool = False
    verbose: int = 0
    callbacks: Sequence[Callable[[Record], Any]] | None = None
    folds: Any = None
    target_transform: str = ""

    _meaning: Any = field(default=None, init=False)  # what theta of the last fit belongs to
    posterior_: Any = field(init=False)
    run_: Any = field(init=False)
    kernel_: Any = field(init=False)
    hyperparameters_: Any = field(init=False)

    @torch.inference_mode(False)  # what is fitted can be differentiated later
    def fit(
        self,
        X: Any,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        noise: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> Self:
        """Fit to training rows.

        Parameters
        ----------
        X : array or sequence of str
            Inputs [n, d], n >= 2, or n texts or SMILES, or a frame whose columns of text have kernels of their own,
            such as "se-ard * category[colour]". Missing values in a frame are filled as those of a file are (see
            `load`); in an array they are refused.
        y : array
            Targets [n], or [n, k] for k independent fits.
        sample_weight : array [n], optional
            A row with weight w has the noise variance s2 / w, where s2 is learned; rows of weight 0 are left out. A new
            observation is predicted with s2, as a row of weight 1.
        noise : array [n], optional
            The noise variance of each row, in the units of y squared, which is then known and not learned. A new
            observation is predicted with the mean of them. With `target_transform`, give `sample_weight` instead.
        groups : array [n], optional
            The group of each row, such as a patient, for methods of cross-validation: each fold has whole groups.

        Raises
        ------
        GPExplorerError
            If a parameter cannot be used. If the method itself fails, its error is raised.

        Warns
        -----
        UserWarning
            A column has numbers such as -999 far from all others, which may stand for missing values.

        Notes
        -----
        With noise per row, all methods do what their algebra gives for a diagonal noise matrix (see
        `kernels.row_scaled`); methods that cannot do this raise an error. Inputs are standardised without weights.
        """
        refuse_mixed_up(X, y=y, sample_weight=sample_weight, noise=noise, groups=groups)
        for name in ("warm_start", "keep_run"):
            flag(name, getattr(self, name))
        X, targets = self._training_rows(X, y)
        row_groups = checked_groups(self.folds, X, targets, groups, registry.get(str(self.method)))
        X, targets, details = kept_rows(X, targets, sample_weight, noise, row_groups)
        columns = [targets] if targets.ndim == 1 else list(targets.T)
        read = [read_frame(X, column, self.kernel) if is_frame(X) else (X, None) for column in columns]
        rows, reader = read[0]
        names = reader.names if reader else tuple(getattr(self, "feature_names_in_", ()))
        warn_of_stand_ins(rows, targets, names, reader)
        starts, seed = self._warm_starts([reader for _, reader in read]), seed_of(self.random_state)
        runs = [
            self._fitted(rows, column, details, start, seed, reader)
            for (rows, reader), column, start in zip(read, columns, starts, strict=True)
        ]
        self._keep(runs, single=targets.ndim == 1)
        return self

    @torch.inference_mode(False)
    def partial_fit(self, X: Any, y: ArrayLike, noise: ArrayLike | None = None) -> Self:
        """Add rows to the posterior, with the hyperparameters and inducing points of the fit.

        Parameters
        ----------
        X, y : array
            New rows, as for `fit`. The first call is a `fit`.
        noise : array [n], optional
            Noise variance of each new row, in the units of y (after its transform) squared; by default that of the fit.

        Raises
        ------
        PosteriorError
            If the posterior of the method cannot be updated and the rows of the fit are not at hand, as after a pickle.

        Notes
        -----
        For m inducing points or features: n m kernel entries and 2 m^2 (n + m) flops for n new rows, whatever the
        number of rows before, and the result is that of all rows together, to rounding. Other methods start warm.

        Few rows say little about hyperparameters. If fewer than 20 rows were fitted, they are learned again from
        all rows whenever there are a quarter more, and at least two more, than they were learned from.
        """
        if not hasattr(self, "posterior_"):
            return self.fit(X, y, noise=noise)
        refuse_mixed_up(X, y=y, noise=noise)
        X, targets = self._training_rows(X, y, reset=False)
        rows, k = [_added_rows(posterior, X) for posterior in self._posteriors], len(self._posteriors)
        if (1 if targets.ndim == 1 else targets.shape[1]) != k:
            raise DataError(f"y is {list(targets.shape)}, but the fit had {k} target{'s' * (k > 1)} per row.")
        columns = targets.reshape(len(targets), k).T
        if self._learned_anew(rows, columns, noise is not None):
            return self
        new = list(zip(self._posteriors, rows, columns, strict=True))
        try:
            updated = [posterior.with_rows(own_rows, column, noise) for posterior, own_rows, column in new]
        except PosteriorError:
            if noise is not None or not hasattr(self, "run_"):
                raise
            self._fit_again(rows, columns)
        else:
            self.posterior_ = updated if isinstance(self.posterior_, list) else updated[0]
        return self

    def predict(self, X: Any, return_std: bool = False, return_cov: bool = False) -> Prediction:
        """Predict at inputs.

        Parameters
        ----------
        X : array or sequence of str
            Inputs [t, d]. A frame is read as that of `fit` was; columns that are taken by position, and units that
            training does not have, are a warning.
        return_std : bool
            Whether to return the standard deviation of y as well.
        return_cov : bool
            Whether to return the joint covariance of y as well.

        Returns
        -------
        array or tuple of arrays
            The mean [t], and if requested the standard deviation [t] or the covariance [t, t] of y, which include the
            noise. With k targets, mean and standard deviation are [t, k], and the covariance is [t, t, k]. Of a frame,
            rows with a word that training does not have are averaged over its words, which widens the band; the
            covariance has such words in the middle.
        """
        return_std, return_cov = flag("return_std", return_std), flag("return_cov", return_cov)
        if return_std and return_cov:
            raise SettingError(
                "Give return_std or return_cov, not both: the diagonal of a covariance has the variances."
            )
        X = self._inputs(X)
        if return_cov:
            return self._answers(lambda posterior: (posterior.mean(X), posterior.cov(X)))
        if return_std:
            mean, var = self._answers(lambda posterior: posterior(X))
            return mean, np.sqrt(var)
        return self._answers(lambda posterior: (posterior.mean(X),))[0]

    def sample_y(self, X: Any, n_samples: int = 1, random_state: int | np.random.RandomState | None = 0) -> Floats:
        """Draw joint samples of y.

        Parameters
        ----------
        X : array or sequence of str
            Inputs [t, d], at most 5000.
        n_samples : int
            The number of samples.
        random_state : int, RandomState or None
            The seed, as for the estimator.

        Returns
        -------
        array [t, n_samples], or [t, k, n_samples] for k targets
        """
        X, seed = self._inputs(X), seed_of(random_state)
        draws = (posterior.sample(X, n_samples, seed + i) for i, posterior in enumerate(self._posteriors))
        arrays = [part.T.cpu().numpy() for part in draws]
        return np.stack(arrays, 1) if isinstance(self.posterior_, list) else arrays[0]

    @property
    def inducing_points_(self) -> Any:
        """The inducing inputs, in the units of the data."""
        check_is_fitted(self)
        points = [inducing_points(posterior) for posterior in self._posteriors]
        return points if isinstance(self.posterior_, list) else points[0]

    @property
    def log_marginal_likelihood_value_(self) -> Any:
        """The log marginal likelihood of the targets of the last fit, or its bound, without rows added since."""
        check_is_fitted(self)
        if any(value is None for value in self._evidence):
            raise AttributeError(f"Method {self.method} does not maximise a marginal likelihood of all rows.")
        return list(self._evidence) if isinstance(self.posterior_, list) else self._evidence[0]

    def set_params(self, **params: Any) -> Self:
        """Set parameters; ``settings__NAME`` sets one setting of the method, as in a grid search."""
        nested = {name.removeprefix(NESTED): params.pop(name) for name in list(params) if name.startswith(NESTED)}
        super().set_params(**params)
        if nested:
            self.settings = {**mapping_of("settings", self.settings), **nested}
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the run, unless `keep_run` is set."""
        state = super().__getstate__()
        return state if self.keep_run else {k: value for k, value in state.items() if k not in ("run_", "_added")}

    def __sklearn_tags__(self) -> Any:
        """Say that several targets and texts are possible."""
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def _posteriors(self) -> list[InUnits]:
        check_is_fitted(self)
        return self.posterior_ if isinstance(self.posterior_, list) else [self.posterior_]

    def _training_rows(self, X: Any, y: ArrayLike, reset: bool = True) -> tuple[Any, Floats]:
        """Checked inputs, as an array, a list of texts, or a table that has to be read, and targets."""
        X, y = plain_array(X), checked_targets(plain_array(y))
        table = array_table(X)
        is_read = reset and (table is not None or needs_reader(X))
        if is_read or (not reset and self._posteriors[0].columns.reader is not None):
            check_consistent_length(X, y)
            targets = np.array(check_array(y, ensure_2d=False, ensure_min_samples=1 + reset), np.float64)
            if not reset:
                return self._inputs(X), targets
            if table is None:
                self.feature_names_in_ = np.array(column_titles(X), dtype=object)
            elif hasattr(self, "feature_names_in_"):
                del self.feature_names_in_  # of an earlier fit: the columns of an array have no names
            frame = X if table is None else table
            self.n_features_in_ = len(column_titles(frame))
            return frame, targets
        if is_texts(X):
            self.n_features_in_ = 1
            return training_rows.checked_texts(X, y, 1 + reset)
        X, y = validate_data(
            self, X, y, dtype=np.float64, y_numeric=True, multi_output=True, ensure_min_samples=1 + reset, reset=reset
        )
        return np.asarray(X, np.float64), np.asarray(y, np.float64)

    def _inputs(self, X: Any) -> Any:
        """New rows as the posteriors take them, which read frames by themselves."""
        columns, is_table, X = self._posteriors[0].columns, is_frame(X), plain_array(X)
        if is_texts(X):
            return [str(text) for text in X]
        if isinstance(columns.X, MixedRows):
            return X
        if columns.reader is None:
            refuse_words(X)
            return validate_data(self, X, dtype=np.float64, reset=False)
        is_table = is_table or array_table(X, columns.reader.sources) is not None
        return X if is_table else check_array(X, dtype=np.float64)

    def _warm_starts(self, readers: list[TableReader | None]) -> list[Any]:
        """The kernel at which each fit begins: that of the last fit, if it was of the same inputs and parameters."""
        names = [reader.names if reader else tuple(getattr(self, "feature_names_in_", ())) for reader in readers]
        kernel = self.kernel if not isinstance(self.kernel, dict) else repr(self.kernel)
        meaning = (kernel, self.target_transform, self.n_features_in_, names)
        is_same = self.warm_start and hasattr(self, "kernel_") and self._meaning == meaning
        self._meaning = meaning  # of theta
        if not is_same:
            return [None] * len(readers)
        return self.kernel_ if isinstance(self.kernel_, list) else [self.kernel_]

    def _fitted(self, X: Any, y: Floats, details: RowDetails, start: Any, seed: int, reader: TableReader | None) -> Run:
        """The finished run of one column of targets."""
        names = tuple(getattr(self, "feature_names_in_", ())) if reader is None else reader.names
        split = all_for_training(X, y, names, details, reader)
        callbacks = callbacks_of(self.callbacks)
        verbose = int(self.verbose) if isinstance(self.verbose, bool) else self.verbose
        verbose = number("verbose", verbose, whole=True, low=0)
        if mapping_of("budget", self.budget).get("steps") == 0:
            raise SettingError("The budget's steps is 0; give 1 or more, because a model is fitted by steps.")
        has_own_kernel = getattr(registry.get(str(self.method)), "own_kernel", False)  # its theta is of another form
        spec = self._spec(split.train, (not has_own_kernel and start) or self.kernel, seed)
        run = spec.open(data=split)
        finish(run, callbacks, verbose)
        return run

    def _learned_anew(self, rows: list[Any], columns: Floats, has_noise: bool) -> bool:
        """Keep rows that are added to a fit of few rows, and learn from all of them once they are enough more."""
        run = None if not hasattr(self, "run_") else self.run_[0] if isinstance(self.run_, list) else self.run_
        added = getattr(self, "_added", None)
        if added is None or added[0] is not run:
            added = (run, None, None, False)  # of another fit
        is_unequal = (
            has_noise or added[3] or (run is not None and unscaled_kernel(run.problem.kernel) is not run.problem.kernel)
        )
        if run is None or len(run.problem.train) >= FEW_ROWS or is_unequal:
            self._added: tuple[Any, Any, Any, bool] = (run, None, None, is_unequal)
            return False
        if added[1] is not None:
            rows = [joined_rows(*pair) for pair in zip(added[1], rows, strict=True)]
            columns = np.concatenate([added[2], columns], 1)
        self._added = (run, rows, columns, False)
        if columns.shape[1] < max(2, len(run.problem.train) / 4):
            return False
        self._fit_again(rows, columns, anew=True)
        return True

    def _fit_again(self, rows: list[Any], columns: Floats, anew: bool = False) -> None:
        """Fit to the rows of the last fit and new ones, from the hyperparameters of that fit or from a first start."""
        single = not isinstance(self.run_, list)
        runs, starts = ([self.run_], [self.kernel_]) if single else (self.run_, self.kernel_)
        starts = [None] * len(starts) if anew else starts
        seed, refitted = seed_of(self.random_state), []
        for run, start, own_rows, column in zip(runs, starts, rows, columns, strict=True):
            old_X, old_y = rows_of(run)
            all_X, all_y = joined_rows(old_X, own_rows), np.append(old_y, column)
            refitted.append(self._fitted(all_X, all_y, RowDetails(), start, seed, run.problem.train.reader))
        self._keep(refitted, single)

    def _keep(self, runs: list[Run], single: bool) -> None:
        """Set the attributes of a fit."""
        attributes: dict[str, list[Any]] = {
            "run_": runs,
            "posterior_": [posterior_of(run) for run in runs],
            "theta_": [last_theta(run) for run in runs],
            "hyperparameters_": [run.hyperparameters_at(-1, curvature=False) for run in runs],
            "kernel_": [learned_kernel(run) for run in runs],
        }
        for name, values in attributes.items():
            setattr(self, name, values[0] if single else values)
        self._evidence = [evidence(run) for run in runs]

    def _spec(self, train: Dataset, kernel: Any, seed: int) -> Spec:
        """The spec of this estimator for these rows."""
        settings, budget = mapping_of("settings", self.settings), mapping_of("budget", self.budget)
        method = registry.get(self.method) if isinstance(self.method, str) else None
        kernel = spec_kernel(kernel, units_of(train, self.target_transform))
        return Spec(
            self.method,
            sized_settings(settings, self.num_inducing, method, train, kernel, budget),
            kernel=kernel,
            seed=seed,
            device=self.device,
            dtype=self.dtype,
            budget=budget,
            target_transform=self.target_transform,
        )

    def _answers(self, answer: Callable[[InUnits], tuple[torch.Tensor, ...]]) -> Any:
        """The answers of every posterior as arrays; those of several targets are stacked along the last axis."""
        answers = [[part.cpu().numpy() for part in answer(posterior)] for posterior in self._posteriors]
        if not isinstance(self.posterior_, list):
            return tuple(answers[0])
        return tuple(np.stack(parts, -1) for parts in zip(*answers, strict=True))


def _added_rows(posterior: InUnits, X: Any) -> Any:
    """New rows as numbers or texts, where a table was read for the fit, by the reader of this posterior."""
    if posterior.columns.reader is None:
        return X
    rows = posterior.rows(X)
    return rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows


def inducing_points(posterior: InUnits) -> Any:
    """Inducing inputs [m, d] in the units of the data, or a list of m objects; an AttributeError without any."""
    inner: Any = posterior.inner
    if isinstance(inner, UnitRowsPosterior):
        inner = inner.inner
    if not isinstance(inner, InducingPosterior):
        raise AttributeError(f"A {type(inner).__name__} has no inducing points.")
    Z = inner.Z[:, : posterior.columns.d] if isinstance(inner.Z, torch.Tensor) else inner.Z  # as before `row_scaled`
    points = inputs_in_units(Z, posterior.columns)
    return list(points) if isinstance(points, MixedRows) else points
