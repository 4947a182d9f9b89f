"""The story of hyperparameters that are chosen by the errors on held-out rows, and must agree between folds."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=snelson-like&data.n=100&kernel=se&"
HOLD_OUT = f"{ROWS}method=gpcv-admm-holdout&set.theta_method=z+follows&set.balance=0&set.rho_span=1&"

FOLDS = Story(
    "Folds that have to agree",
    (
        Part(
            "Leave one out",
            "Each of the 90 training rows is predicted from the other 89, and the hyperparameters lower the sum of the "
            "squared errors. For an exact GP this costs little more than one fit.",
            f"{ROWS}method=loo&at=13&view=fit",
            "The test error was .48 at the start. Where does it end?",
            "Near .10.",
        ),
        Part(
            "Two folds, two opinions",
            "Consensus ADMM gives each fold its own hyperparameters and pulls them together. The curves are those of "
            "the folds and of their consensus.",
            f"{ROWS}method=gpcv-admm&at=3&view=admm-residuals",
            "Two folds leave out half of the rows each time. Will this be as good as leaving out one?",
            "No: the test error ends near .23. Half of 90 rows describe the function worse than 89.",
        ),
        Part(
            "A penalty that is too small",
            "The penalty rho says how strongly a split pulls at the hyperparameters. Here it is .001, and thirty steps "
            "were taken.",
            f"{HOLD_OUT}set.rho=0.001&at=30&view=admm-residuals",
            "What have thirty steps changed?",
            "Almost nothing: the test error is .47, as at the start.",
        ),
        Part(
            "A penalty that holds",
            "The same method with rho = 20. Both residuals fall together.",
            f"{HOLD_OUT}set.rho=20&at=30&view=admm-residuals",
            "And now?",
            "The test error is .10 after thirty steps.",
        ),
        Part(
            "A trap: why not just average?",
            "Naive averaging lets each fold find its own answer and takes the mean in the end. It runs in parallel "
            "and never argues, which looks like a good idea.",
            f"{ROWS}method=gpcv-admm-naive&at=21&view=fit",
            "Is the mean of two good answers a good answer?",
            "Not for hyperparameters: the test error is .35, and consensus reached .23 on the same folds.",
        ),
        Part(
            "Maximum likelihood",
            "The likelihood of all rows needs no folds at all.",
            f"{ROWS}method=ml&at=14&view=fit",
            "Does cross-validation have to win, because it looks at errors on rows it has not seen?",
            "No. The test error is .10 here too. Cross-validation pays where the model is wrong, and these rows come "
            "close to what a GP assumes.",
        ),
    ),
)
