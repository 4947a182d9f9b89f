"""GP-GRIEF, type I: the weights of the eigenfunctions and the noise are sampled, not chosen.

    1. theta by the marginal likelihood of an exact GP on a subset           section 6
    2. one pass over the rows: Phi'Phi, Phi'y, y'y; a basis orthogonal on them    section 5
    3. MALA on (log w, log s2), several chains at once, O(p) an iteration whatever n is

A step is a stretch of iterations of all chains. While they warm up, step size and scaling adapt; then both are fixed,
and predictions average over the draws.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, ClassVar

import param
from torch import Tensor

from ....features.basis_choices import Leading
from ....objectives import noise_variance
from ....problem import Channel, Cost, Outcome, Posterior, Problem, Step, channel
from ...base import Method, Steps
from ...fixed_subset import learn_on_subset
from .. import settings
from ..grids import grid_of, leading
from ..orthogonal_basis import Rotated
from ..posteriors import Known, answers, basis_of, beyond
from .chains import Info as Report
from .chains import State as At
from .chains import Target, opened, report, stretch
from .moments import Moments, cast, moments, spread
from .priors import LogNormal, log_normal

ITERATION, REPORT = 43.0, 90.0  # calls: a proposal of all chains, and what a stretch of them is judged by


class GriefMCMC(Method):
    """Regression on the leading eigenfunctions of a full grid, averaged over the posterior of their weights."""

    key: ClassVar[str] = "grief-mcmc"
    title: ClassVar[str] = "GP-GRIEF, type I"
    family: ClassVar[str] = "eigenfunctions"
    paper: ClassVar[str] = (
        "Evans and Nair (2018). Scalable Gaussian processes with grid-structured eigenfunctions. ICML."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_eigenfunctions": r"k(x,z) \approx \textstyle\sum_{j=1}^p w_j\,\psi_j(x)\,\psi_j(z)",
        "weight_variance": r"w_j \sim \mathrm{LN},\quad \mathrm{mode}\,w_j = 1",
        "acceptance": r"z' = z + \tfrac{\epsilon^2}{2} D\,\nabla\log p(z \mid y) + \epsilon D^{1/2}\xi",
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "NLML, subset then mean of chains", "nat"),
        channel("acceptance", "acceptance"),
        channel("step_size", "step size", log=True),
        channel("rhat", "largest R-hat"),
        channel("ess", "smallest effective sample size"),
        channel("noise", "noise sd"),
        channel("evidence", "NLML on the subset", "nat"),
    )

    num_eigenfunctions = settings.num_eigenfunctions(1000)
    grid_points = settings.grid_points()
    spacing: Any = settings.spacing()
    learn = settings.learn()
    subset = settings.subset(1000)
    evaluations = settings.evaluations(30)
    chains = param.Integer(4, bounds=(1, None), softbounds=(2, 64), doc="Chains: two or more, for R-hat to mean much.")
    per_step = param.Integer(
        100, bounds=(1, None), softbounds=(10, 1000), doc="Iterations of every chain that one step takes."
    )
    warm_up = param.Integer(
        10, bounds=(1, None), softbounds=(2, 50), doc="Steps in which step size and scaling adapt; their draws go."
    )
    samples = param.Integer(90, bounds=(1, None), softbounds=(10, 1000), doc="Steps whose draws are kept.")
    thin = param.Integer(10, bounds=(1, None), softbounds=(1, 50), doc="Iterations from one kept draw to the next.")
    acceptance = param.Number(
        0.574, bounds=(0.05, 0.99), doc="Acceptance that the step size is tuned to; 0.574 is best in many dimensions."
    )
    weight_mode = param.Number(
        1.0, bounds=(1e-6, 1e6), softbounds=(0.1, 10.0), doc="Mode of a weight's log-normal prior; 1 is the kernel's."
    )
    weight_variance = param.Number(
        100.0, bounds=(1e-6, 1e9), softbounds=(0.1, 1e4), doc="Variance of a weight's prior: small holds to the kernel."
    )
    noise_prior = param.Number(
        0.04, bounds=(1e-9, 1e6), softbounds=(1e-4, 1.0),
        doc="Variance of the noise variance's prior, whose mode is what the subset learned (targets scaled to sd 1).",
    )  # fmt: skip

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            state = opened(problem)
            yield Step(state, Report("start"))
        grid_of(problem, self.grid_points)
        if state.phase == "subset":
            state = yield from self._on_subset(problem, state)

        target, total = self._target(problem, state), self.warm_up + self.samples
        while state.position < total:
            warming = state.position < self.warm_up
            state, acceptance = stretch(self, target, state, warming)
            yield Step(state, report(target, state, acceptance))
        if not math.isfinite(state.value):
            return Outcome("diverged", "The log density of the chains is not finite; look at the noise prior.")
        return Outcome("budget", f"All {self.samples} steps of draws are done; raise samples for more.")

    def _on_subset(self, problem: Problem, state: At) -> Generator[Step, None, At]:
        """theta; resumed by replaying its evaluations."""
        found = learn_on_subset(problem, self.seed, self.subset, self.evaluations) if self.learn else ()
        for k, best in enumerate(found):
            if k < state.position:
                continue
            state = state._replace(step=state.step + 1, position=k + 1, theta=best.theta)
            yield Step(state, Report("subset", best.value, evidence=best.value))
        return state._replace(phase="warm-up", position=0)

    def basis(self, problem: Problem, theta: Tensor) -> tuple[Rotated, Leading]:
        """The orthogonal basis of this theta, and the eigenfunctions it is made of."""
        choice = leading(self, problem, theta)
        return basis_of(problem, choice, theta, self.map), choice

    @property
    def weight_prior(self) -> LogNormal:
        """The prior of every weight."""
        return log_normal(self.weight_mode, self.weight_variance)

    def _target(self, problem: Problem, state: At) -> Target:
        noise = log_normal(noise_variance(state.theta), self.noise_prior)
        return Target(self.basis(problem, state.theta)[0], self.weight_prior, noise)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        """Of f, the weights and the noise averaged over; before there are draws, of the kernel as it is."""
        basis, choice = self.basis(problem, state.theta)
        seen: Moments = cast(state.moments, basis.e)
        if not seen.size:
            z = basis.e.new_zeros(1, len(basis.e) + 1)
            z[0, -1] = 2.0 * state.theta[-1]
            seen = moments(basis, z)
        known = Known(seen.m, *spread(seen))
        return answers(problem, choice, state.theta, basis.V, known)

    def beyond(self, problem: Problem, X: Tensor) -> Tensor:
        """Which rows [t] lie beyond the grid: no eigenfunction reaches them, and the prior answers."""
        return beyond(self.grid_points, problem, X)

    def cost(self, problem: Problem) -> Cost:
        """Of a stretch; the pass over the rows before the first one takes n p^2 flops more."""
        d, s = problem.train.d, problem.train.y.element_size()
        p = float(min(self.num_eigenfunctions, self.grid_points**d, len(problem.train)))
        size = self.chains * p
        arrays = {"chains": 80.0 * size, "normals": 12.0 * self.per_step * size, "Gram and its vectors": 3 * s * p * p}
        calls = ITERATION * self.per_step + REPORT
        return Cost(60.0 * self.per_step * size, 25 * 8.0 * self.per_step * size, arrays, calls)
