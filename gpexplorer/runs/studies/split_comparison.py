"""Runs that differ only in their split or their seed: the spread of their scores, a paired test, and a median curve."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from ...data.splits import ALL
from ...errors import SettingError, quoted
from ...methods.base import registry
from ..outcomes import FINAL
from ..spec import Spec, in_words
from .comparison import SCORES, Finished, newest_rows, overlay, what_differs
from .setting_labels import budget_in_words, setting_in_words

FEWEST = 3  # runs that are shown as one family
TEN = 10  # splits of a repetition
LEVEL = 0.05
PLACES = 400  # of a median curve
Families = dict[str, dict[str, Finished]]  # words for a family -> its runs by name


def families(runs: Mapping[str, Finished], labels: bool = False) -> Families:
    """Return the groups of at least three runs that differ in nothing but their split or their seed.

    Of runs with the same split and seed the first one counts, and a run that was changed by hand is in no group.

    Parameters
    ----------
    runs : mapping of str to Finished
        The runs by name.
    labels : bool, default False
        Whether methods and settings have the titles and labels of the page in place of their names in Python.

    Returns
    -------
    dict of str to dict
        For each group, its runs by name. A group is called by its method, and in parentheses by the settings and the
        budget in which it differs from the other groups, such as "cholqr (num_inducing=20, 12 steps)".
    """
    groups: dict[str, dict[str, Finished]] = {}
    taken = set[tuple[object, ...]]()
    for name, run in runs.items():
        same = f"{_without_split(run.spec).key()} {json.dumps(run.spec.budget, sort_keys=True)}"
        place = (same, json.dumps(run.spec.split, sort_keys=True), _split(run.spec), run.spec.seed)
        if not run.changes and place not in taken:
            taken.add(place)
            groups.setdefault(same, {})[name] = run
    groups = {same: group for same, group in groups.items() if len(group) >= FEWEST and _is_one_data_set(group)}
    alike = {same: _without_split(next(iter(group.values())).spec) for same, group in groups.items()}
    others, budgets = what_differs(alike, ["method", "budget"], labels), [spec.budget for spec in alike.values()]
    named = {}
    for same, group in groups.items():
        limit = budget_in_words(alike[same].budget) if any(each != budgets[0] for each in budgets) else ""
        words = ", ".join(filter(None, [others[same], limit]))
        title = registry[alike[same].method].title if labels else alike[same].method
        named[f"{title} ({words})" if words else title] = group
    return named


def rows_of(data: Any) -> Any:
    """Return the data of a spec without what depends on the split: the hash of rows in memory or of an upload.

    Parameters
    ----------
    data : str or dict
        As in `Spec.data`.
    """
    if not isinstance(data, Mapping) or not {"content", "file"} & set(data):
        return data
    entries = {name: value for name, value in data.items() if name not in ("content", "kinds")}
    return entries if "file" in data else {"content": str(data["content"]).rpartition("-")[0], **entries}


def _without_split(spec: Spec) -> Spec:
    return replace(spec, split=0, seed=0, data=rows_of(spec.data))


def _split(spec: Spec) -> str:
    """What distinguishes the rows of a split: its number, or of rows that were in memory the hash of their content."""
    content = spec.data.get("content") if isinstance(spec.data, dict) else None
    return json.dumps(spec.split, sort_keys=True) if content is None else str(content)


def _is_one_data_set(group: Mapping[str, Finished]) -> bool:
    """Whether no split of a group has two contents, as two files with the same name have."""
    contents: dict[str, set[str]] = {}
    for run in group.values():
        contents.setdefault(json.dumps(run.spec.split, sort_keys=True), set()).add(_split(run.spec))
    return all(len(different) == 1 for different in contents.values())


def table(groups: Mapping[str, Mapping[str, Finished]], score: str = "smse") -> pd.DataFrame:
    """Compare families of runs by the newest score of each run.

    Parameters
    ----------
    groups : mapping
        As `families` returns them.
    score : str
        "smse", "snlp", "rmse" or "nlpd".

    Returns
    -------
    DataFrame
        One row per family, the lowest mean first: "over" ("splits" or "seeds"), their number, the mean and the
        standard deviation of the score over them. "best" is the family on the same data with the lowest mean, "wins"
        the number of splits on which that one has the lower score, and "p" the two-sided sign test of these wins,
        times "pairs", the number of pairs of families on the same data (Bonferroni), because the best family was
        chosen by the same scores. "left out" is the number of splits on which not all of these families have a score,
        and "remark" says which runs of the family took no step, failed, diverged, or took other numbers of steps.

    Notes
    -----
    Several seeds on one split count once, by their mean. Families on the same data are compared on the splits that
    all of them have, where these are at least two. The sign test treats splits as independent. Folds have disjoint
    test rows but share training rows, and random holdouts share both, so its p is a little too small.

    The score of a run that took no step is that of its start and not of its method, and is left out. A family that has
    no other runs is not compared. Splits without a score are left out for all families, which favours a method that
    fails on hard splits.
    """
    if score not in SCORES:
        raise SettingError(f"There is no score {quoted(score)}; choose one of {', '.join(SCORES)}.")
    blocks: dict[tuple[str, str], dict[str, pd.Series[float]]] = {}
    for name, group in groups.items():
        kind, values = _per_split(group, score)
        blocks.setdefault(kind, {})[name] = values
    rows = [row for (_, split), block in blocks.items() for row in _rows(block, "seeds" if split else "splits")]
    if not any(row["number"] for row in rows):
        rows = []
    for row in rows:
        row["remark"] = _remark(list(groups[row["family"]].values()), score) or None
    columns = ["family", "over", "number", "mean", "sd", "best", "wins", "ties", "p", "pairs", "left out", "remark"]
    counts = dict.fromkeys(("wins", "ties", "pairs", "left out"), "Int64")  # whole numbers, some of which are missing
    return pd.DataFrame(rows, columns=columns).astype(counts).set_index("family")


def _per_split(group: Mapping[str, Finished], score: str) -> tuple[tuple[str, str], pd.Series[float]]:
    """The data, the split if all runs have the same one, and the mean score of each split, or else of each seed."""
    runs = list(group.values())
    newest = [np.nan if _is_stepless(run) else run.last[score] for run in runs]
    values = [(_split(run.spec), run.spec.seed, value) for run, value in zip(runs, newest, strict=True)]
    frame = pd.DataFrame(values, columns=["split", "seed", "score"])
    splits = frame["split"].unique()
    by = "split" if len(splits) > 1 else "seed"
    data = json.dumps(rows_of(runs[0].spec.data), sort_keys=True)
    finite = frame[np.isfinite(frame["score"])]
    return (data, "" if by == "split" else str(splits[0])), finite.groupby(by)["score"].mean()


def _is_stepless(run: Finished) -> bool:
    """Whether a run ended or was left at its start, which is not what its method reaches."""
    return run.last["steps"] == 0 and run.outcome != "converged"


def _remark(runs: Sequence[Finished], score: str) -> str:
    """What a reader must know of the runs behind the mean of a family; empty where there is nothing."""
    stepless = [run for run in runs if _is_stepless(run)]
    others = [run for run in runs if not _is_stepless(run)]
    unscored = sum(not np.isfinite(run.last[score]) for run in others)
    parts = [f"{_share(len(stepless), len(runs))} took no step"] if stepless else []
    parts += [f"{_share(unscored, len(runs))} had no finite {score.upper()}"] if unscored else []
    for reason in ("diverged", "failed"):
        if number := sum(run.outcome == reason for run in others):
            parts.append(f"{_share(number, len(runs))} {reason}")
    by_steps = [run for run in others if run.outcome not in FINAL and "seconds" not in run.spec.budget]
    steps = sorted({int(run.last["steps"]) for run in by_steps if np.isfinite(run.last["steps"])})
    parts += [f"they took {steps[0]:,} to {steps[-1]:,} steps"] if len(steps) > 1 else []
    return ", ".join(parts)


def _share(number: int, of: int) -> str:
    return f"all {of} runs" if number == of else f"{number} of {of} runs"


def _rows(block: Mapping[str, pd.Series[float]], over: str) -> list[dict[str, Any]]:
    """The rows of families on the same data."""
    from scipy.special import bdtr

    empty = [name for name, values in block.items() if not len(values)]
    block = {name: values for name, values in block.items() if len(values)}
    common = pd.concat(block, axis=1, join="inner") if block else pd.DataFrame()
    paired = len(common) > 1 and len(block) > 1
    left_out = len(set().union(*(values.index for values in block.values()))) - len(common)
    scores = {name: common[name] if paired else values for name, values in block.items()}
    names = sorted(scores, key=lambda name: float(scores[name].mean()))
    pairs = len(names) * (len(names) - 1) // 2
    rows = []
    for name in names:
        values = scores[name]
        row = {"family": name, "over": over, "number": len(values), "mean": values.mean(), "sd": values.std()}
        if paired and name != names[0]:
            wins, losses = int((common[names[0]] < values).sum()), int((common[names[0]] > values).sum())
            ties = len(values) - wins - losses
            p = min(1.0, 2 * float(bdtr(min(wins, losses), wins + losses, 0.5)))  # 1 without wins and losses
            row |= {"best": names[0], "wins": wins, "ties": ties, "p": min(1.0, p * pairs), "pairs": pairs}
            row |= {"left out": left_out} if left_out else {}
        rows.append(row)
    return rows + [{"family": name, "over": over, "number": 0} for name in empty]


def sentences(compared: pd.DataFrame, score: str = "smse") -> list[str]:
    """Say of each family but the best whether the splits tell it from the best, and what must be known of its runs.

    Parameters
    ----------
    compared : DataFrame
        As `table` returns it.
    score : str
        The score of the table.

    Returns
    -------
    list of str
        One sentence per comparison, then one per family with a remark.
    """
    said, remarks = [], []
    for name, row in compared.iterrows():
        if pd.notna(row.get("remark")):
            consequence = "" if row["number"] else f", so its {score.upper()} is not compared"
            remarks.append(f"{name}: {row['remark']}{consequence}.")
    for name, row in compared.dropna(subset="best").iterrows():
        number, over, of = int(row["number"]), row["over"], score.upper()
        share = f"{int(row['wins'])} of {number} {over}" + f", equal on {int(row['ties'])}" * bool(row["ties"])
        times = f" for {int(row['pairs'])} pairs" * (row["pairs"] > 1)
        test = f"(sign test over {over}, p = {row['p']:.2g}{times})"
        lower_on = f"{row['best']} is lower on {share} {test}."
        if row["p"] >= LEVEL:
            said.append(f"{number} {over} cannot tell the {of} of {row['best']} from that of {name}: {lower_on}")
        elif row["wins"] * 2 > number - row["ties"]:
            said.append(f"{row['best']} has a lower {of} than {name} on {share} {test}.")
        else:
            said.append(f"{row['best']} has the lower mean {of}, but {name} is lower on most: {lower_on}")
        if pd.notna(row.get("left out")):
            said[-1] += f" Left out: {int(row['left out'])} {over} on which not all have a finite {of}."
    return said + remarks


def layers(
    runs: Mapping[str, Finished], groups: Mapping[str, Mapping[str, Finished]], channel: str, over: str = "step"
) -> dict[str, pd.DataFrame]:
    """Return the curves of `overlay`; the curves of a family are one frame, before their median.

    Parameters
    ----------
    runs : mapping of str to Finished
        The runs by name.
    groups : mapping
        Families of these runs; they are used where the channel is a score.
    channel : str
        The channel or score of the y axis.
    over : {"step", "seconds", "kernel entries"}
        The x axis.

    Returns
    -------
    dict of str to DataFrame
        Columns x and y. Between two curves of a family y is nan, and "median" in `attrs` is the name of their median.
    """
    curves = overlay(runs, channel, over)
    if channel not in SCORES:
        return curves
    shown = {}
    for family, group in groups.items():
        frames = {name: curves.pop(name) for name in group if name in curves}
        frames = {name: frame for name, frame in frames.items() if len(frame)}
        if frames:
            count = count_in_words([group[name] for name in frames])
            middle = median(list(frames.values()))
            shown[f"{family}, {count}"] = _joined(list(frames.values()), f"{family}, median of {count}")
            shown[f"{family}, median of {count}"] = middle
    return shown | curves


def _joined(frames: Sequence[pd.DataFrame], words: str) -> pd.DataFrame:
    """Curves one after another, with a gap between two of them, and the name of their median."""
    gaps = [pd.concat([frame, frame.tail(1).assign(y=np.nan)]) for frame in frames]
    joined = pd.concat(gaps, ignore_index=True).iloc[:-1]
    joined.attrs = {**frames[0].attrs, "median": words}
    return joined


def count_in_words(runs: Sequence[Finished]) -> str:
    """Return "10 splits" or "10 seeds", or "20 runs" where several seeds have the same split.

    Parameters
    ----------
    runs : sequence of Finished
        The runs of a family.
    """
    splits = len({_split(run.spec) for run in runs})
    return f"{len(runs)} {'splits' if splits == len(runs) else 'seeds' if splits == 1 else 'runs'}"


def median(frames: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Return the median of curves, from where the last of them begins to where the last one ends.

    Parameters
    ----------
    frames : sequence of DataFrame
        Curves with columns x and y, at least one row each. Between its points, and after its end, a curve has the
        value of its newest point.
    """
    places, rows = newest_rows([frame["x"].to_numpy(float) for frame in frames], PLACES)
    values = np.stack([frame["y"].to_numpy(float)[row] for frame, row in zip(frames, rows.T, strict=True)], 1)
    begun = places >= max(frame["x"].iloc[0] for frame in frames)
    result = pd.DataFrame({"x": places[begun], "y": np.median(values[begun], axis=1)})
    result.attrs |= frames[0].attrs
    return result


