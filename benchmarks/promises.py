"""Does an answer promise what new rows show? Promise against truth for tables of three kinds.

`python -m benchmarks promises FOLDER --seconds 10` expects tables as `tables` does, and draws others by itself:

    random   rows at random: smooth, skewed, noisy and stepwise functions, with words and gaps
    groups   new groups: patients, schools and machines with effects of their own
    time     the last rows: random walks, trends with seasons, autoregressions, and panels

Each answer states a 95 % interval of the RMSE of new rows. The truth is inside if the RMSE of the test rows is in it.
With few test rows the truth is itself a draw, so that not all can be inside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import typer

import gpexplorer as gpx
from gpexplorer.data.in_memory import table_of

KINDS = {"rows at random": "random", "whole groups": "groups", "the last rows in time": "time"}


class Table(NamedTuple):
    """Rows to learn from, and new rows.

    Attributes
    ----------
    name, kind, target : str
    train, test : DataFrame
    """

    name: str
    kind: str
    target: str
    train: pd.DataFrame
    test: pd.DataFrame


def drawn_tables(draws: int) -> Iterator[Table]:
    """So many tables of each generator."""
    for seed in range(draws):
        rng = np.random.default_rng(seed)
        for at_random in (_smooth, _skewed, _steps):
            table = at_random(rng, int(rng.integers(150, 900)))
            train = rng.permutation(len(table)) < 0.7 * len(table)
            yield Table(f"{at_random.__name__[1:]} {seed}", "random", "y", table[train], table[~train])
        for of_groups in (_patients, _schools, _machines):
            table = of_groups(rng, int(rng.integers(24, 60)))
            names = rng.permutation(table["subject_id"].unique())
            train = table["subject_id"].isin(names[: int(0.7 * len(names))]).to_numpy()
            yield Table(f"{of_groups.__name__[1:]} {seed}", "groups", "y", table[train], table[~train])
        for in_time in (_walk, _season, _panel):
            table = in_time(rng, int(rng.integers(250, 600)))
            size = int(0.88 * len(table))
            yield Table(f"{in_time.__name__[1:]} {seed}", "time", "y", table[:size], table[size:])


def _smooth(rng: Any, n: int) -> pd.DataFrame:
    X = rng.normal(size=(n, 4))
    word = rng.integers(0, 3, n)
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.7 * word + rng.normal(0, rng.uniform(0.1, 1.0), n)
    frame = pd.DataFrame(X, columns=list("abcd")).assign(word=np.array(["red", "green", "blue"])[word])
    frame.loc[rng.random(n) < 0.1, "d"] = np.nan
    return frame.assign(y=y)


def _skewed(rng: Any, n: int) -> pd.DataFrame:
    area, rooms = rng.lognormal(4.0, 0.8, n), rng.integers(1, 8, n)
    price = np.exp(5.0 + 0.9 * np.log(area) - 0.05 * rooms + rng.normal(0, 0.3, n))
    return pd.DataFrame({"area": area.round(1), "rooms": rooms, "age": rng.uniform(0, 90, n).round(), "y": price})


def _steps(rng: Any, n: int) -> pd.DataFrame:
    X = rng.uniform(size=(n, 5))
    y = 3.0 * (X[:, 0] > 0.6) * (X[:, 1] > 0.3) - 2.0 * (X[:, 2] > 0.5) + rng.standard_t(4, n) * 0.4
    return pd.DataFrame(X, columns=[f"part {k}" for k in range(5)]).assign(y=y)


def _patients(rng: Any, groups: int) -> pd.DataFrame:
    visits = int(rng.integers(5, 15))
    number = np.repeat(np.arange(groups), visits)
    age, effect = rng.uniform(20, 80, groups), rng.normal(0, 4, groups)
    dose = rng.uniform(0, 1, len(number))
    y = 0.1 * age[number] + 4.0 * dose + effect[number] + rng.normal(0, 1, len(number))
    return pd.DataFrame({"subject_id": number + 100, "age": age[number].round(1), "dose": dose, "y": y})


def _schools(rng: Any, groups: int) -> pd.DataFrame:
    number = np.sort(rng.integers(0, groups, 20 * groups))
    slope, level = rng.normal(1.0, 0.5, groups), rng.normal(0, 1, groups)
    hours = rng.gamma(2.0, 1.0, len(number))
    y = level[number] + slope[number] * hours + rng.normal(0, 1, len(number))
    return pd.DataFrame({"subject_id": number, "hours": hours, "size": (50 + 9 * level[number]).round(), "y": y})


def _machines(rng: Any, groups: int) -> pd.DataFrame:
    times = 30
    number, cycle = np.repeat(np.arange(groups), times), np.tile(np.arange(times), groups)
    rate, load = rng.gamma(4.0, 0.02, groups), rng.uniform(0.5, 2.0, groups)
    wear = rate[number] * load[number] * cycle**1.2 + rng.normal(0, 0.2, len(number))
    return pd.DataFrame({"subject_id": number, "cycle": cycle, "load": load[number].round(2), "y": wear})


def _walk(rng: Any, n: int) -> pd.DataFrame:
    return pd.DataFrame({"day": np.arange(n), "y": np.cumsum(rng.normal(0, 1, n)) + rng.normal(0, 0.3, n)})


def _season(rng: Any, n: int) -> pd.DataFrame:
    period = float(rng.choice([7.0, 12.0, 30.4]))
    noise = np.convolve(rng.normal(0, 1, n + 30), 0.8 ** np.arange(30))[:n]
    day = np.arange(n)
    date = pd.Timestamp("2015-01-01") + pd.to_timedelta(day, unit="D")
    return pd.DataFrame({"date": date, "y": 0.02 * day + 3.0 * np.sin(2 * np.pi * day / period) + noise})


def _panel(rng: Any, n: int) -> pd.DataFrame:
    cities, months = int(rng.integers(6, 20)), n // 5
    common = np.cumsum(rng.normal(0.2, 1.0, months))
    level, size = rng.normal(100, 15, cities), rng.lognormal(4, 1, cities)
    month, city = np.repeat(np.arange(months), cities), np.tile(np.arange(cities), months)
    sales = size[city] * rng.lognormal(0, 0.2, len(month))
    y = level[city] + common[month] + 2.0 * np.log(sales) + rng.normal(0, 1, len(month))
    names = np.array([f"city {k}" for k in range(cities)])
    date = pd.Timestamp("2010-01-01") + pd.to_timedelta(30 * month, unit="D")
    return pd.DataFrame({"date": date, "city": names[city], "sales": sales.round(1), "y": y})


def files(folder: Path) -> Iterator[Table]:
    """The tables of a folder."""
    described = json.loads((folder / "tables.json").read_text("utf-8"))
    for name, entry in sorted(described.items()):
        train, test = (pd.read_csv(folder / name / f"{part}.csv") for part in ("train", "test"))
        yield Table(name, KINDS[entry["split"]], entry["target"], train, test)


def promise_and_truth(table: Table, seconds: float) -> tuple[Any, float]:
    """The answer for the training rows, and the RMSE of its predictions of the new rows."""
    answer = gpx.recommend(table.train.reset_index(drop=True), target=table.target, seconds=seconds)
    y = pd.to_numeric(table.test[table.target], errors="coerce").to_numpy(float)
    reader = answer.posterior.columns.reader
    assert reader is not None
    mean = answer.predict(reader.read(table_of(table.test.reset_index(drop=True))).X).mean.numpy()
    return answer, float(np.sqrt(np.nanmean(np.square(mean - y))))


def command(
    folder: Annotated[Path | None, typer.Argument(help="A folder as `tables` takes it.")] = None,
    draws: Annotated[int, typer.Option(help="Tables of each generator.", min=0)] = 3,
    kinds: Annotated[list[str] | None, typer.Option("--kind", help="random, groups or time; all without it.")] = None,
    seconds: Annotated[float, typer.Option(help="Of each recommendation.", min=0.5)] = 10.0,
) -> None:
    """Print the RMSE that each answer promises, with its interval, beside that of new rows."""
    tables = [*(files(folder) if folder else ()), *drawn_tables(draws)]
    inside = dict[str, list[bool]]()
    typer.echo(f"{'table':16} {'kind':7} {'held out':9} {'promised':>9} {'from':>9} {'to':>9} {'truth':>9}")
    for table in (table for table in tables if table.kind in (kinds or KINDS.values())):
        answer, truth = promise_and_truth(table, seconds)
        value, low, high = answer.expected["rmse"]
        inside.setdefault(table.kind, []).append(low <= truth <= high)
        mark = "" if inside[table.kind][-1] else "   outside"
        numbers = " ".join(f"{number:9.4g}" for number in (value, low, high, truth))
        typer.echo(f"{table.name:16} {table.kind:7} {answer.held_out_by:9} {numbers}{mark}")
    for kind, found in inside.items():
        typer.echo(f"{kind}: the truth is inside on {sum(found)} of {len(found)} tables ({np.mean(found):.0%})")
