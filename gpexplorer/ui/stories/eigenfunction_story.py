"""The story of eigenfunctions on a grid: few of them, many of them, and others of random frequency."""

from __future__ import annotations

from .story import Part, Story

SURFACE = "v=1&data=sin-product&kernel=se-ard&"
EIGENVALUES = f"{SURFACE}method=grief&set.basis=eigenvalues&"

EIGENFUNCTIONS = Story(
    2,
    "eigenfunctions",
    "A surface from a few functions",
    (
        Part(
            "Two functions",
            "The kernel has eigenfunctions, and the first ones vary slowly. Here the model may use two of them; the "
            "large map is their weighted sum.",
            f"{EIGENVALUES}set.num_eigenfunctions=2&at=1&view=grief-eigenfunctions",
            "Can two functions describe a surface with hills and valleys in both directions?",
            "No. The test error is 1.0: no better than the mean of the targets.",
            f"{EIGENVALUES}set.num_eigenfunctions=2&at=20&view=grief-eigenfunctions",
        ),
        Part(
            "Eight functions",
            "Eight functions bend in both directions. The bars are their weights: the function of rank 4 carries "
            "almost all of the surface.",
            f"{EIGENVALUES}set.num_eigenfunctions=8&at=20&view=grief-eigenfunctions",
            "Will the error with thirty be half of this one, or nearly the same?",
            "Half: .47 with eight, .22 with thirty.",
            f"{EIGENVALUES}set.num_eigenfunctions=30&at=20&view=grief-eigenfunctions",
        ),
        Part(
            "Thirty functions",
            "The spectrum shows which eigenvalues are used and which are left out. What is left out is small.",
            f"{EIGENVALUES}set.num_eigenfunctions=30&at=20&view=grief-spectrum",
        ),
        Part(
            "Random frequencies instead",
            "Random Fourier features describe the kernel by a few functions too, but draw their frequencies at random.",
            f"{SURFACE}method=rff&set.num_features=30&at=20&view=fit",
            "Are thirty random functions as good as the thirty with the largest eigenvalues?",
            "No: .43 against .22, with the same hyperparameters. Chance spends functions where little depends on them. "
            "At the end, shown now, learning has moved the random functions, too: the errors are .24 and .22.",
            f"{SURFACE}method=rff&set.num_features=30&at=80&view=fit",
        ),
        Part(
            "A trap: an objective that falls and rises",
            "With two functions again, at step 20. From here to step 60 the objective rises by more than 200 nat.",
            f"{EIGENVALUES}set.num_eigenfunctions=2&at=20&view=grief-eigenfunctions",
            "Does the run become worse?",
            "No: the first values are those of an exact GP, which learns the hyperparameters on at most 500 rows, here "
            "on all 360. The later values are those of two functions. Compare objectives of one model only.",
            f"{EIGENVALUES}set.num_eigenfunctions=2&at=60&view=grief-eigenfunctions",
        ),
    ),
)
