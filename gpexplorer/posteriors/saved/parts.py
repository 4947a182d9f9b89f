"""The parts of a posterior in a file: tensors by name, and a text (JSON) that says what they are.

Each kind of posterior writes its own parts, and makes itself from them. Files name the kind; `kinds` holds its class.
A kind that contains a posterior takes every kind of a lower level (`Posterior.level`), so that files have an end and a
new kind needs no list.
What is read is not trusted: every entry is asked for with what it must be, and a contradiction is a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ...errors import PosteriorError

LONGEST = 20  # characters of an entry that are repeated in an error
DTYPES = (torch.float32, torch.float64, torch.int64)
LARGEST = 1e100  # of a number in a file, and 1 / LARGEST the smallest scale: their products stay finite
TRIALS = 256  # rows at which a posterior that was read is tried out
NEGATIVE = {torch.float64: 1e-5, torch.float32: 1e-2}  # of the prior variance: what rounding may take from a variance

kinds: dict[str, Any] = {}  # the classes of posteriors, by the kind that files name
ByBlocks = Callable[[Any, Mapping[str, float]], Any]


class Parts:
    """What a file holds of one posterior, or of one of its parts.

    Parameters
    ----------
    text : dict
        Entries by name: numbers, texts, lists, and texts of parts.
    tensors : dict
        All tensors of the file by name.
    prefix : str
        What the names of the tensors of this part begin with.
    by_blocks : callable, optional
        Makes the posterior of rows whose matrix is never formed; see `load_posterior`.

    Attributes
    ----------
    version : int
        The version of the format that a program must know to read this part.
    """

    def __init__(
        self,
        text: dict[str, Any] | None = None,
        tensors: dict[str, Tensor] | None = None,
        prefix: str = "",
        by_blocks: ByBlocks | None = None,
    ) -> None:
        self.text = {} if text is None else text
        self.tensors = {} if tensors is None else tensors
        self.prefix, self.by_blocks, self.version = prefix, by_blocks, 1

    def keep(self, **tensors: Tensor) -> None:
        """Add tensors to the file."""
        for name, tensor in tensors.items():
            self.tensors[self.prefix + name] = tensor.detach().cpu().clone().contiguous()

    def keep_part(self, write: Callable[[Parts], None], prefix: str = "") -> dict[str, Any]:
        """Let a part write itself, and return its text."""
        part = Parts({}, self.tensors, self.prefix + prefix)
        write(part)
        self.version = max(self.version, part.version)
        return part.text

    def part(self, name: str, prefix: str = "") -> Parts:
        """The part with this name."""
        return self.part_of(self.text.get(name), name, prefix)

    def part_of(self, text: Any, name: str, prefix: str = "") -> Parts:
        """The part with this text."""
        if not isinstance(text, dict):
            raise PosteriorError(f"its description has no {name}.")
        return Parts(text, self.tensors, self.prefix + prefix, self.by_blocks)

    def __contains__(self, name: str) -> bool:
        """Whether there is an entry or a tensor with this name."""
        return name in self.text or self.prefix + name in self.tensors

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return next(iter(self.tensors.values())).device

    def tensor(self, name: str, *shape: int | None, whole: bool = False) -> Tensor:
        """The tensor with this name and shape; None stands for any length, and no shape for any vector."""
        if self.prefix + name not in self.tensors:
            raise PosteriorError(f"tensor {name!r} is missing.")
        tensor, required = self.tensors[self.prefix + name], shape or (None,)
        fits = tensor.ndim == len(required) and all(w in (None, s) for w, s in zip(required, tensor.shape, strict=True))
        if not fits or (tensor.dtype == torch.int64) != whole:
            raise PosteriorError(f"tensor {name!r} is {tensor.dtype} {list(tensor.shape)}, which does not fit.")
        return tensor

    def positive(self, name: str, *shape: int | None) -> Tensor:
        """A tensor of scales or variances, which are above 0."""
        tensor = self.tensor(name, *shape)
        if not bool((tensor.double() >= 1.0 / LARGEST).all()):
            raise PosteriorError(f"a number of {name} is not positive.")
        return tensor

    def factor(self, name: str, size: int) -> Tensor:
        """A lower triangular matrix with a positive diagonal."""
        L = self.tensor(name, size, size)
        if not bool((L.diagonal() > 0.0).all()):
            raise PosteriorError(f"{name} is not a Cholesky factor.")
        return L

    def one_of(self, name: str, choices: tuple[str, ...]) -> Any:
        """A text, one of these."""
        value = self.text.get(name) if isinstance(self.text, dict) else None
        if not isinstance(value, str) or value not in choices:
            raise PosteriorError(f"its {name} is {str(value)[:LONGEST]!r}, not one of {', '.join(choices)}.")
        return value

    def number(self, name: str, low: float = -LARGEST) -> float:
        """A number from `low` to LARGEST."""
        return self.number_of(self.text.get(name), name, low)

    def number_of(self, value: Any, name: str, low: float = -LARGEST) -> float:
        """A value as a number from `low` to LARGEST."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= LARGEST:
            raise PosteriorError(f"its {name} is {str(value)[:LONGEST]!r}, not a number that fits.")
        return float(value)

    def whole(self, name: str) -> int:
        """A whole number above 0."""
        value = self.text.get(name)
        if type(value) is not int or not 0 < value < 2**31:
            raise PosteriorError(f"its {name} is {str(value)[:LONGEST]!r}, not a positive whole number.")
        return value

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self.text.get(name)
        if not isinstance(value, bool):
            raise PosteriorError(f"its {name} is {str(value)[:LONGEST]!r}, neither true nor false.")
        return value

    def texts(self, name: str) -> list[str]:
        """A list of texts."""
        return self.texts_of(self.text.get(name), name)

    def texts_of(self, value: Any, name: str) -> list[str]:
        """A value as a list of texts."""
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise PosteriorError(f"its {name} are not a list of texts.")
        return value


