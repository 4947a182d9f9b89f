"""Posteriors as objects: means, variances, joint covariances, samples, sample paths and gradients.

One class per kind: inducing inputs, explicit features, training rows, the prior, and plain functions. `InUnits`
converts any of them to the units of the file, and `AveragePosterior` averages several of those.
"""

from __future__ import annotations

from .average import AveragePosterior
from .base import Gradient, Of, Posterior
from .exact import CholeskySolver, RowsPosterior, Solver, StatesPosterior, UnsolvedPosterior, exact_gp_posterior
from .features import FeatureMap, FeaturePosterior, OutsideGrid
from .in_units import InUnits, JointBand, UnitRowsPosterior, in_units, joint_band
from .inducing import InducingPosterior, nystrom_posterior
from .marginals import Marginals, MixtureMarginals, NormalMarginals, TransformedMarginals
from .nearest_rows import NearestRowsPosterior
from .sample_paths import Paths
from .saved.model_file import load_posterior
from .shifted import (
    LinearMean,
    MarginalPosterior,
    NeighboursMean,
    PriorPosterior,
    ShiftedPosterior,
    TreesMean,
    WidenedPosterior,
    Widening,
    as_posterior,
    widened,
)
from .weights import CovarianceRoot, DiagonalAndDirection, NormalWeights, PrecisionFactor

__all__ = [
    "AveragePosterior",
    "CholeskySolver",
    "CovarianceRoot",
    "DiagonalAndDirection",
    "FeatureMap",
    "FeaturePosterior",
    "Gradient",
    "InUnits",
    "InducingPosterior",
    "JointBand",
    "LinearMean",
    "MarginalPosterior",
    "Marginals",
    "MixtureMarginals",
    "NearestRowsPosterior",
    "NeighboursMean",
    "NormalMarginals",
    "NormalWeights",
    "Of",
    "OutsideGrid",
    "Paths",
    "Posterior",
    "PrecisionFactor",
    "PriorPosterior",
    "RowsPosterior",
    "ShiftedPosterior",
    "Solver",
    "StatesPosterior",
    "TransformedMarginals",
    "TreesMean",
    "UnitRowsPosterior",
    "UnsolvedPosterior",
    "WidenedPosterior",
    "Widening",
    "as_posterior",
    "exact_gp_posterior",
    "in_units",
    "joint_band",
    "load_posterior",
    "nystrom_posterior",
    "widened",
]
