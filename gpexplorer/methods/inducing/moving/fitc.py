"""FITC, once called SPGP: pseudo-inputs that move, and a noise that grows where they explain little.

    y ~ N(0, Khat + diag(K - Khat) + s2 I)

Snelson and Ghahramani (2006). The likelihood is a setting: projected process and the variational bound, with the same
moving points, are what CholQR chooses subsets for (Cao et al. 2013, figure 4).
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import param

from ....problem import Channel, Cost, Posterior, Problem
from ...base import Method, Steps
from .. import settings
from ..initial_sets import start
from . import loop
from .likelihoods import sparse_gradient
from .state import CHANNELS
from .state import Info as Report
from .state import State as At

SOLVE = 10.0  # flops of a product in the time of one of a triangular solve: few rows, many right-hand sides
ROWWISE = 160.0  # the same, for the eight passes over n x m in which each row has a noise of its own


class FITC(Method):
    """Pseudo-inputs moved by the gradient of the FITC likelihood, or of PP or VFE."""

    key: ClassVar[str] = "fitc"
    title: ClassVar[str] = "FITC / SPGP, moving inputs"
    family: ClassVar[str] = "inducing"
    paper: ClassVar[str] = "Snelson & Ghahramani (2006). Sparse Gaussian processes using pseudo-inputs. NIPS."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\min_{\theta, Z} F(\theta, Z),\quad \hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "likelihood": r"y \sim N\left(0,\ \hat K + \operatorname{diag}(K-\hat K) + \sigma^2 I\right)",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_inducing = settings.num_inducing()
    start = start("random")
    likelihood: Any = param.Selector(
        default="fitc",
        objects=["fitc", "vfe", "pp"],
        doc="fitc adds what the points leave unexplained to the noise of each row; vfe penalises it; pp ignores it.",
    )
    learn = settings.learn()
    optimiser = loop.optimiser()
    evaluations = loop.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        plan = loop.plan(self, self.likelihood)
        return loop.move(problem, resume, plan, partial(sparse_gradient, likelihood=self.likelihood))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return loop.moved_posterior(problem, state, self.likelihood)

    def cost(self, problem: Problem) -> Cost:
        found, n = loop.moving_cost(problem, self.num_inducing), len(problem.train)
        if self.likelihood != "fitc":
            return found
        m = min(self.num_inducing, n)
        return found.plus(flops=(4.0 + SOLVE) * n * m * m + ROWWISE * n * m)  # two products and a solve more