def kinds_below(level: int) -> tuple[str, ...]:
    """The kinds that a kind of this level may contain."""
    return tuple(name for name, kind in kinds.items() if kind.level < level)


def write_posterior(parts: Parts, posterior: Any) -> None:
    """Write a posterior: its kind, what it is of, its noise, and what its kind adds."""
    parts.text |= {"kind": posterior.kind, "noise_variance": posterior.noise_variance, "of": posterior.of}
    posterior.write(parts)


def read_posterior(parts: Parts, *allowed: str) -> Any:
    """Make a posterior of the kind that the file names, which is one of these; by default of any kind."""
    kind = kinds[parts.one_of("kind", allowed or tuple(kinds))]
    return kind.from_parts(parts).asked_for(parts.one_of("of", ("f", "y")), parts.number("noise_variance", 0.0))


def check_tensors(tensors: dict[str, Tensor]) -> None:
    """Raise PosteriorError if a tensor has another type than posteriors have, or numbers that are not in range."""
    for name, tensor in tensors.items():
        if tensor.dtype not in DTYPES:
            raise PosteriorError(f"tensor {name[:LONGEST]!r} has type {tensor.dtype}.")
        if not bool(tensor.isfinite().all()):
            raise PosteriorError(f"tensor {name[:LONGEST]!r} has numbers that are not finite.")
        if tensor.dtype == torch.float64 and not bool((tensor.abs() <= LARGEST).all()):
            raise PosteriorError(f"tensor {name[:LONGEST]!r} has numbers above {LARGEST:g}.")


def check_moments(mean: Tensor, var: Tensor, prior: Tensor | float) -> None:
    """Raise PosteriorError if predictions are not finite, or a variance is below 0 by more than rounding.

    Parameters
    ----------
    mean, var : Tensor [t]
    prior : Tensor or float
        The prior variance, or another scale of the variances.
    """
    if not bool((mean.double().abs() <= LARGEST).all() & (var.double().abs() <= LARGEST).all()):
        raise PosteriorError("a prediction of it is not a finite number.")
    if not bool((var >= -NEGATIVE[var.dtype] * prior).all()):
        raise PosteriorError(f"a predictive variance of it is negative ({float(var.min()):.3g}).")


def trial_rows(X: Any) -> Any:
    """Some of these rows, rows between them and far from them; or some of the texts."""
    if not isinstance(X, Tensor):
        return X[:TRIALS]
    chosen = X[:: max(1, len(X) // TRIALS)][:TRIALS]
    return torch.cat([chosen, 0.5 * (chosen + chosen.roll(1, 0)), 30.0 * chosen[:8]])
