"""One story across the families: the same rows and kernel, answered in six ways."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=sin-product&data.n=300&kernel=se&"

SIX_WAYS = Story(
    5,
    "six-ways",
    "One surface, six ways",
    (
        Part(
            "The exact answer",
            "Maximum likelihood with the exact GP on 270 rows: every other part of this story has to be held against "
            "it. Its test error is .373.",
            f"{ROWS}method=ml&at=13&view=fit",
        ),
        Part(
            "Without the matrix",
            "Greedy blocks solve the same system without storing its matrix. After the first block of 60 rows the "
            "test error is .404.",
            f"{ROWS}method=gbcd&set.block=60&set.coarse=60&at=15&view=gbcd-gradient",
            "Seven blocks later, will the test error be close to .373, or equal to it?",
            "Equal, to three digits: it is the same model, solved in another way, up to a tolerance.",
            f"{ROWS}method=gbcd&set.block=60&set.coarse=60&at=22&view=gbcd-gradient",
        ),
        Part(
            "Sixteen rows",
            "Swaps choose sixteen of the 270 rows to stand for all of them.",
            f"{ROWS}method=cholqr&set.num_inducing=16&at=4&view=landscape",
            "How much worse must the test error be?",
            "Not at all: it is .361. But see the trap at the end of this story.",
            f"{ROWS}method=cholqr&set.num_inducing=16&at=150&view=landscape",
        ),
        Part(
            "Eigenfunctions",
            "GP-GRIEF describes the kernel by its eigenfunctions on a grid.",
            f"{ROWS}method=grief&at=2&view=grief-spectrum",
            "Is its answer nearer to the exact one than that of sixteen rows?",
            "Yes: .373, because the functions that it leaves out are tiny.",
            f"{ROWS}method=grief&at=52&view=grief-spectrum",
        ),
        Part(
            "Learned features",
            "SCGD learns the features of the kernel by a network. It has no idea that the surface is smooth.",
            f"{ROWS}method=scgd&at=2&view=stochastic-estimate",
            "Can a network win on 270 rows?",
            "Hardly: .380, after a hundred passes. Networks pay where rows are many.",
            f"{ROWS}method=scgd&at=99&view=stochastic-estimate",
        ),
        Part(
            "A trap: better than exact?",
            "Consensus ADMM has a test error of .362, the sixteen rows have .361, and the exact model .373. So the "
            "approximations are better than what they approximate, it seems.",
            f"{ROWS}method=gpcv-admm&at=17&view=fit",
            "Are they?",
            "Nobody can tell from 30 test rows: the difference is smaller than its own standard error. Compare on more "
            "rows, or on several splits, before you call one of them better.",
        ),
    ),
    ("Watch all of them side by side", "?page=side-by-side"),
)
