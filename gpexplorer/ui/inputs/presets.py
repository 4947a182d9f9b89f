"""Presets: prepared runs with a question and a sentence that says what to look for.

A preset is a link, so everything it opens can be shared. Some presets show a wrong conclusion that looks right at
first. The tests run every preset and check that its sentence is true.
"""

from __future__ import annotations

from typing import NamedTuple

from ...methods.base import registry
from ...methods.capabilities import HasInducingPoints
from ...runs import Spec
from ..text import cut, text


class Preset(NamedTuple):
    """One prepared run.

    Attributes
    ----------
    question : str
        The question that the run answers.
    look : str
        What to look for while it plays.
    link : str
        The query of the address that opens it.
    """

    question: str
    look: str
    link: str


PRESETS = {
    "stand-for": Preset(
        "Which ten rows can represent all the others?",
        "Each step removes one triangle and tries another row in its place. The objective decreases with every "
        "accepted swap. Do the triangles end evenly spread? The line guesses what each row would gain from eight rows "
        "only, and the dots are exact: where do they differ?",
        "v=1&method=cholqr&data=snelson-like&kernel=se&set.num_inducing=10&set.num_pivots=8&view=landscape",
    ),
    "all-rows": Preset(
        "What is lost when every row is an inducing point?",
        "Nothing but rounding: the bound equals the exact likelihood, its trace term is close to zero, and no row is "
        "left to swap in.",
        "v=1&method=cholqr&data=snelson-like&data.n=60&kernel=se&set.num_inducing=54&view=terms",
    ),
    "how-many": Preset(
        "How many inducing points are enough?",
        "The exact model's objective lies between two limits. Between epochs points are added or removed until these "
        "differ by at most 3 nat. Choose the channel “largest distance to the exact model” to see it decrease.",
        "v=1&method=cholqr&data=friedman1&data.n=500&kernel=se-ard&set.num_inducing=32&set.gap=3&view=convergence",
    ),
    "rough": Preset(
        "Can sixteen pivots find the best swap for a rough function?",
        "Often not: the rank correlation of approximate and exact scores, in the title of the landscape, stays far "
        "below 1. Choose the kernel “squared exponential, ARD” and compare.",
        "v=1&method=cholqr&data=friedman1&data.n=500&kernel=matern12-ard&set.num_inducing=30&set.num_pivots=16"
        "&set.pivot_policy=random&set.num_proposals=1&set.removal=random&view=landscape",
    ),
    "four-groups": Preset(
        "Four groups with curves that are alike: does each need a model of its own?",
        "A row is a dose and the name of a group, and nothing lies between two names: points can only be chosen among "
        "the rows. With the product of both kernels each group has a curve of its own and learns from the others. "
        "Choose + in place of ×: the test error is more than four times as large.",
        "v=1&method=cholqr&data=doses&kernel=se*category&set.num_inducing=32&view=convergence",
    ),
    "low-objective": Preset(
        "Two methods, two objectives: is the lower one the better fit?",
        "FITC lets the noise differ from row to row, and its objective ends lower than that of CholQR on each of ten "
        "splits. Its test error does not: choose “CholQR swaps” and other splits, and compare. Sometimes one is "
        "better, sometimes the other, and inside the band of the calibration 20 test rows cannot tell.",
        "v=1&method=fitc&data=snelson-like&kernel=se&set.num_inducing=10&view=calibration",
    ),
    "honest-bands": Preset(
        "An exact GP on a few rows is fast. Can its bands be trusted?",
        "It uses 15 of the 180 rows. In the calibration picture the curve leaves the band of chance at the bottom: too "
        "many test rows lie outside the intervals. Over ten splits these are 26 of 200, and should be 10. Choose "
        "“CholQR swaps”, which uses all rows, and compare.",
        "v=1&method=subset-of-data&data=snelson-like&kernel=se&set.num_rows=15&view=calibration",
    ),
    "steepest": Preset(
        "Which rows should a block solver take next?",
        "The rings are the rows of a block. Those with the largest gradients lie close together, so solving for them "
        "gains little. Choose “Greedy block coordinate descent”: its rings are spread, and it reaches a lower "
        "objective with about as many kernel entries.",
        "v=1&method=bcd-gradient&data=sin-product&data.n=1000&kernel=se-ard&view=gbcd-gradient",
    ),
    "stalls": Preset(
        "Why do conjugate gradients need so many steps on data with little noise?",
        "A small noise variance makes the matrix ill-conditioned, and the gradient decreases slowly. Choose "
        "“Preconditioned conjugate gradients”: a low-rank approximation of the same matrix is enough to converge "
        "in a few steps.",
        "v=1&method=cg&data=sin-product&data.n=1500&data.noise=0.01&kernel=se&view=gbcd-gradient",
    ),
    "eigenfunctions": Preset(
        "How many eigenfunctions does a surface need?",
        "Decrease the number of eigenfunctions from 30 to 8 and to 2, and watch the test error increase. The "
        "spectrum shows the eigenvalues that are left out.",
        "v=1&method=grief&data=sin-product&kernel=se-ard&set.num_eigenfunctions=30&set.basis=eigenvalues&view=grief-spectrum",
    ),
    "too-small": Preset(
        "What happens when the penalty of ADMM is too small?",
        "The constraint does not hold theta back: steps are rejected, and the run ends with a large test error. "
        "Set rho to 20, and both residuals decrease together.",
        "v=1&method=gpcv-admm-holdout&data=snelson-like&kernel=se&set.theta_method=z+follows&set.rho=0.001&set.balance=0&set.rho_span=1"
        "&view=admm-residuals",
    ),
    "biased": Preset(
        "What do minibatches of sixteen rows say about the likelihood of nine hundred?",
        "The line is the estimate from the minibatches, the dots are the exact likelihood. With BSGD they stay "
        "apart, because its estimate is biased. Choose SCGD, and the distance is less than half.",
        "v=1&method=bsgd&data=hypercube&data.d=2&data.n=1000&set.batch_size=16&view=stochastic-estimate",
    ),
    "running-average": Preset(
        "Can sixteen rows at a time estimate a log determinant?",
        "Not one minibatch alone, but SCGD averages the matrix over many of them. The line comes near the dots and "
        "stays a little above, as its average is one of earlier features. Choose BSGD with a batch size of 16: the "
        "distance is about three times as large or more.",
        "v=1&method=scgd&data=hypercube&data.d=2&data.n=400&set.batch_size=16&view=stochastic-estimate",
    ),
    "saddle-point": Preset(
        "Does an unbiased gradient keep the learned matrix close to the exact one?",
        "Not by itself: MINIMAX follows the moving features with a delay. After eight epochs its relative distance is "
        "more than three times that of SCGD with as many rows. Divide the rate by ten, and it becomes smaller.",
        "v=1&method=minimax&data=hypercube&data.d=2&data.n=400&set.batch_size=16&view=stochastic-gap",
    ),
    "consensus": Preset(
        "What do folds do when each may have its own hyperparameters?",
        "Consensus ADMM keeps the paths of the four folds within one log unit of each other. Choose “GPCV-ADMM, naive "
        "averaging”: without consensus they end more than two log units apart.",
        "v=1&method=gpcv-admm&data=snelson-like&kernel=se&set.copies=true&view=admm-paths",
    ),
    "mixed": Preset(
        "When have the chains run long enough?",
        "Play to step 112. At step 92, with the first samples, R-hat is 1.29; twenty steps later it is below 1.01, "
        "and there are ten times as many effective samples. The test error does not change meanwhile, so it cannot "
        "tell you.",
        "v=1&method=grief-mcmc&data=sin-product&data.n=300&kernel=se-ard&set.num_eigenfunctions=15"
        "&set.basis=eigenvalues&view=grief-chains",
    ),
}

