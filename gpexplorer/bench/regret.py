"""How good is `recommend`? Its regret against the best method in hindsight, beside fixed choices and other programs.

A cell is one contender on one public set with one seed and so many seconds of wall-clock time: it learns from the
training rows and is scored once on the test rows. The contenders are

    recommend                 `gpx.recommend` with all of the time
    always X                  one of its candidates alone with all of the time, sizes by the same rule
    GPyTorch SGPR             512 random points moved by Adam, SE-ARD, on all training rows
    GPyTorch SVGP             the method `svgp` of this package, which is GPyTorch's
    scikit-learn GP           an exact GP on 1000 random rows, SE-ARD plus noise
    boosted trees             scikit-learn's histogram gradient boosting, as `recommend` runs it

    regret in SMSE   = SMSE / least SMSE - 1      over `recommend` and all "always X" of the same set, seed and seconds
    regret in NLPD   = NLPD - least NLPD          in nats; targets in units of the training standard deviation

The trees and the other programs do not enter the least value; the table says how they stand beside it. Cells are kept
in a file as they are computed, so that the same command continues where it was stopped.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray

from .. import data as data_sets
from ..data import Split
from ..errors import GPExplorerError
from ..recommendation import recommend
from ..recommendation.candidates import Candidate, candidates
from ..recommendation.halving import LAST_LANES, SHARES
from ..recommendation.held_out import RowScores
from ..recommendation.lanes import step_until
from ..recommendation.simple_models import SIMPLE
from .trust.problems import PUBLIC

Array = NDArray[np.float64]
Predictions = tuple[Array, Array]

POINTS, SUBSET, RATE = 512, 1000, 0.05  # of the other programs
OURS = ("recommend", "always ")


def command(
    sets: Annotated[str, typer.Option(help="Names of sets, joined by commas; all on this machine without it.")] = "",
    seconds: Annotated[str, typer.Option(help="Budgets in seconds, joined by commas.")] = "5,30,120",
    seeds: Annotated[int, typer.Option(help="Splits per set.", min=1)] = 1,
    only: Annotated[str, typer.Option(help="Contenders whose name contains this text.")] = "",
    out: Annotated[Path, typer.Option(help="The file that keeps the cells.")] = Path("regret.jsonl"),
) -> None:
    """Regret of `recommend`, of fixed choices and of other programs, on public sets with the same seconds."""
    here = data_sets.available()["cached"]
    names = [name for name in (sets.split(",") if sets else PUBLIC) if name in here.index and here[name]]
    done = _read(out)
    for budget in map(float, seconds.split(",")):
        for name in names:
            for seed in range(seeds):
                split = data_sets.load(name, split=seed)
                for contender, predict in contenders(split, budget, seed):
                    key = (name, seed, budget, contender)
                    if only not in contender or key in done:
                        continue
                    done[key] = measured(split, predict)
                    with out.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps([*key, done[key]]) + "\n")
                    typer.echo(f"{name} {seed} {budget:g} s {contender}: {done[key]}", err=True)
    typer.echo(report(done))


def contenders(split: Split, seconds: float, seed: int) -> Iterator[tuple[str, Callable[[], Predictions]]]:
    """Each contender by name, with a function that learns and predicts at the test rows."""
    yield "recommend", lambda: _recommended(split, seconds, seed)
    for candidate in candidates(split, seconds * SHARES[-1] / LAST_LANES):
        kind = candidate.name.split(", m =")[0]
        kind = "always exact GP" + kind[kind.index(",") :].split(" rows")[0] if candidate.group == "exact" else kind
        label = kind if kind.startswith("always") else f"always {kind}"
        yield label.rstrip(", 0123456789") if "exact" in label else label, _alone(candidate, split, seconds, seed)
    yield "GPyTorch SGPR", lambda: _gpytorch_sgpr(split, seconds, seed)
    yield "GPyTorch SVGP", _alone(Candidate("svgp", "other", "svgp", "se-ard"), split, seconds, seed)
    yield "scikit-learn GP", lambda: _scikit_gp(split, seed)
    yield "boosted trees", lambda: SIMPLE["boosted trees"](*_arrays(split))


def measured(split: Split, predict: Callable[[], Predictions]) -> dict[str, Any]:
    """Scores on the test rows and the seconds of one contender; a sentence if it gave no answer."""
    begin = time.perf_counter()
    try:
        mean, var = predict()
    except (GPExplorerError, ValueError, RuntimeError) as error:
        return {"failed": str(error)[:200], "seconds": time.perf_counter() - begin}
    seconds = time.perf_counter() - begin
    y, sd = split.test.y.numpy(), float(split.train.y.std(correction=0))
    scores = RowScores.of(y / sd, mean / sd, var / sd**2)
    covered = float((np.abs(y - mean) <= 1.959964 * np.sqrt(var)).mean())
    return {"smse": scores.smse, "nlpd": scores.nlpd, "coverage95": covered, "seconds": seconds}


def report(cells: dict[tuple[str, int, float, str], dict[str, Any]]) -> str:
    """The table in Markdown: regret per contender and budget, over sets and seeds."""
    rows = [
        {"set": name, "seed": seed, "budget": budget, "contender": contender, **cell}
        for (name, seed, budget, contender), cell in cells.items()
    ]
    frame = pd.DataFrame(rows)
    if frame.empty or "smse" not in frame:
        return "No cell is computed yet."
    problem = ["set", "seed", "budget"]
    frame.loc[~np.isfinite(frame["nlpd"].astype(float)), ["smse", "nlpd"]] = math.nan
    ours = frame[frame["contender"].str.startswith(OURS)]
    least = ours.groupby(problem)[["smse", "nlpd"]].min().add_prefix("least_")
    frame = frame.join(least, on=problem)
    frame["error"] = frame["smse"] / frame["least_smse"] - 1.0
    frame["density"] = frame["nlpd"] - frame["least_nlpd"]
    lines = []
    for budget, part in frame.groupby("budget"):
        trials = part[problem].drop_duplicates()
        lines += [
            f"{budget:g} s, {len(trials)} data sets and seeds:",
            "",
            "| contender | median regret, SMSE | median regret, NLPD | mean NLPD regret | coverage95 | no answer | s |",
            "| --- | --- | --- | --- | --- | --- | --- |",
        ]
        ranked = sorted(part.groupby("contender"), key=lambda entry: float(entry[1]["density"].median()))
        for contender, each in ranked:
            lines.append(
                f"| {contender} | {each['error'].median():.1%} | {each['density'].median():.3f} | "
                f"{each['density'].mean():.3f} | {each['coverage95'].median():.2f} | "
                f"{int(each['nlpd'].isna().sum())} | {each['seconds'].median():.1f} |"
            )
        lines.append("")
    return "\n".join(lines)


def _recommended(split: Split, seconds: float, seed: int) -> Predictions:
    answer = recommend(split, seconds=seconds, seed=seed)
    mean, var = answer.predict(split.test.X)
    return mean.double().numpy(), var.double().numpy()


def _alone(candidate: Candidate, split: Split, seconds: float, seed: int) -> Callable[[], Predictions]:
    def predict() -> Predictions:
        deadline = time.perf_counter() + seconds
        run = candidate.spec(len(split.train), seed).open(data=split)
        step_until(run, deadline, lambda: False)
        run.close()
        mean, var = run.posterior(of="y")(split.test.X)
        return mean.double().numpy(), var.double().numpy()

    return predict


def _arrays(split: Split) -> tuple[Array, Array, Array]:
    return split.train.X.numpy(), split.train.y.numpy(), split.test.X.numpy()


def _scikit_gp(split: Split, seed: int) -> Predictions:
    """An exact GP on 1000 random rows, as scikit-learn fits it by its own defaults: it cannot be given seconds."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    X, y, X_new = _arrays(split)
    rows = np.random.default_rng(seed).permutation(len(X))[:SUBSET]
    scaler = StandardScaler().fit(X[rows])
    kernel = ConstantKernel() * RBF(np.ones(X.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, normalize_y=True).fit(scaler.transform(X[rows]), y[rows])
    mean, sd = model.predict(scaler.transform(X_new), return_std=True)
    return mean, np.square(sd)


def _gpytorch_sgpr(split: Split, seconds: float, seed: int) -> Predictions:
    """GPyTorch's SGPR with 512 random points, all parameters by Adam until the time is used."""
    import gpytorch

    deadline = time.perf_counter() + seconds
    scaled = split.scaled()
    X, y, scale = scaled.train.X, scaled.train.y, scaled.train.scale
    assert scale is not None
    rows = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))[:POINTS]

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            likelihood = gpytorch.likelihoods.GaussianLikelihood()
            super().__init__(X, y, likelihood)
            base = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=X.shape[1]))
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(base, X[rows].clone(), likelihood)

        def forward(self, inputs: torch.Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(inputs), self.covar_module(inputs))

    model = Model().double()
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    optimiser = torch.optim.Adam(model.parameters(), RATE)
    model.train()
    last = 0.0
    while time.perf_counter() + last < deadline:
        begin = time.perf_counter()
        optimiser.zero_grad()
        loss = -objective(model(X), y)
        loss.backward()
        optimiser.step()
        last = time.perf_counter() - begin
    model.eval()
    with torch.no_grad():
        predicted = model.likelihood(model(scaled.test.X))
    mean = predicted.mean * scale.y_sd + scale.y_mean
    return mean.numpy(), (predicted.variance * scale.y_sd**2).numpy()


def _read(path: Path) -> dict[tuple[str, int, float, str], dict[str, Any]]:
    """The cells kept so far; a last line that was cut is computed again."""
    cells = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                name, seed, budget, contender, cell = json.loads(line)
                cells[name, seed, budget, contender] = cell
    return cells
