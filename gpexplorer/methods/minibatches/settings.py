"""Settings that these methods share, one function each, so that every method declares its own."""

from __future__ import annotations

from typing import Any

import param

from ...features.deep import ACTIVATIONS
from ...features.random_fourier import KINDS
from .optimisers import OPTIMISERS


def kernel() -> Any:
    """What is made of the learned features."""
    return param.Selector(
        default="linear",
        objects=["linear", "gaussian"],
        doc="Kernel of the learned inputs z: linear is exact; gaussian takes random Fourier features of z.",
    )


def layers() -> Any:
    """Depth of the network."""
    return param.Integer(
        2, bounds=(0, 20), softbounds=(0, 4), doc="Layers of the network; 0 is the inputs, each with its own scale."
    )


def width() -> Any:
    """Width of the network."""
    return param.Integer(128, bounds=(1, None), softbounds=(8, 256), doc="Outputs of each layer of the network.")


def activation() -> Any:
    """What follows each layer."""
    return param.Selector(default="relu", objects=[*ACTIVATIONS], doc="Function applied to each layer's outputs.")


def num_features() -> Any:
    """Random Fourier features."""
    return param.Integer(
        1000,
        bounds=(2, None),
        softbounds=(50, 2000),
        doc="Random Fourier features D of the gaussian kernel: a minibatch costs D^3.",
    )


def frequencies() -> Any:
    """How they are drawn."""
    return param.Selector(
        default="orthogonal",
        objects=[*KINDS],
        doc="How frequencies of the gaussian kernel are drawn; orthogonal ones err least, plain ones are the first.",
    )


def batch_size() -> Any:
    """Rows of a minibatch."""
    return param.Integer(64, bounds=(1, None), softbounds=(16, 512), doc="Rows of a minibatch b; all rows where fewer.")


def optimiser() -> Any:
    """How theta moves."""
    return param.Selector(
        default="adam", objects=[*OPTIMISERS], doc="How parameters move against the gradient; published: adadelta."
    )


def rate(default: float = 3e-3) -> Any:
    """a_0."""
    return param.Number(
        default,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        softbounds=(1e-4, 1.0),
        doc="Learning rate; adadelta's is a factor near 1.",
    )


def schedule() -> Any:
    """The shape of a_t."""
    return param.Selector(
        default="power",
        objects=["power", "cosine"],
        doc="How the rate falls: as a power of the epochs, or along half a cosine to nothing after the last epoch.",
    )


def rate_decay() -> Any:
    """The power of a_t."""
    return param.Number(
        0.0,
        bounds=(0.0, 1.0),
        doc="Power p of that schedule: the rate of minibatch t is rate (1 + t / epoch)^-p; 3/4 is proved to converge.",
    )


def epochs() -> Any:
    """The end."""
    return param.Integer(100, bounds=(1, None), softbounds=(10, 200), doc="Passes over the rows, at most.")


def minibatches(default: int = 100) -> Any:
    """Work of a step."""
    return param.Integer(
        default,
        bounds=(1, None),
        softbounds=(1, 1000),
        doc="Minibatches of one step, an epoch at most.",
    )


def evaluate_every() -> Any:
    """Exact objective."""
    return param.Integer(
        1,
        bounds=(1, None),
        softbounds=(1, 20),
        doc="Epochs between passes over all rows for the exact likelihood; the answer is the best theta found so.",
    )


def validation() -> Any:
    """Early stopping."""
    return param.Number(
        0.0,
        bounds=(0.0, 0.5),
        doc="Share of the rows set aside; theta is then judged by its error on these, not by its likelihood.",
    )


def patience() -> Any:
    """Early stopping."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 50),
        doc="Stop after so many evaluations in a row without improvement; 0 goes through all epochs.",
    )


def search() -> Any:
    """Grid of learning rates."""
    return param.Integer(
        0,
        bounds=(0, 9),
        doc="Learning rates tried first, half a decade apart, the middle one being the rate; 0 or 1 tries none.",
    )


def trial() -> Any:
    """Minibatches a rate."""
    return param.Integer(
        500, bounds=(1, None), softbounds=(100, 5000), doc="Minibatches for which each learning rate is tried."
    )


def noise_floor() -> Any:
    """sigma_min."""
    return param.Number(
        1e-3, bounds=(1e-6, 1.0), doc="Smallest noise standard deviation, in units of the targets' own: sigma_min."
    )


def largest() -> Any:
    """zeta_max."""
    return param.Number(
        1e3, bounds=(1.0, None), doc="No parameter exceeds this in size; one that reaches it has diverged."
    )


def refresh() -> Any:
    """Exact matrices."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 5000),
        doc="Minibatches between passes over all rows that set the Gram matrix right; 0 never does after the start.",
    )
