"""One number for a Spec with some settings, on held-out rows: what Optuna, Ray Tune and other searches minimise.

Test rows are never used. A search that looks at the score of test rows reports a score that is too good.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ..data import Split, load
from ..data.given_folds import fold_pairs
from ..errors import SettingError
from ..runs.budget import scheduled
from ..runs.run import Run
from ..runs.setting_checks import of_kind, quoted
from ..runs.spec import A_SPEC, Spec
from ..runs.studies.sweep import with_values
from .held_out import RowScores, held_out_marginals, parts

METRICS = ("nlpd", "smse")


def held_out_score(
    spec: Spec,
    values: Mapping[str, Any] | None = None,
    *,
    metric: str = "nlpd",
    data: Any = None,
    folds: Any = None,
    report: Callable[[float, int], object] | None = None,
) -> float:
    """Run a spec with some values changed on part of its training rows, and score it on the rest.

    Parameters
    ----------
    spec : Spec
        Gives everything that the search does not vary. It needs a budget.
    values : mapping, optional
        Settings of the method and fields of the spec by name, as a search proposes them.
    metric : {"nlpd", "smse"}
        The score to return; lower is better.
    data : Split, arrays or frame, optional
        Rows in memory, as for `Spec.open`. Only the training rows are used.
    folds : splitter or iterable, optional
        A splitter of scikit-learn or pairs (training rows, held-out rows). By default one random part is held out, or
        three parts in turn if there are fewer than 1000 rows; rows with groups are held out by whole groups.
    report : callable, optional
        Called as report(score, step) for records 0, 1, 2, 5, 10, 20, ... of the first part, in the order of Optuna's
        `Trial.report`. If it raises an error, such as `optuna.TrialPruned`, the run ends and the error is passed on.

    Returns
    -------
    float
        The score of all held-out rows together.

    Raises
    ------
    SettingError
        If a value cannot be used, if the spec has no budget, or if the run failed.

    Notes
    -----
    One run for each part. The same spec, values and rows give the same score, unless the budget is in seconds.

    Examples
    --------
    >>> spec = Spec("cholqr", data="kin40k", budget={"seconds": 10})
    >>> study.optimize(lambda trial: held_out_score(spec, {"num_inducing": trial.suggest_int("m", 16, 512)}))
    """
    spec = with_values(of_kind("The spec of a search", spec, Spec, A_SPEC), values or {})
    if metric not in METRICS:
        raise SettingError(f"metric is {quoted(metric)}; give one of {', '.join(METRICS)}.")
    if not spec.budget:
        raise SettingError("The spec has no budget: give steps or seconds, so that each run of the search ends.")
    split = data if isinstance(data, Split) else load(spec.data if data is None else data, split=spec.split)
    if split.train.scale is not None:
        raise SettingError("The rows are scaled or mapped from a file; a search takes rows that are read whole.")
    train = split.train
    pairs = () if folds is None else fold_pairs(folds, train.X, train.y.numpy())
    scores: RowScores | None = None
    spec = replace(spec, data="held-out rows")  # the rows are given to each run
    for part in parts(split, spec.seed, pairs):
        run = spec.open(data=part)
        try:
            latest = _finished(run, part, metric, report)
        finally:
            run.close()
        report, scores = None, latest if scores is None else scores.joined(latest)
    assert scores is not None
    return float(getattr(scores, metric))


def _finished(run: Run, part: Split, metric: str, report: Callable[[float, int], object] | None) -> RowScores:
    """Take the steps of the budget, report the scores of some records, and return those of the last one."""
    while run.advance() is not None:
        if report is not None and scheduled(run.done):
            report(float(getattr(_scores(run, part), metric)), run.done)
        if run.progress().fraction >= 1.0:
            break
    if run.error is not None:
        raise SettingError(f"The run failed, so there is no score: {run.error}") from run.error
    return _scores(run, part)


def _scores(run: Run, part: Split) -> RowScores:
    """The scores of the latest answer of a run on the rows that its part holds out."""
    return RowScores.of_marginals(part.test.y.numpy(), held_out_marginals(run, part), part.test.groups)
