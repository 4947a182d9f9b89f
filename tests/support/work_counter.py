"""The work of a step, counted at the calls of torch: operations, calls, bytes, and the most bytes alive at once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

ENTRY = 40.0  # operations of an exponential, a logarithm, a root or a power, at a matrix product's rate
HALF_RATE = 512.0  # order at which a factor is made at half a product's rate
CACHE = 4 * 2**20  # bytes
CURVED = ("exp", "log", "sqrt", "rsqrt", "pow", "sin", "cos", "tanh", "sigmoid", "lgamma", "softplus")
GATHERS = ("index", "index_select", "gather")
# fmt: off
VIEWS = {
    "view", "t", "transpose", "expand", "slice", "select", "unsqueeze", "squeeze", "detach", "alias", "as_strided",
    "permute", "diagonal", "split", "unbind", "_unsafe_view", "reshape", "empty", "_local_scalar_dense", "unfold",
}
# fmt: on
WHOLE = set[Any]()  # operations that are not taken apart


class Work(TorchDispatchMode):
    """Counts what is computed inside `with`; what was alive before does not count as memory."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = self.bytes = self.memory = self.calls = 0.0
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}  # some have been freed since
        self._kept = 0  # bytes of all of them

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func not in WHOLE:
            with self:  # in inference mode torch leaves it to us to take an operation apart
                out = func.decompose(*args, **(kwargs or {}))
            if out is not NotImplemented:
                return out
            WHOLE.add(func)
        out = func(*args, **(kwargs or {}))
        name = func.__name__.split(".")[0].rstrip("_")
        results = tensors(out if isinstance(out, tuple | list) else [out])
        if name.strip("_") not in VIEWS and name not in VIEWS:
            arguments = tensors(args) + [
                part for argument in args if isinstance(argument, tuple | list) for part in tensors(argument)
            ]
            self.calls += 1
            self.flops += operations(name, arguments, results)
            read = results if name in GATHERS else arguments  # of a matrix, the rows alone that are taken
            self.bytes += sum(map(traffic, (*read, *results)))
        self._keep(results)
        return out

    def _keep(self, results: list[Tensor]) -> None:
        """Look for what has been freed only where the most bytes alive at once may be exceeded."""
        for part in results:
            storage = part.untyped_storage()
            if (nbytes := storage.nbytes()) > 4096 and storage._cdata not in self._alive:
                self._alive[storage._cdata] = StorageWeakRef(storage), nbytes
                self._kept += nbytes
        if self._kept > self.memory:
            self._alive = {key: entry for key, entry in self._alive.items() if not entry[0].expired()}
            self._kept = sum(nbytes for _, nbytes in self._alive.values())
            self.memory = max(self.memory, float(self._kept))


def tensors(parts: Iterable[Any]) -> list[Tensor]:
    return [part for part in parts if isinstance(part, Tensor)]


def traffic(part: Tensor) -> float:
    """Bytes of a pass over a tensor, at the rate of memory: a small one stays in the cache, three times as fast."""
    size = 1.0 * part.numel() * part.element_size()
    return size if size > CACHE else size / 3


def operations(name: str, arguments: list[Tensor], results: list[Tensor]) -> float:
    """Floating-point operations of one call; what only moves or adds numbers counts as one operation per number."""
    size = float(max((part.numel() for part in results), default=0))
    shapes = [part.shape for part in arguments]
    if "cdist" in name or "euclidean" in name:
        return 2.0 * size * shapes[0][-1]
    if name in ("mm", "addmm", "bmm", "baddbmm"):
        return 2.0 * size * shapes[-2][-1]
    if name in ("mv", "addmv", "dot", "vdot", "addr", "ger"):
        return 2.0 * max(float(part.numel()) for part in arguments)
    order = float(min(shapes[0][-2:])) if shapes and len(shapes[0]) > 1 else 0.0
    if "cholesky_inverse" in name:
        return 2 * order**2 * (order + HALF_RATE) / 3
    if "cholesky_solve" in name:
        return 2.0 * order * arguments[0].numel()
    if "cholesky" in name:
        return order**2 * (order + HALF_RATE) / 3
    if "triangular" in name:
        return float(shapes[0][-1]) * arguments[1].numel()
    if "eigh" in name or "svd" in name:
        return 9.0 * order * arguments[0].numel()
    if "qr" in name:
        return 4.0 * order * arguments[0].numel()
    return size * (ENTRY if any(word in name for word in CURVED) else 1.0)
