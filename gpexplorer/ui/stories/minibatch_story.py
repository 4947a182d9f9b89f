"""The story of minibatches: what a few rows say about all of them, and what a bias does."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=hypercube&data.d=2&data.n=1000&"

MINIBATCHES = Story(
    4,
    "minibatches",
    "A few rows at a time",
    (
        Part(
            "All rows in each step",
            "A network of features is learned from 900 rows. The full batch uses all of them for every step, so its "
            "line goes through the dots: nothing has to be estimated.",
            f"{ROWS}method=full-batch&at=12&view=stochastic-estimate",
        ),
        Part(
            "Sixteen rows",
            "SCGD takes sixteen rows at a time. The line is what the minibatches say about the likelihood, the dots "
            "are exact.",
            f"{ROWS}method=scgd&set.batch_size=16&at=2&view=stochastic-estimate",
            "In twelve passes over the rows, does it get further than the full batch?",
            "Yes: the exact NLML is -1036 against -949. It takes 57 small steps in the time of each large one.",
            f"{ROWS}method=scgd&set.batch_size=16&at=12&view=stochastic-estimate",
        ),
        Part(
            "More rows per minibatch",
            "The same method with 128 rows at a time: eight times fewer steps in a pass over the rows.",
            f"{ROWS}method=scgd&set.batch_size=128&at=2&view=stochastic-estimate",
            "A larger minibatch has less noise. Does it get further in twelve passes?",
            "No: -737 after as many passes. It steps more surely, and far less often.",
            f"{ROWS}method=scgd&set.batch_size=128&at=12&view=stochastic-estimate",
        ),
        Part(
            "A matrix that is learned",
            "MINIMAX does not average the matrices of minibatches: it learns the matrix in the likelihood along with "
            "everything else.",
            f"{ROWS}method=minimax&set.batch_size=16&at=2&view=stochastic-estimate",
            "What does that cost in progress?",
            "Little: -996 after twelve passes, where SCGD with as many rows has -1036.",
            f"{ROWS}method=minimax&set.batch_size=16&at=12&view=stochastic-estimate",
        ),
        Part(
            "A trap: the biased one",
            "BSGD treats each minibatch as if it were all there is. Its line stays away from the dots: the estimate is "
            "biased.",
            f"{ROWS}method=bsgd&set.batch_size=16&at=4&view=stochastic-estimate",
            "Must its fit be worse than that of SCGD after twelve passes?",
            "Not here. Its exact NLML is the lowest of all, -1396. What is wrong is the number that it reports: a "
            "method may follow a biased direction to a good place, and you would not know it from its own estimate.",
            f"{ROWS}method=bsgd&set.batch_size=16&at=12&view=stochastic-estimate",
        ),
    ),
)
