"""Settings of the minibatch methods: those of all, and functions that return a new parameter for one method class."""

from __future__ import annotations

from typing import Any

import param
from torch.nn import Module

from ...features.deep import ACTIVATIONS
from ...features.pretrained import Pretrained
from ...features.random_fourier import KINDS
from ..base import Method
from ..setting_kinds import amount, choice, count, positive, share
from .optimisers import OPTIMISERS


def batch_size(default: int = 64) -> Any:
    """Return the number of rows per minibatch."""
    return count(default, (16, 512), doc="Rows per minibatch b; all rows if there are fewer.")


def rate(default: float = 3e-3) -> Any:
    """Return the learning rate a_0."""
    return positive(default, (1e-4, 1.0), doc="Learning rate; for adadelta it is a factor close to 1.")


def refresh() -> Any:
    """Return the number of minibatches after which the Gram matrix is recomputed from all rows."""
    return count(
        0,
        (0, 5000),
        least=0,
        doc="Minibatches after which the Gram matrix is recomputed from all rows; 0 computes it only at the start.",
    )


def head(doc: str) -> Any:
    """Return whether the weights of the features are solved for."""
    return choice(["solve", "descend"], doc=doc)


class MinibatchSettings(Method):
    """Base class of the minibatch methods: what their features, their learners and their costs depend on."""

    features: Pretrained | Module | None = None  # replaces layers, width and activation; can be given in Python only

    kernel: Any = choice(
        ["linear", "gaussian"],
        doc="Kernel on features: of the learned features z. linear is exact, gaussian uses random Fourier features.",
    )
    layers = count(
        2,
        (0, 4),
        least=0,
        most=20,
        doc="Layers of the network; with 0 the features are the inputs, with one scale per input.",
    )
    width = count(128, (8, 256), doc="Outputs of each layer of the network.")
    activation: Any = choice(list(ACTIVATIONS), doc="Function applied to each layer's outputs.")
    num_features = count(
        1000, (50, 2000), least=2, doc="Random Fourier features D of the gaussian kernel; a minibatch costs D^3."
    )
    frequencies: Any = choice(
        list(KINDS),
        doc="How the frequencies of the gaussian kernel are drawn: orthogonal ones have the smallest error.",
    )
    optimiser: Any = choice(list(OPTIMISERS), doc="Optimiser; the paper uses adadelta.")
    rate = rate()
    schedule: Any = choice(
        ["power", "cosine"],
        doc="How the learning rate decreases: by a power of the epochs, or along half a cosine to zero at the end.",
    )
    rate_decay = share(
        0.0,
        doc="Power p of the power schedule: minibatch t has rate (1 + t / epoch)^-p; convergence is proved for 3/4.",
    )
    epochs = count(100, (10, 200), doc="Maximum number of passes over the rows.")
    minibatches = count(100, (1, 1000), doc="Minibatches per step; at most one epoch.")
    evaluate_every = count(
        1, (1, 20), doc="Epochs between evaluations of the exact likelihood, from which the best theta is chosen."
    )
    validation = amount(
        0.1,
        most=0.5,
        doc="Fraction of the rows set aside; theta is chosen by their error, or by the likelihood if it is 0.",
    )
    patience = count(
        10, (0, 50), least=0, doc="Stop after this many evaluations without improvement; 0 uses all epochs."
    )
    refit: Any = choice(
        ["held-out", "none"],
        doc="Magnitude and noise at the end: by the predictive density of the rows set aside, or as they were learned.",
    )
    folds = count(
        5,
        (1, 10),
        doc="Parts of the rows that are set aside in turn for the refit, until these are 100 rows; 1: the first only.",
    )
    samples = count(
        0,
        (0, 200),
        least=0,
        doc="Steps in which Langevin chains sample weights and noise of the learned features; 0 samples none.",
    )
    search = count(
        0, least=0, most=9, doc="Learning rates tried first, half a decade apart around the rate; 0 or 1 tries none."
    )
    trial = count(500, (100, 5000), doc="Minibatches for which each learning rate is tried.")
    noise_floor = param.Number(
        1e-3, bounds=(1e-6, 1.0), doc="Smallest noise standard deviation sigma_min, relative to that of the targets."
    )
    largest = param.Number(
        1e3, bounds=(1.0, None), doc="Bound on the size of all parameters; a run that reaches it has diverged."
    )
