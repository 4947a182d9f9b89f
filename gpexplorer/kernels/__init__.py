"""Kernels by key: `kernels.make("se-ard", d=8)`, `kernels.make("se * periodic + linear", d=1)`.

Column names in brackets make a kernel read these columns only: "se-ard[width, height] * category[colour]". After "all
but" stand those that it does not read: "se-ard[all but weight]".

All modules of this package are imported, and each class that has a `key` registers itself, so a new kernel is one new
file.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from typing import SupportsIndex

from ..errors import KernelError, quoted, whole_number
from ..problem import Columns
from .base import Covariance, registry
from .composites import OnColumns, Product, Sum, check_all_are_read, parse

__all__ = ["Covariance", "Product", "Sum", "available", "make"]

MAX_LENGTH = 500  # characters in the text of a kernel
NAMES_ELSEWHERE = {  # in other packages and books, by key
    "se": ("rbf", "gaussian", "exponentiated-quadratic", "squared-exponential"),
    "matern12": ("exponential", "ornstein-uhlenbeck", "ou", "laplace"),
    "matern52": ("matern",),
    "rq": ("rational-quadratic",),
    "linear": ("dot-product",),
    "periodic": ("expsine2", "expsinesquared"),
    "tanimoto": ("jaccard",),
}

for _module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
    importlib.import_module(_module.name)


def available() -> dict[str, str]:
    """Return the title of every kernel by its key, in alphabetical order."""
    return {key: registry[key].title for key in sorted(registry)}


def make(text: str, d: SupportsIndex = 1, columns: Columns | None = None) -> Covariance:
    """Make the kernel that a text names.

    Parameters
    ----------
    text : str
        A key, or keys joined by + and * with parentheses, such as "se-ard * (periodic + linear)". Column names in
        brackets may follow a key, such as "se-ard[width, height] * category[colour]"; without them a kernel reads all
        columns, or all of its kind where there are numbers and texts.
    d : int, default 1
        Number of input columns; 1 for objects such as strings.
    columns : Columns, optional
        The names of the input columns. Without them, names in brackets are not checked, and the kernel cannot compute.

    Returns
    -------
    Covariance
        A kernel without hyperparameters: it takes them as its first argument, theta.

    Raises
    ------
    KernelError
        If the text cannot be read, or names a kernel or a column that does not exist, or d is not a positive whole
        number.

    Examples
    --------
    >>> kernel = make("se-ard * periodic + linear", d=2)
    >>> kernel.names[:2]
    ('se-ard*periodic: se-ard: sd', 'se-ard*periodic: se-ard: lengthscale 1')
    """
    if not isinstance(text, str) or not text.strip():
        raise KernelError(f"A kernel is named by text such as 'se-ard', not by {text!r}.")
    if len(text) > MAX_LENGTH:
        raise KernelError(f"The text of a kernel may have {MAX_LENGTH} characters; this one has {len(text)}.")
    if (inputs := whole_number(d)) is None:
        raise KernelError(f"Kernel {text!r}: d is {quoted(d)}; give the number of inputs, such as 8.")

    def atom(key: str, chosen: tuple[str, ...] | None) -> Covariance:
        if key not in registry:
            name = key.lower().replace("_", "-").replace("/", "")
            other_name = next((own for own, names in NAMES_ELSEWHERE.items() if name in names), None)
            near = difflib.get_close_matches(key.lower(), registry, n=3)
            candidates = [other_name, f"{other_name}-ard"] if other_name else near
            candidates = [candidate for candidate in candidates if candidate in registry]
            way_out = f"choose one of {', '.join(sorted(registry))}."
            way_out = f"did you mean {' or '.join(candidates)}?" if candidates else way_out
            raise KernelError(f"Kernel {key!r} is not known; {way_out}")
        if chosen is None and not (columns and columns.texts):
            return registry[key](inputs)
        return OnColumns(registry[key], columns, chosen, inputs)

    kernel = parse(text, atom)
    if columns and columns.texts:
        check_all_are_read(kernel, columns)
    return kernel
