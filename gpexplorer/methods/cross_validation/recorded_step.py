"""A step with z eliminated as one function of tensors, which a GPU records as a graph and repeats with one read.

    (theta, tolerance, z, lambda)  ->  z and L at theta, the next lambda, the gradient there, and the score

All that follows if Armijo's rule accepts theta is computed with the trial: it accepts most of them. Conjugate
gradients are assumed to need `FEWEST` iterations, as they do with a preconditioner that covers the kernel; where they
need more, the step is repeated with reads. It stands apart because `fold_steps` decides, and this file only computes.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from ...linalg.deferred_reads import Number, RepeatedEvaluations
from .folds import FoldGroup
from .theta_step import (
    ExactLoss,
    FoldSystems,
    LagrangianTerms,
    Limits,
    NextStep,
    Recorded,
    Solved,
    ThetaProblem,
    exact_loss,
    lagrangian_terms,
    largest_gap,
    theta_gradient,
)

VECTORS = 3  # of the results of an evaluation, those that stay on the device


def recorded_step(group: FoldGroup, rank: int, iterations: int, is_scored: bool) -> Recorded | None:
    """Return the step of a group on a GPU; None on a CPU, and where the kernel reads or M is not stored as a whole."""
    is_stored = group.y.element_size() * len(group.y) * group.trained <= group.workspace.budget
    if group.y.is_cpu or not is_stored or not hasattr(group.kernel, "profile_derivative"):
        return None
    key = rank, iterations, is_scored
    if key not in group.evaluations:
        counter = getattr(group.kernel, "counter", None)
        work = partial(_step, group, rank, iterations, is_scored)
        group.evaluations[key] = RepeatedEvaluations(work, group.y, counter, kept=VECTORS)
    evaluations = group.evaluations[key]

    def recorded(problem: ThetaProblem, theta: Tensor) -> tuple[Solved, Number]:
        begin = torch.cat([theta, theta.new_tensor([problem.limits.tolerance])]).to(group.y.device)
        parts = evaluations(torch.cat([begin, problem.Z.flatten(), problem.dual.flatten()]))
        count, loss, total, gap, g, score_loss, energy, sums, vectors, r = parts
        losses, slacks, gaps = sums
        terms = LagrangianTerms(losses, slacks, gaps, float(loss), float(total), c=vectors[2], r=r)
        score = ExactLoss(vectors[3], float(score_loss), float(energy)) if is_scored else None
        ahead = NextStep(vectors[1], problem.penalty.without_scale(g), score)
        return (None, vectors[0], int(count), terms, ahead), gap

    return recorded


def _step(group: FoldGroup, rank: int, iterations: int, is_scored: bool, point: Tensor) -> tuple[Number, ...]:
    """The function that is recorded; its point is theta, the tolerance, and z and the multipliers of each fold."""
    shape = group.y_T.shape
    theta, vectors = point.split([len(point) - 2 * shape.numel(), 2 * shape.numel()])
    Z, dual = vectors.view(2, *shape)
    theta, limits = theta[:-1], Limits(iterations, theta[-1])
    systems = FoldSystems(group, group.kernel_matrix(theta), rank)
    solution = systems.solve_C(systems.y_T, Z, limits)  # eq 8
    terms = lagrangian_terms(group, systems.M, solution.X, dual, 0.0)
    dual = systems.adjoint(terms.r, dual, limits).X  # the limit of eq 11c
    g = theta_gradient(group, systems.M, solution.X, dual, terms.r)
    exact = exact_loss(systems, solution.X, dual, limits) if is_scored else ExactLoss(solution.X, 0.0, 0.0)
    numbers = solution.iterations, terms.loss, terms.total, largest_gap(systems, terms)
    sums = torch.stack([terms.losses, terms.slacks, terms.gaps])
    return *numbers, g, exact.loss, exact.energy, sums, torch.stack([solution.X, dual, terms.c, exact.Z]), terms.r
