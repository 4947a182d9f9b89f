"""The story of the full GP without its matrix: which rows to solve for next."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=sin-product&data.n=600&kernel=se-ard&set.learn=false&"

BLOCKS = Story(
    1,
    "blocks",
    "The full GP, one block at a time",
    (
        Part(
            "A large linear system",
            "The mean of a full GP solves a system with one equation per row: 540 here. Nothing is solved yet, and "
            "the prediction is zero. The gradient of a row says how wrong its equation is.",
            f"{ROWS}method=gbcd&set.block=50&set.coarse=500&at=0&view=gbcd-gradient",
        ),
        Part(
            "The rows with the largest gradients",
            "The obvious choice takes the fifty rows with the largest gradients. It begins with three such blocks.",
            f"{ROWS}method=bcd-gradient&set.block=50&at=3&view=gbcd-gradient",
            "The objective begins at 0, and its least value is -976. How far is it after forty such blocks?",
            "Only at -360. The rings show why: rows with large gradients are neighbours, and neighbours say the same "
            "thing.",
            f"{ROWS}method=bcd-gradient&set.block=50&at=40&view=gbcd-gradient",
        ),
        Part(
            "One block after the other",
            "Taking blocks in turn, without looking at gradients, does better with as many steps.",
            f"{ROWS}method=bcd-cyclic&set.block=50&at=40&view=gbcd-gradient",
            "Why can a choice that looks at nothing win over one that looks at the gradient?",
            "Its blocks are spread over all rows. After forty steps it has reached -866.",
        ),
        Part(
            "Greedy blocks",
            "Greedy block coordinate descent adds one row at a time, and lowers the gradients of its neighbours before "
            "it takes the next. So a block is large in gradient and spread out.",
            f"{ROWS}method=gbcd&set.block=50&set.coarse=500&at=1&view=gbcd-gradient",
            "How many steps does it need to come within 1 of the least value, -976.3?",
            "Five: the objective is -975.6.",
            f"{ROWS}method=gbcd&set.block=50&set.coarse=500&at=5&view=gbcd-gradient",
        ),
        Part(
            "A trap: count steps, or count work?",
            "Conjugate gradients take 23 steps here, greedy blocks 11. That looks like a clear win. But the matrix of "
            "540 rows fits into memory, and conjugate gradients compute each of its entries once.",
            f"{ROWS}method=cg&at=23&view=gbcd-gradient",
            "Which of the two computed more kernel entries?",
            "Greedy blocks: 1.75 times the matrix against 1.0. They pay where the matrix does not fit into memory, "
            "because then conjugate gradients compute all of it again in every step.",
            f"{ROWS}method=gbcd&set.block=50&set.coarse=500&at=11&view=gbcd-gradient",
        ),
    ),
)
