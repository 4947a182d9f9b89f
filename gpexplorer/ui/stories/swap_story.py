"""Stories on inducing points: swaps, and what a low objective says."""

from __future__ import annotations

from .story import Part, Story

DATA = "v=1&data=snelson-like&kernel=se&"
SWAPS = f"{DATA}method=cholqr&set.num_inducing=10&"
TWENTY = f"{DATA}method=cholqr&set.num_inducing=20&at=237&view=terms"

SWAPPING = Story(
    0,
    "swaps",
    "Ten rows that stand for 180",
    (
        Part(
            "Ten random rows",
            "Ten of the 180 training rows are inducing points: the triangles. The mean can bend only where there are "
            "some, and the kernel's lengthscale has not been learned yet.",
            f"{SWAPS}at=10&view=landscape",
            "The next steps replace one triangle each. Will the test error (SMSE, in the line of numbers) fall little "
            "by little, or all at once?",
            "It falls from .85 to about .21 within twenty steps, most of it when the hyperparameters are learned.",
            f"{SWAPS}at=30&view=landscape",
        ),
        Part(
            "One swap",
            "A step takes one triangle out and asks the landscape which row would lower the objective most. The line "
            "is a cheap estimate for every row, the dots are exact.",
            f"{SWAPS}at=30&view=landscape",
            "Can a swap ever raise the objective?",
            "No. A swap that would not lower the objective is not made, so the line of the convergence never rises.",
            f"{SWAPS}at=120&view=landscape",
        ),
        Part(
            "The gap",
            "Between x = 2.6 and x = 3.5 there is no training row, and so no triangle can stand there. Look at the "
            "band in the gap.",
            f"{SWAPS}at=60&view=landscape",
            "Is the band in the gap as narrow as beside it?",
            "No. Without rows the model does not know, and its band says so.",
        ),
        Part(
            "Ten or twenty?",
            "The run is at its end: a whole epoch of swaps no longer lowers the objective. With ten points the "
            "objective ends near -43 nat.",
            f"{SWAPS}at=213&view=convergence",
            "What will twenty points bring: nothing, a little, or much?",
            "Much: the objective ends near -72 nat and the test error falls from .21 to .14. Converged does not mean "
            "enough; it means the best for this number of points.",
            TWENTY,
        ),
        Part(
            "Twenty points",
            "Here are twenty. The objective is a bound on the exact model's: more points can bring it closer, and "
            "never below.",
            TWENTY,
        ),
        Part(
            "A trap: the lowest objective",
            "This is FITC with ten points. Its objective ends near -54 nat, below the -43 of the swaps with as many "
            "points. It looks like the winner.",
            f"{DATA}method=fitc&set.num_inducing=10&at=40&view=calibration",
            "Does it predict better than the swaps?",
            "Nobody can tell. On each of ten splits its objective is the lower one; its test error is lower on some "
            "and higher on others, and the mean difference is within its error. FITC's objective is no bound of the "
            "exact model's, so the two numbers cannot be compared. The page now shows the swaps.",
            f"{SWAPS}at=213&view=calibration",
        ),
    ),
)