def repeated(runs: Mapping[str, Finished], splits: int = TEN) -> dict[str, Spec]:
    """Return the specs that repeat runs on several splits, each for as many steps as the run has taken.

    Parameters
    ----------
    runs : mapping of str to Finished
        The runs by name. Of runs that differ only in their split, seed or budget, the first one is repeated. Runs that
        were changed by hand are not.
    splits : int
        How many.

    Returns
    -------
    dict of str to Spec
        All methods on one split after another, so that they can be compared early. A repetition of a run on its own
        split has the name of the run.

    Raises
    ------
    SettingError
        If a run holds out no rows, or divides them in time, so that there is no other split of its kind.
    """
    first: dict[str, str] = {}
    for name, run in runs.items():
        if not run.changes:
            first.setdefault(_without_split(run.spec).key(), name)
    listed = []
    for name in first.values():
        spec = runs[name].spec
        steps = max(1, int(np.nan_to_num(runs[name].last["steps"])))
        chosen = [replace(spec, split=split, budget={"steps": steps}) for split in _splits(spec.split, splits)]
        listed.append([(_name(name, spec, one), one) for one in chosen])
    most = max(map(len, listed), default=0)
    return dict(specs[k] for k in range(most) for specs in listed if k < len(specs))


def _name(run: str, own: Spec, repetition: Spec) -> str:
    split = repetition.split
    return run if split == own.split else f"{run}, {setting_in_words(own.method, 'split', split)}"


def _splits(split: Any, count: int) -> list[Any]:
    """So many splits of the same kind as this one, which is among them; of folds, at most as many as there are."""
    if split == ALL:
        raise SettingError(
            'A run with the split "all" holds out no rows, so it has no score to compare: choose a split, such as 0 or '
            '{"test": 0.1}, and keep a run of that in its place.'
        )
    if not isinstance(split, Mapping):
        first = split - split % count
        return list(range(first, first + count))
    if "folds" in split:
        first = split.get("fold", 0) - split.get("fold", 0) % count
        return [{**split, "fold": k} for k in range(first, min(first + count, split["folds"]))]
    if "test" in split:
        return [{**split, "seed": split.get("seed", 0) + k} for k in range(count)]
    raise SettingError(f"The split {in_words(split)} divides the rows in time, and there is one such split only.")
