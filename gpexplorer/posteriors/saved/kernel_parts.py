"""Kernels, feature maps of kernels, and rows of inputs as parts of a file.

A kernel is written as its text, which `kernels.make` reads, or as the architecture of the feature map that it has
learned, whose parameters are in theta. Rows are tensors, texts, or both.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ... import kernels
from ...errors import PosteriorError
from ...features.deep import ACTIVATIONS, Network, Scaled
from ...features.learned import LearnedKernel
from ...kernels.row_scaled import RowScaled
from ...problem import Columns, MixedRows, described_rows
from .parts import Parts

LARGEST_LOG = 100.0  # of a hyperparameter, as in a Spec


def write_kernel(parts: Parts, kernel: Any, theta: Tensor) -> None:
    """Write a kernel and its hyperparameters."""
    parts.keep(theta=theta)
    text: dict[str, Any] = {"row_scaled": True} if isinstance(kernel, RowScaled) else {}
    kernel = kernel.base if text else kernel
    if isinstance(kernel, LearnedKernel):
        text |= {"map": described_map(kernel.map), "linear": kernel.linear}
    else:
        text |= {"text": kernel.key, "d": kernel.d}
        if kernel.columns is not None:
            text["columns"] = {name: list(names) for name, names in kernel.columns._asdict().items()}
    parts.text["kernel"] = text


def read_kernel(parts: Parts, d: int) -> tuple[Any, Tensor]:
    """The kernel for d inputs, and its theta."""
    own, theta = parts.part("kernel"), parts.tensor("theta")
    if "map" in own:
        linear = own.flag("linear")
        return LearnedKernel(read_map(own, len(theta), linear), linear), theta
    if own.whole("d") > max(d, len(theta)):
        raise PosteriorError(f"its kernel has {own.whole('d')} inputs and its rows {d}.")
    if not isinstance(own.text.get("text"), str):
        raise PosteriorError("its kernel is not named by text.")
    columns = None
    if "columns" in own:
        of_columns = own.part("columns")
        columns = Columns(tuple(of_columns.texts("numbers")), tuple(of_columns.texts("texts")))
    kernel = kernels.make(own.text["text"], own.whole("d"), columns)
    kernel = RowScaled(kernel) if "row_scaled" in own and own.flag("row_scaled") else kernel
    if len(kernel.names) != len(theta):
        raise PosteriorError(f"kernel {kernel.key} has {len(kernel.names)} hyperparameters and theta {len(theta)}.")
    if not bool((theta.abs() <= LARGEST_LOG).all()):
        raise PosteriorError(f"a hyperparameter of kernel {kernel.key} is above exp({LARGEST_LOG:g}) or its inverse.")
    return kernel, theta


def described_map(map: Any) -> dict[str, Any]:
    """The architecture of a learned feature map."""
    if isinstance(map, Scaled):
        return {"d": map.d, "constant": bool(map.constant)}
    if isinstance(map, Network):
        activation = next(name for name, function in ACTIVATIONS.items() if function is map.activation)
        return {"sizes": list(map.sizes), "activation": activation}
    raise PosteriorError(
        "A torch module that was given in Python cannot be saved, because reading it would run code; save its "
        "state_dict yourself, or use layers of gpexplorer."
    )


def read_map(parts: Parts, parameters: int, linear: bool) -> Network | Scaled:
    """A learned feature map; theta has this number of parameters, those of the kernel included."""
    own = parts.part("map")
    if "sizes" in own:
        sizes = own.text["sizes"]
        if not isinstance(sizes, list) or len(sizes) < 2 or not all(type(s) is int and 0 < s < 2**31 for s in sizes):
            raise PosteriorError("the sizes of its network are not positive whole numbers.")
        map: Network | Scaled = Network(sizes, own.one_of("activation", tuple(ACTIVATIONS)))
    else:
        map = Scaled(own.whole("d"), own.flag("constant"))
    if map.size + (2 if linear else 3) != parameters:
        raise PosteriorError(f"its feature map has {map.size} parameters, which is not what theta holds.")
    return map


def write_rows(parts: Parts, name: str, X: Any) -> None:
    """Write rows of inputs: a tensor, texts, or both."""
    if isinstance(X, MixedRows):
        parts.keep(**{name: X.numbers})
        parts.text[f"{name} columns of text"] = [list(column) for column in X.texts]
    elif isinstance(X, Tensor):
        parts.keep(**{name: X})
    elif all(isinstance(text, str) for text in X):
        parts.text[f"{name} texts"] = list(X)
    else:
        raise PosteriorError(f"Inputs that are {described_rows(X)} cannot be saved, unlike numbers and texts.")


def read_rows(parts: Parts, name: str) -> tuple[Any, int]:
    """Rows of inputs, and the number of their columns."""
    if (key := f"{name} columns of text") in parts:
        given, numbers = parts.text[key], parts.tensor(name, None, None)
        columns = tuple(tuple(parts.texts_of(column, key)) for column in given) if isinstance(given, list) else ()
        if not columns or any(len(column) != len(numbers) for column in columns):
            raise PosteriorError(f"{name} does not have one text per row in each column.")
        rows = MixedRows(numbers, columns)
        return rows, rows.d
    if name in parts:
        X = parts.tensor(name, None, None)
        return X, X.shape[1]
    return parts.texts(f"{name} texts"), 1
