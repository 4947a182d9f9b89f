"""FITC, first called SPGP: pseudo-inputs that move, and a noise variance that is larger where they explain little.

    y ~ N(0, K_hat + diag(K - K_hat) + s2 I)                        Snelson and Ghahramani (2006), eq 7

The likelihood is a setting. The projected process and the variational bound, with the same moving points, are the
objectives for which CholQR chooses subsets (Cao et al. 2013, figure 4).
"""

from __future__ import annotations

from typing import Any, ClassVar

from ...setting_kinds import choice
from ..initial_sets import start
from .loop import MovingPoints


class FITC(MovingPoints):
    """Pseudo-inputs that descend the gradient of the FITC likelihood, or of PP or VFE.

    Notes
    -----
    When not to use it: where bands matter. The FITC likelihood is not a bound, and its maximum has too little noise.
    On 300 rows from the model with noise variance 10, F is 144 at the true hyperparameters, where the 95 % bands cover
    96 %; learning reaches F = 90 with a noise variance of 0.01, and the bands cover 80 %. The likelihood "vfe" learns
    8.6 and covers 94 %.

    References
    ----------
    Bauer, van der Wilk and Rasmussen (2016). Understanding probabilistic sparse GP approximations. NIPS.
    """

    key: ClassVar[str] = "fitc"
    title: ClassVar[str] = "FITC / SPGP, moving inputs"
    paper: ClassVar[str] = "Snelson & Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs. NIPS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\min_{\theta, Z} F(\theta, Z),\quad \hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "likelihood": r"y \sim N\left(0,\ \hat K + \operatorname{diag}(K-\hat K) + \sigma^2 I\right)",
    }

    start = start("random")
    likelihood: Any = choice(
        ["fitc", "vfe", "tight-vfe", "pp"],
        doc="The variance that the points leave unexplained: fitc adds it to the noise of each row, vfe penalises its "
        "sum, tight-vfe the sum of log(1 + it / noise), pp ignores it.",
    )

    @property
    def likelihood_name(self) -> str:
        return str(self.likelihood)
