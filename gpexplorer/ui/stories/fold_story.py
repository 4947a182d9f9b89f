"""The story of hyperparameters that are chosen by the errors on held-out rows, and must agree between folds."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=snelson-like&data.n=100&kernel=se&"
HOLD_OUT = f"{ROWS}method=gpcv-admm-holdout&set.theta_method=z+follows&set.balance=0&set.rho_span=1&"

FOLDS = Story(
    3,
    "folds",
    "Folds that have to agree",
    (
        Part(
            "Leave one out",
            "Each of the 90 training rows is predicted from the other 89, and the hyperparameters lower the sum of the "
            "squared errors. For an exact GP this costs little more than one fit.",
            f"{ROWS}method=loo&at=0&view=fit",
            "The test error is .48 at the start. Where does it end?",
            "Near .10.",
            f"{ROWS}method=loo&at=13&view=fit",
        ),
        Part(
            "Four folds, one answer",
            "Each of four folds leaves out a quarter of the rows, and one vector of hyperparameters lowers the sum of "
            "their errors.",
            f"{ROWS}method=gpcv-admm&at=3&view=admm-residuals",
            "Which row falls into which fold is drawn at random. Can that matter?",
            "Yes, with so few rows: the test error ends near .23 here, and near .10 with seed 1, which draws other "
            "folds from the same rows. The page now shows seed 1.",
            f"{ROWS}method=gpcv-admm&seed=1&at=12&view=admm-residuals",
        ),
        Part(
            "A penalty that is too small",
            "The penalty rho says how strongly a split pulls at the hyperparameters. Here it is .001.",
            f"{HOLD_OUT}set.rho=0.001&at=1&view=admm-residuals",
            "The test error is .48. What will thirty steps change?",
            "Almost nothing: the test error is .47.",
            f"{HOLD_OUT}set.rho=0.001&at=30&view=admm-residuals",
        ),
        Part(
            "A penalty that holds",
            "The same method with rho = 20.",
            f"{HOLD_OUT}set.rho=20&at=1&view=admm-residuals",
            "And now?",
            "The test error is .10 after thirty steps, and both residuals fall together.",
            f"{HOLD_OUT}set.rho=20&at=30&view=admm-residuals",
        ),
        Part(
            "A trap: why not just average?",
            "Naive averaging lets each fold find its own answer and takes the mean in the end. It runs in parallel "
            "and never argues, which looks like a good idea.",
            f"{ROWS}method=gpcv-admm-naive&at=18&view=fit",
            "Is the mean of four good answers a good answer?",
            "Not always: the test error is .35, and one answer for all four folds reached .23. But with seed 2 both "
            "end near .10, so that one draw of the folds proves little. The page now shows the mean with seed 2.",
            f"{ROWS}method=gpcv-admm-naive&seed=2&at=17&view=fit",
        ),
        Part(
            "Maximum likelihood",
            "The likelihood of all rows needs no folds at all.",
            f"{ROWS}method=ml&at=0&view=fit",
            "Does cross-validation have to win, because it looks at errors on rows it has not seen?",
            "No. The test error is .10 here too. Cross-validation pays where the model is wrong, and these rows come "
            "close to what a GP assumes.",
            f"{ROWS}method=ml&at=14&view=fit",
        ),
    ),
)
