"""Pretrained feature maps: any torch module, or a network of this package with weights from a file.

A module can only be given in Python, as an object, because reading a file that contains a module can run code. A file
contains weights in the safetensors format and the architecture: {"sizes": "8, 128, 128", "activation": "relu"}.
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

MAX_PARAMETERS = 1 << 28  # in a file: 2 GB of float64


class Pretrained(Network):
    """A network whose initial weights are given.

    Parameters
    ----------
    alpha : Tensor [p]
        The weights as one vector [p].
    """

    def __init__(self, sizes: list[int], activation: str, alpha: Float[Tensor, " p"]) -> None:
        super().__init__(sizes, activation)
        self.alpha = alpha

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """Return the given weights, for every seed."""
        return self.alpha.to(torch.float64, copy=True)


class Module:
    """A torch module as a feature map: X [b, d] -> features [b, width], with gradients by autograd.

    Its parameters are learned further, except those with `requires_grad=False`. The module is copied, in evaluation
    mode; the given object is not changed.

    Parameters
    ----------
    module : Module
        The module without its last layer (head).
    d : int
        Number of inputs.
    like : Tensor
        Tensor whose device and precision are used.

    Raises
    ------
    SettingError : if the module does not map rows [b, d] to rows [b, width].
    """

    closed = False

    def __init__(self, module: torch.nn.Module, d: int, like: Tensor) -> None:
        self.module = deepcopy(module).to(like).eval()
        all_parameters = dict(self.module.named_parameters())
        self.names = [name for name, parameter in all_parameters.items() if parameter.requires_grad]
        self.shapes = [tuple(all_parameters[name].shape) for name in self.names]
        self.size = sum(math.prod(shape) for shape in self.shapes)
        self.given = [all_parameters[name].detach().clone() for name in self.names]
        self.module.requires_grad_(False)
        try:
            Z = self.module(like.new_zeros(2, d))
        except (RuntimeError, TypeError, ValueError) as error:
            raise SettingError(f"The module does not take rows of {d} inputs: {error}") from None
        if not isinstance(Z, Tensor) or Z.ndim != 2 or len(Z) != 2:
            result = f"shape {tuple(Z.shape)}" if isinstance(Z, Tensor) else f"a {type(Z).__name__}"
            raise SettingError(f"The module gives {result} for 2 rows, not [2, width]: remove its head.")
        self.width = Z.shape[1]

    def start(self, seed: int) -> Float[Tensor, " p"]:
        """Return the parameters of the module, for every seed."""
        flat = [part.flatten().to("cpu", torch.float64) for part in self.given]
        return torch.cat(flat) if flat else torch.zeros(0, dtype=torch.float64)

    def layers(self, parts: Parts, X: Float[Tensor, "b d"]) -> list[Tensor]:
        """Return the inputs and the features."""
        return [X, torch.func.functional_call(self.module, dict(zip(self.names, parts, strict=True)), (X,))]

    def pullback(
        self, parts: Parts, H: list[Tensor], G: Float[Tensor, "b w"], into: Parts, into_X: Tensor | None = None
    ) -> None:
        """Write the gradients as `Network` does, by another forward and backward pass."""
        if not parts and into_X is None:
            return
        with torch.inference_mode(False), torch.enable_grad():
            differentiable = [part.detach().requires_grad_() for part in parts]
            X = H[0].detach().requires_grad_(into_X is not None)
            sources = differentiable if into_X is None else [*differentiable, X]
            gradients = torch.autograd.grad(self.layers(differentiable, X)[-1], sources, G, materialize_grads=True)
        for gradient, target in zip(gradients, into, strict=into_X is None):
            target.copy_(gradient)
        if into_X is not None:
            into_X.copy_(gradients[-1][: len(into_X)])


def save(path: str | Path, network: Network, alpha: Float[Tensor, " p"]) -> None:
    """Write the weights of a network and its architecture to a safetensors file.

    Parameters
    ----------
    alpha : Tensor [p]
        The weights as one vector [p], as they are learned.
    """
    from safetensors.torch import save_file

    parts = zip(_names(network), views(alpha.cpu(), network.shapes), strict=True)
    tensors = {name: part.clone() for name, part in parts}
    activation = next(name for name, function in ACTIVATIONS.items() if function is network.activation)
    save_file(tensors, str(path), {"sizes": ", ".join(map(str, network.sizes)), "activation": activation})


def load(path: str | Path) -> Pretrained:
    """Read a network from a file written by `save`.

    Raises
    ------
    DataError : if the file is not such a file, or if its weights do not fit its architecture.
    """
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), "pt") as file:
            network = _network(path, file.metadata() or {})
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            _check_shapes(path, network, shapes)
            parts = [file.get_tensor(name) for name in _names(network)]
    except (SafetensorError, OSError) as error:
        raise DataError(f"{path} cannot be read as a safetensors file: {error}") from None
    alpha = torch.cat([part.flatten().double() for part in parts])
    if not bool(alpha.isfinite().all()):
        raise DataError(f"{path} contains weights that are not finite. Save it again from a run that converged.")
    return Pretrained(network.sizes, next(k for k, v in ACTIVATIONS.items() if v is network.activation), alpha)


def _names(network: Network) -> list[str]:
    """The names of the weights and biases: W1, b1, W2, ..."""
    return [f"{letter}{k // 2 + 1}" for k, letter in enumerate("Wb" * (len(network.sizes) - 1))]


def _network(path: str | Path, header: dict[str, str]) -> Network:
    """The network with the architecture in the header of the file."""
    words, activation = header.get("sizes", "").split(","), header.get("activation", "")
    sizes = [int(word) for word in words if word.strip().isdecimal()]
    if len(sizes) < 2 or len(sizes) != len(words) or min(sizes) < 1:
        raise DataError(f"{path} has no valid sizes, such as 8, 128, 128. Write it with `save`.")
    if activation not in ACTIVATIONS:
        raise DataError(f"{path} has activation {activation[:20]!r}; use one of {', '.join(ACTIVATIONS)}.")
    network = Network(sizes, activation)
    if network.size > MAX_PARAMETERS:
        raise DataError(f"{path} has {network.size} weights; at most {MAX_PARAMETERS} are read.")
    return network


def _check_shapes(path: str | Path, network: Network, shapes: dict[str, tuple[int, ...]]) -> None:
    """Require all tensors of the architecture with their shapes, and no others."""
    for name, shape in zip(_names(network), network.shapes, strict=True):
        if shapes.get(name) != shape:
            problem = f"is {shapes[name]}" if name in shapes else "is missing"
            raise DataError(f"{path}: {name} {problem}, but sizes {network.sizes} require {shape}.")
    if extra := set(shapes) - set(_names(network)):
        raise DataError(
            f"{path} contains {min(extra)[:20]!r} besides the weights of its {len(network.sizes) - 1} layers."
        )
