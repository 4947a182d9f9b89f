"""The story of figure 3 of Xu et al. (2019): how the time of a step grows with the rows, measured while one watches."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=snelson-like&kernel=se&"
ADMM = f"{ROWS}method=gpcv-admm&set.folds=2&"
ML = f"{ROWS}method=ml&"

GROWTH = Story(
    8,
    "growth",
    "Twice the rows: four times or eight times?",
    (
        Part(
            "A factor in each step",
            "Maximum likelihood factors the matrix of all rows in each step: n³ operations. Here are 90 rows.",
            f"{ML}data.n=100&at=0&view=fit",
            "The test error is .48 at the start. Where does it end?",
            "Near .10. On 90 rows a factor takes hardly any time.",
            f"{ML}data.n=100&at=14&view=fit",
        ),
        Part(
            "Products in each step",
            "GPCV-ADMM multiplies the matrix by vectors instead: n² operations for each product. Two folds of the rows "
            "predict each other.",
            f"{ADMM}data.n=100&at=1&view=admm-residuals",
            "Does it have to pay for its cheaper steps with a higher test error?",
            "Not here: it ends near .10 too.",
            f"{ADMM}data.n=100&at=14&view=admm-residuals",
        ),
        Part(
            "Time against rows",
            "Press Measure: both methods run on 500 to 2,800 rows, in about a quarter of a minute. On logarithmic axes "
            "n² and n³ are straight lines. Figure 3 of the paper has three kernels; here are one kernel, other rows, "
            "and at most five steps for each size.",
            f"{ADMM}data.n=100&at=14&view=admm-residuals",
            "Twice the rows: how many times as long does a step of each method take?",
            "Four times would be n², eight times n³. The measured slopes stand beside the button, with 95 % intervals. "
            "They are below 2 and 3, because on 500 rows part of a step does not depend on the rows. The published "
            "figure draws the scaling factors: GPCV-ADMM near n² at 2,000 rows, maximum likelihood above it.",
            beside=(f"{ML}data.n=100",),
            sizes=(500, 700, 1000, 1400, 2000, 2800),
        ),
        Part(
            "A trap: few rows",
            "The same measurement on 60 to 480 rows is done sooner.",
            f"{ADMM}data.n=100&at=14&view=admm-residuals",
            "Are the slopes the same?",
            "Far from it: they are lower, or no slope fits the points. On few rows much of a step is work that does "
            "not depend on their number, so these times say little about 10,000 rows.",
            beside=(f"{ML}data.n=100",),
            sizes=(60, 85, 120, 170, 240, 340, 480),
        ),
        Part(
            "What the rows bring",
            "GPCV-ADMM on 540 rows, six times as many as before.",
            f"{ADMM}data.n=600&at=1&view=admm-residuals",
            "How far below .10 does the test error fall?",
            "Not at all: .10 is what the noise leaves. Only measure the time of more rows that bring something.",
            f"{ADMM}data.n=600&at=9&view=admm-residuals",
        ),
    ),
)
