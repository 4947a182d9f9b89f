"""Two promises: the error between the given rows, and the error after the last row or for new groups.

`planned` reads the rows and decides which of them are held out, `between_rows` adds what a random draw of rows would
say, and `promise` says both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ..data import Split
from ..data.given_folds import fold_pairs, groups_of_rows
from ..data.quoting import about, count, listing, quote
from ..errors import GPExplorerError, SettingError
from ..posteriors.marginals import Marginals, MixtureMarginals
from ..problem import Dataset
from .arguments import rows_of
from .averaging import LOST
from .held_out import RowScores, parts
from .horizon_widening import scores_of_parts
from .lanes import Lane, step_until
from .row_order import (
    DEPENDENT_ERRORS,
    Plan,
    group_columns,
    is_panel,
    plan_at_random,
    plan_in_time,
    plan_of_groups,
    repeated_columns,
    share_between_groups,
    times_of,
)  # fmt: skip
from .row_questions import (
    may_name_groups,
    pairs_without_gross_errors,
    question_of_groups,
    sets_of_rows,
    without_gross_errors,
)
from .simple_members import simple_posteriors
from .skewness import Transforms
from .stages import TimedSearch

WAYS = ("time", "groups", "random")
MOST_ROWS = 20_000  # in which groups without a name are sought
SHARE = 0.05  # of the time, for the scores between rows
ROWS_OF_GROUP = 2  # held-out rows of each group, on the mean, from which errors between groups are told from others
OF_GROUPS = 0.35  # share of the variance of errors that lies between groups, without which they are a fifth smaller
CLEARLY = 2.0  # standard errors of a difference in nlpd


def planned(X: Any, y: Any, options: Mapping[str, Any], folds: Any, before: Any, groups: Any) -> tuple[Split, Plan]:
    """The training rows, and which of them are held out: as asked for, or else as the rows themselves suggest.

    Pairs of the plan are numbers of the rows without gross errors.

    Raises
    ------
    SettingError
        If what was asked for contradicts itself or the rows.
    """
    way = folds if isinstance(folds, str) else None
    if way is not None and way not in WAYS:
        raise SettingError(
            f'folds is {quote(way)}; give "time", "groups", "random", a splitter, or pairs of row numbers.'
        )
    if before is not None and (folds not in (None, "time") or groups is not None):
        raise SettingError('before holds out the last rows: give it alone or with folds="time".')
    if way == "random" and groups is not None:
        raise SettingError('groups holds out whole groups, and folds="random" single rows: give one of them.')
    column = groups if isinstance(groups, str) else ""
    split = rows_of(X, y, {**options, "groups": column} if column else options)
    if groups is not None and not column:
        split = replace(split, train=replace(split.train, groups=groups_of_rows(groups, len(split.train))))
    rows = without_gross_errors(split).train
    if folds is not None and way is None:
        pairs = fold_pairs(folds, split.train.X, split.train.y.numpy(), groups)
        return split, Plan(pairs=pairs_without_gross_errors(pairs, split.train))
    if split.train.groups is not None:
        return split, plan_of_groups(rows, column, asked=True) or Plan()
    if before is not None or way == "time":
        return split, plan_in_time(rows, True, before) or Plan()
    if way == "random":
        return split, Plan()
    found = _with_groups(split, X, y, options)
    if found is not None:
        return found
    if way == "groups":
        raise SettingError(
            'folds="groups" found no column of groups: name it with groups=, or give the group of each row.'
        )
    in_time = plan_in_time(rows, False)
    return split, in_time or _asked_of_groups(split, X, y, options) or plan_at_random(rows)


def _with_groups(split: Split, X: Any, y: Any, options: Mapping[str, Any]) -> tuple[Split, Plan] | None:
    """The rows with the groups of a column that looks like one, and the plan; None if none does."""
    if y is not None or isinstance(X, Split):
        return None
    named = group_columns(split.train)
    for column in [*named, *(own for own in repeated_columns(split.train) if own not in named)]:
        if column in (options.get("inputs") or ()) or not (column in named or is_panel(split.train, column)):
            continue
        try:
            grouped = rows_of(X, None, {**options, "groups": column})
            if column not in named and not is_panel(grouped.train):
                continue
            plan = plan_of_groups(without_gross_errors(grouped).train, column, asked=False)
        except GPExplorerError:
            continue
        if plan is not None:
            return grouped, plan
    return None


def _asked_of_groups(split: Split, X: Any, y: Any, options: Mapping[str, Any]) -> Plan | None:
    """A random draw with a question, if rows may belong to groups although no name says so; None if they do not."""
    rows = without_gross_errors(split).train
    rows = rows if len(rows) <= MOST_ROWS else rows.rows(torch.arange(MOST_ROWS))
    is_table = y is None and not isinstance(X, Split)
    names, values = sets_of_rows(rows)
    for column in repeated_columns(rows) if is_table else ():
        is_part = column in names and len(np.unique(times_of(rows, column))) < len(np.unique(values))
        if is_part or column in (options.get("inputs") or ()) or not may_name_groups(rows, column):
            continue
        way = f"groups={quote(column)} holds out whole ones"
        if column in rows.names:
            sentence = question_of_groups(rows, times_of(rows, column), f"{quote(column)} has", way)
        else:  # words, whose inputs already say what the targets of each are
            try:
                grouped = without_gross_errors(rows_of(X, None, {**options, "groups": column})).train
            except GPExplorerError:
                continue
            assert grouped.groups is not None
            sentence = question_of_groups(grouped, grouped.groups.number.cpu().numpy(), f"{quote(column)} has", way)
        if sentence:
            return Plan(sentence=sentence)
    way = "give the group of each row as groups= to hold out whole ones"
    sentence = question_of_groups(rows, values, f"{listing(names)} have together", way) if names else ""
    return Plan(sentence=sentence) if sentence else None


@dataclass(frozen=True, eq=False)
class BetweenRows:
    """What models predict of rows that were drawn at random, with the hyperparameters that they have learned.

    Attributes
    ----------
    part : Split
        The rows of the draw.
    marginals : mapping of str to Marginals
        Of the targets of its test rows, by the name of a model.
    """

    part: Split
    marginals: Mapping[str, Marginals]

    def scores(self, weights: Mapping[str, float]) -> RowScores | None:
        """The scores of the average with these weights; None if the draw is without one of its models, or it fails."""
        if not weights or not weights.keys() <= self.marginals.keys():
            return None
        models = [self.marginals[name] for name in weights]
        whole = models[0] if len(models) == 1 else MixtureMarginals(models, list(weights.values()))
        scores = scores_of_parts([self.part], [whole], "")[0]
        return scores if scores.usable else None

    def in_words(self, weights: Mapping[str, float], lane: str, plan: Plan) -> tuple[str, ...]:
        """What this lane alone does there, if that is not known of the answer, or if the answer is clearly worse."""
        alone, answer = self.scores({lane: 1.0}), self.scores(weights)
        if alone is None or weights.keys() == {lane}:
            return ()
        if answer is None:
            return (
                f"{lane} alone has an error of {about(alone.rmse)} {plan.between}; that of the answer is not known.",
            )
        gain, error = alone.better_by(answer)
        if gain <= max(LOST, CLEARLY * error) or alone.rmse >= answer.rmse:
            return ()
        return (
            f"The answer was made for rows {plan.beyond}. {_capitalised(plan.between)}, {lane} alone is better: its "
            f'error is {about(alone.rmse)} there.\nprefer="gp" leaves simple models out.',
        )


def between_rows(
    search: TimedSearch, lanes: Sequence[Lane], names: Sequence[str], transforms: Transforms
) -> BetweenRows | None:
    """What lanes and the simple models with these names predict of a random draw of rows; None if all fail.

    Lanes take a twentieth of the time together; groups do not count.
    """
    begin, marginals = search.clock(), dict[str, Marginals]()
    single = replace(search.split, train=replace(search.split.train, groups=None))
    with suppress(GPExplorerError):
        part = parts(single, lanes[0].seed)[0]
        for k, lane in enumerate(lanes):
            with suppress(GPExplorerError):
                search.report(f"Scoring {lane.name} between rows.")
                run = lane.candidate.opened(part, lane.seed, lane.learned_logs())
                step_until(run, begin + SHARE * search.seconds * (k + 1) / len(lanes), search.should_stop, search.clock)
                run.close()
                if len(run.trace):
                    marginals[lane.name] = lane.marginals(run, part)
        if names and not search.should_stop():
            simple = simple_posteriors(search, part.train, transforms, "", names)
            marginals |= {name: simple[name].marginals(part.test.X) for name in names if name in simple}
        return BetweenRows(part, marginals) if marginals else None
    return None


def between_in_words(
    search: TimedSearch, drawn: BetweenRows | None, weights: Mapping[str, float], lane: Lane, plan: Plan
) -> tuple[str, ...]:
    """What to say of rows between the given ones, where the answer has these weights and this lane was chosen."""
    if drawn is None:
        return ()
    groups = known_groups_in_words(search.split, lane.seed, plan, drawn.scores({lane.name: 1.0}))
    return (*drawn.in_words(weights, lane.name, plan), *groups)


def known_groups_in_words(split: Split, seed: int, plan: Plan, between: RowScores | None) -> tuple[str, ...]:
    """By how much the error between rows would fall if the group were an input, where most of it lies between groups.

    Parameters
    ----------
    split : Split
        The training rows with their groups.
    seed : int
        That of the random draw of rows.
    plan : Plan
        Which rows were held out for the answer.
    between : RowScores, optional
        The scores on the random draw.
    """
    groups = split.train.groups
    if plan.kind != "groups" or between is None or groups is None:
        return ()
    numbered = replace(split, train=replace(split.train, y=groups.number.double(), groups=None))
    _, number = np.unique(parts(numbered, seed)[0].test.y.numpy(), return_inverse=True)  # the same draw
    errors = between.targets - between.mean
    if len(errors) < ROWS_OF_GROUP * (number.max() + 1):
        return ()
    share, standard_errors = share_between_groups(number, errors)
    if share < OF_GROUPS or standard_errors < DEPENDENT_ERRORS:
        return ()
    sizes = np.bincount(number)
    left = errors - (np.bincount(number, errors) / sizes)[number]  # by the mean of its group
    within = float(np.sqrt(np.square(left).sum() / max(len(left) - len(sizes), 1)))
    named = quote(plan.column) if plan.column else "a column of the groups"
    way = f'\nfolds="random" in place of whole groups, with kinds={{{named}: "words"}}, makes it an input.'
    return (
        f"{100 * share:.0f} % of the variance of the errors for further rows of your groups lies between groups, since "
        f"the answer does not know which group a row is of. With {named} as an input, the error for rows of groups "
        f"that are in the table can be about {about(within)} or lower.{way if plan.column else ''}",
    )


def _capitalised(words: str) -> str:
    return words[:1].upper() + words[1:]


def unit_of(rows: Dataset) -> str:
    """The unit beside the targets of a table, such as EUR; "" if there is none."""
    return rows.reader.target.numbers.unit if rows.reader is not None else ""


def promise(scores: RowScores, train: Dataset, plan: Plan, between: RowScores | None) -> list[str]:
    """What error to expect of new rows."""
    unit = unit_of(train)
    units = unit or f"the units of {quote(train.target)}"
    held_out = count(len(scores.targets), "held-out row")
    if plan.kind == "random":
        error = f"{about(scores.rmse)} {unit or f'in {units}'}"
        return [
            f"Expected on new rows: an error (RMSE) of {error}, SMSE {scores.described('smse')} and NLPD "
            f"{scores.described('nlpd')}, from {held_out}.",
            plan.sentence,
        ]
    _, low, high = scores.interval("rmse")
    beyond = f"{about(scores.rmse)} {plan.beyond} (95 % interval {about(low)} to {about(high)}, from {held_out})"
    words = f"Expected error (RMSE) in {units}: {beyond}."
    if between is not None:
        words = f"Expected error (RMSE) in {units}: {about(between.rmse)} {plan.between}; {beyond}."
    need = "For rows of groups that are not in the table you need the second."
    if plan.kind == "time":
        need = "To forecast you need the second, to fill gaps the first."
    return [
        plan.sentence,
        f"{words} {need}" if between is not None else words,
        f"The second is SMSE {scores.described('smse')} and NLPD {scores.described('nlpd')}."
        if between is not None
        else f"That is SMSE {scores.described('smse')} and NLPD {scores.described('nlpd')}.",
    ]
