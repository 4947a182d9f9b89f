"""Questions to begin with: each opens a run and says what to look for. Some lead astray first, on purpose.

A preset is a link: what it opens is what anyone can share.
"""

from __future__ import annotations

from typing import NamedTuple


class Preset(NamedTuple):
    """One question."""

    question: str
    look: str  # what to look for, once it plays
    link: str  # the query that opens it


PRESETS = {
    "stand-for": Preset(
        "Which ten rows can stand for all the rest?",
        "Each step takes one triangle out and tries another row in its place. Do they end up evenly spread?",
        "v=1&method=cholqr&data=snelson-like&kernel=se&set.num_inducing=10&view=landscape",
    ),
    "all-rows": Preset(
        "What is lost when every row is an inducing point?",
        "Nothing: with m = n the bound is the exact likelihood, and no swap is left to try.",
        "v=1&method=cholqr&data=snelson-like&data.n=60&kernel=se&set.num_inducing=54&view=terms",
    ),
    "rough": Preset(
        "Can sixteen pivots see the best swap of a rough function?",
        "Hardly: watch the rank correlation in the landscape's title, then choose the squared exponential and compare.",
        "v=1&method=cholqr&data=friedman1&data.n=500&kernel=matern12-ard&set.num_inducing=30&set.num_pivots=16"
        "&set.pivot_policy=random&set.num_proposals=1&set.removal=random&view=landscape",
    ),
    "low-objective": Preset(
        "Two methods, two objectives: is the lower one the better fit?",
        "FITC may let the noise differ from row to row, and its objective ends below that of swapping. Count the "
        "held-out crosses outside its band, then choose CholQR swaps and SGPR on the same rows.",
        "v=1&method=fitc&data=snelson-like&kernel=se&set.num_inducing=10&view=calibration",
    ),
    "honest-bands": Preset(
        "A subset of the data fits fast. Are its bands honest?",
        "The curve looks as good as any. Count the held-out crosses outside the band in the calibration tab, and see "
        "what the same number of inducing points gives.",
        "v=1&method=subset-of-data&data=snelson-like&kernel=se&view=calibration",
    ),
    "steepest": Preset(
        "Which rows should a block solver take next?",
        "The largest gradients sit together, and a block of near-copies gains little. Compare the objective with "
        "“Greedy block coordinate descent” after the same kernel entries.",
        "v=1&method=bcd-gradient&data=friedman1&data.n=2000&kernel=se-ard&view=gbcd-gradient",
    ),
    "stalls": Preset(
        "Why does conjugate gradients stall on clean data?",
        "Little noise makes the matrix ill conditioned. Choose “pcg” next: a few pivots of the same matrix repair it.",
        "v=1&method=cg&data=sin-product&data.n=1500&data.noise=0.01&kernel=se&view=gbcd-gradient",
    ),
    "eigenfunctions": Preset(
        "How many eigenfunctions does a surface need?",
        "Drag p down until the picture breaks; the spectrum says beforehand where that will be.",
        "v=1&method=grief&data=sin-product&kernel=se-ard&set.num_eigenfunctions=30&view=grief-spectrum",
    ),
    "too-small": Preset(
        "What happens where the penalty of ADMM is too small?",
        "Theta runs ahead of the constraint: steps are taken back, then the run gives up and keeps its best theta. "
        "Raise rho to 20 and watch both residuals fall together.",
        "v=1&method=gpcv-admm-holdout&data=snelson-like&kernel=se&set.rho=0.001&set.balance=0&set.rho_span=1"
        "&view=admm-residuals",
    ),
    "biased": Preset(
        "Do sixteen rows see the likelihood of nine hundred?",
        "The line is what the minibatches see, the dots are the truth, and with BSGD they part for good. Choose SCGD, "
        "and the line finds the dots.",
        "v=1&method=bsgd&data=hypercube&data.d=2&data.n=1000&set.batch_size=16&view=stochastic-estimate",
    ),
}
