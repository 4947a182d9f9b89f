"""A swapper whose tries are one compiled call each, where its code is on disk; see compiled_try.py.

Apart because it is the only way to compiled_try.py: it hands the arrays over, and decides where compiled code is used.

Only code is used that `python -m gpexplorer compile` has written. Nothing is compiled during a run, so that no first
step waits for it, and results do not change by rounding in the middle of a run. Without this code, without Numba (the
extra `fast`), with proposals, for the tight VFE, on a GPU and with many rows, a try is that of `Swapper`.
"""

from __future__ import annotations

import math
import os
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch

from ....errors import SettingError
from .factor import Factor
from .pivots import Pivots
from .swap import INVERSE_TOLERANCE, LEAST_GAIN, Removals, Swapper, Tried

ENV = "GPEXPLORER_COMPILED"  # 0: compiled code is not used
MOST_ENTRIES = 2**21  # z n; with more, the rows take most of the time, which torch divides among threads

UNUSABLE = (ImportError, OSError, RuntimeError, AttributeError)  # Numba does not fit, has no folder, or is switched off


@cache
def compiled_code(dtype: torch.dtype) -> Any:
    """Return the module compiled_try with its code for this precision; None without Numba, or if it is not on disk."""
    if os.environ.get(ENV) == "0" or find_spec("numba") is None:
        return None
    try:
        from . import compiled_try

        compiled_try.load_try(str(dtype).removeprefix("torch."))
    except UNUSABLE:
        return None
    return compiled_try


def write_compiled_code() -> str:
    """Compile the code for both precisions and write it to disk: about ten seconds each.

    Returns
    -------
    str
        The folder in which Numba keeps it.

    Raises
    ------
    SettingError
        Numba is missing or has no folder that it can write to.
    """
    if find_spec("numba") is None:
        raise SettingError("Numba is not installed: install gpexplorer with the extra fast (gpexplorer[fast]).")
    try:
        from . import compiled_try
    except RuntimeError as error:
        raise SettingError(f"Numba cannot keep compiled code ({error}): set NUMBA_CACHE_DIR to a folder.") from None
    for dtype in ("float64", "float32"):
        compiled_try.compile_try(dtype)
    return str(compiled_try.one_try.stats.cache_path)


class CompiledSwapper(Swapper):
    """A `Swapper` that uses compiled code where it can. The parameters are those of `Swapper`."""

    _arrays: tuple[Any, Any] = (None, None)  # of the factor and of the pivots
    _arrays_of: tuple[Any, Any] = (None, None)  # the tensors from which they were taken
    _are_in_one_piece = False  # for others Numba would compile code of their own, in a run

    def swap(self, slots: list[int], step: int) -> Tried:
        f, code = self.factor, self._code()
        if code is None:
            return super().swap(slots, step)
        assert self.pivots is not None
        removed, removals = f.inducing_rows[slots[0]], self.removals_of(slots)
        tried = self._try(code, removals, INVERSE_TOLERANCE[f.c.dtype])
        inverse_error = tried.inverse_error
        if not inverse_error <= INVERSE_TOLERANCE[f.c.dtype]:  # also where it is nan
            f.rebuild_inverse()
            self.pivots.multiply()
            removals.multiply()
            self._take_arrays(code)
            tried = self._try(code, removals, math.inf)
        removals.forget()
        removals.drop_first()
        if tried.accepted:
            f.swapped(slots[0], tried.row, tried.logdet, tried.trace)
        return Tried.of(
            removed,
            tried.row,
            tried.accepted,
            tried.exact,
            approx=math.nan,
            regret=tried.regret,
            inverse_error=inverse_error,
        )

    def _code(self) -> Any:
        """Return the module with the compiled call, or None where `Swapper.swap` has to be used."""
        f, p = self.factor, self.pivots
        assert p is not None
        if self.num_proposals or f.is_tight or not p.E.is_cpu or p.E.numel() > MOST_ENTRIES:
            return None
        code = compiled_code(f.c.dtype)
        return code if code is not None and self._take_arrays(code) else None

    def _take_arrays(self, code: Any) -> bool:
        """Take the arrays of the tensors as they are now. Return whether each is in one piece, as the code needs it."""
        f, p = self.factor, self.pivots
        assert p is not None
        if self._arrays_of[0] is not p.E or self._arrays_of[1] is not f.c_and_Pc:
            self._arrays_of, self._arrays = (p.E, f.c_and_Pc), arrays(code, f, p)
            self._are_in_one_piece = all(array.flags.c_contiguous for part in self._arrays for array in part)
        return self._are_in_one_piece

    def _try(self, code: Any, removals: Removals, tolerance: float) -> Any:
        """Call the compiled try with the arrays of the factor, the pivots and the removals."""
        f = self.factor
        pending = (f.L.pending, f.pending_G.pending, f.pending_P.pending)
        numbers = code.Numbers(f.s2, float(f.objective == "vfe"), *f.terms, tolerance, LEAST_GAIN)
        index = removals.index.numpy()
        return code.one_try(*self._arrays, removals.V.numpy(), removals.products.numpy(), index, pending, numbers)


def arrays(code: Any, f: Factor, p: Pivots) -> tuple[Any, Any]:
    """Return the arrays of the factor and of the pivots, which share memory with their tensors."""
    factor = code.FactorArrays(
        Tt=f.T.mT.numpy(),
        TPT=f.TPT.numpy(),
        TGT=f.TGT.numpy(),
        c_Pc=f.c_and_Pc.numpy(),
        D=f.D.numpy(),
        y=f.train.y.numpy(),
        least=f.least.numpy(),
        inducing=f.inducing.numpy(),
        L=f.L.base.numpy(),
        pending_L=f.L.both.numpy(),
        pending_G=f.pending_G.both.numpy(),
        pending_P=f.pending_P.both.numpy(),
    )
    return factor, code.PivotArrays(*(getattr(p, name).numpy() for name in code.PivotArrays._fields))