BY_FAMILY = {
    "inducing": "Which rows can represent all the others?",
    "exact": "How little of the kernel matrix is enough?",
    "eigenfunctions": "How many eigenfunctions does this function need?",
    "cross_validation": "Which hyperparameters predict rows they have not seen?",
    "minibatches": "What can a few rows at a time learn about all of them?",
}


def question(spec: Spec, rows: int | None, preset: str = "", target: str = "", answer: str = "") -> str:
    """Return the heading of the page as HTML: a question, and a line that says what to do or to look for.

    Parameters
    ----------
    rows : int or None
        Number of training rows, None before they are read.
    preset : str, default ""
        Key of the preset that the spec came from, or "".
    target : str, default ""
        The column to predict in rows of one's own, or "".
    answer : str, default ""
        What is said of a trained model that is shown, or "".
    """
    if preset in PRESETS:
        return _heading(PRESETS[preset].question, text(PRESETS[preset].look))
    method, m = registry[spec.method], spec.settings.get("num_inducing")
    if m == 0 and rows:  # the method chooses from the number of rows
        opened = method(**spec.settings)
        m = opened.num_points(rows) if isinstance(opened, HasInducingPoints) else None
    n = f"{rows:,}" if rows else "all"
    title = f"Which {m} of {n} rows can represent the others?" if m else BY_FAMILY.get(method.family, method.title)
    watch = "how the points move" if m else "how the objective decreases"
    line = f"<b>{text(method.title)}.</b> Press <b>Play</b> and watch {watch}."
    if target:
        title, line = what_predicts(target), f"Press <b>Find out</b> to try the methods. {line}"
    return _heading(title, text(answer, 600) if answer else line)


def what_predicts(target: str) -> str:
    """Return the question about rows of one's own, with at most 60 letters of the name of the target."""
    return f"What predicts {cut(target, 60)}?"


def _heading(title: str, line: str) -> str:
    return f"<h1>{text(title)}</h1><p>{line}</p>"
