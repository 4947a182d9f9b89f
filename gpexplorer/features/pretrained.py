"""Feature maps that were trained before: any torch module, or a network of this package with its weights from a file.

A module is given in Python, as an object: files that can hold one can also run code as they are read. What a file
holds is weights, in safetensors, and the architecture they belong to: {"sizes": "8, 128, 128", "activation": "relu"}.
"""

from __future__ import annotations

import math
from copy import deepcopy
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import DataError, SettingError
from .deep import ACTIVATIONS, Network, Parts, views

MOST = 1 << 28  # parameters of a file: 2 GB of float64


class Pretrained(Network):
    """A network that starts at given weights."""

    def __init__(self, sizes: list[int], activation: str, alpha: Float[Tensor, " p"]) -> None:
        super().__init__(sizes, activation)
        self.alpha = alpha

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """The weights it was given, whatever the seed."""
        return self.alpha.to(torch.float64, copy=True)


class Module:
    """A torch module without its head: X [b, d] -> features [b, width], gradients by autograd.

    Its parameters are learned on, but for those that it holds still (`requires_grad=False`); the module itself, of
    which this is a copy in evaluation mode, stays as it is. SettingError where it does not map rows to rows.
    """

    closed = False

    def __init__(self, module: torch.nn.Module, d: int, like: Tensor) -> None:
        self.module = deepcopy(module).to(like).eval()
        self.names = [name for name, one in self.module.named_parameters() if one.requires_grad]
        held = dict(self.module.named_parameters())
        self.shapes = [tuple(held[name].shape) for name in self.names]
        self.size = sum(math.prod(shape) for shape in self.shapes)
        self.given = [held[name].detach().clone() for name in self.names]
        self.module.requires_grad_(False)
        self.width = self._width(d, like)

    def _width(self, d: int, like: Tensor) -> int:
        try:
            Z = self.module(like.new_zeros(2, d))
        except (RuntimeError, TypeError, ValueError) as error:
            raise SettingError(f"The module does not take rows of {d} inputs: {error}") from None
        if not isinstance(Z, Tensor) or Z.ndim != 2 or len(Z) != 2:
            said = f"shape {tuple(Z.shape)}" if isinstance(Z, Tensor) else f"a {type(Z).__name__}"
            raise SettingError(f"The module gives {said} for 2 rows; features are [2, width]: leave its head off.")
        return Z.shape[1]

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """The module's own parameters, whatever the seed."""
        flat = [part.flatten().to("cpu", torch.float64) for part in self.given]
        return torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """The inputs, and the module's answer to them."""
        return [X, torch.func.functional_call(self.module, dict(zip(self.names, parts, strict=True)), (X,))]

    def pullback(self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts) -> None:
        """Write the gradient in the parameters into `into`: once more forward, then back."""
        if not parts:
            return
        with torch.enable_grad():
            own = [part.detach().requires_grad_() for part in parts]
            slopes = torch.autograd.grad(self.layers(own, H[0])[-1], own, G, materialize_grads=True)
        for slope, place in zip(slopes, into, strict=True):
            place.copy_(slope)


def save(path: str | Path, network: Network, alpha: Float[Tensor, " p"]) -> None:
    """Write a network's weights (one vector, as learned) and its architecture to a safetensors file."""
    from safetensors.torch import save_file

    held = {name: part.clone() for name, part in zip(_names(network), views(alpha.cpu(), network.shapes), strict=True)}
    activation = next(name for name, one in ACTIVATIONS.items() if one is network.activation)
    save_file(held, str(path), {"sizes": ", ".join(map(str, network.sizes)), "activation": activation})


def load(path: str | Path) -> Pretrained:
    """The network of a file that `save` wrote. DataError where the file is something else, or at odds with itself."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            network = _network(path, file.metadata() or {})
            found = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            _checked(path, network, found)
            parts = [file.get_tensor(name) for name in _names(network)]
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} is no safetensors file that can be read: {error}") from None
    alpha = torch.cat([part.flatten().double() for part in parts])
    if not bool(alpha.isfinite().all()):
        raise DataError(f"{path} holds weights that are not finite; write it again from a run that converged.")
    return Pretrained(network.sizes, next(k for k, v in ACTIVATIONS.items() if v is network.activation), alpha)


def _names(network: Network) -> list[str]:
    """W1, b1, W2, ..."""
    return [f"{letter}{k // 2 + 1}" for k, letter in enumerate("Wb" * (len(network.sizes) - 1))]


def _network(path: str | Path, said: dict[str, str]) -> Network:
    """The architecture in the header."""
    words, activation = said.get("sizes", "").split(","), said.get("activation", "")
    sizes = [int(word) for word in words if word.strip().isdecimal()]
    if len(sizes) < 2 or len(sizes) != len(words) or min(sizes) < 1:
        raise DataError(f"{path} does not say its sizes, such as 8, 128, 128; write it with `save`.")
    if activation not in ACTIVATIONS:
        raise DataError(f"{path} has activation {activation[:20]!r}; known are {', '.join(ACTIVATIONS)}.")
    network = Network(sizes, activation)
    if network.size > MOST:
        raise DataError(f"{path} says it has {network.size} weights; at most {MOST} are read.")
    return network


def _checked(path: str | Path, network: Network, found: dict[str, tuple[int, ...]]) -> None:
    """Every tensor there, each of the shape that the sizes ask for, and none besides."""
    for name, shape in zip(_names(network), network.shapes, strict=True):
        if found.get(name) != shape:
            has = f"is {found[name]}" if name in found else "is missing"
            raise DataError(f"{path}: {name} {has}, but sizes {network.sizes} make it {shape}.")
    if extra := set(found) - set(_names(network)):
        raise DataError(f"{path} holds {min(extra)[:20]!r} besides the weights of its {len(network.sizes) - 1} layers.")
