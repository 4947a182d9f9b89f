"""The next tries, evaluated together: the loss by removing each point that is offered, and what each pivot would gain.

A try that is rejected changes nothing, so that what was computed for the tries after it remains true. Only after an
accepted swap, or with other pivots, are they evaluated again. Where one try in five is accepted, this takes a fifth of
the calls of an evaluation per try; with few points the calls take longer than the arithmetic. The tight VFE needs all
n rows for each point, and is evaluated for one try at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .factor import Factor
from .pivot_policies import missed_reduction
from .pivots import Pivots, ReplacementScores, exact_effects
from .removal_columns import RemovalColumns
from .swap_effects import Addition, Removal, removal_numbers


class Tries:
    """The tries of the slots that are offered next, with the pivots as candidates.

    Parameters
    ----------
    factor : Factor
    pivots : Pivots
    columns : RemovalColumns
        Of the slots that are offered, in their order.
    most : int
        The most tries to evaluate.

    Attributes
    ----------
    slots : list of int
        The slots of the k tries.
    losses : list of float
        Increase of the objective by each removal.
    inverse_errors : list of float
        |w'P G w - 1| of each removal, which is 0 as long as P is the inverse of G.
    best : list of int
        The pivot that decreases the objective most.
    reductions, regrets : list of float
        The decrease by it, and by how much it is better than the pivot with the best score.

    Notes
    -----
    O(k m z) flops, and one read by the host; for the tight VFE O(n z).
    """

    def __init__(self, factor: Factor, pivots: Pivots, columns: RemovalColumns, most: int) -> None:
        self.factor, self.pivots = factor, pivots
        most = 1 if factor.is_tight else most
        self.slots, self._V, self._rows = columns.slots[:most], columns.V[:most], columns.products[:most]
        self._lengths, numbers, self._of_pivots = self._products()
        self._numbers = [removal_numbers(row) for row in numbers.tolist()]
        self.inverse_errors = [abs(removed.qGw - 1.0) for removed in self._numbers]
        self._first: Removal | None = None
        if factor.is_tight:
            self._first = self.removal(0)
            terms = [self._first.terms]
            self._effects = Addition(*(part[None] for part in ReplacementScores(pivots, self._first).exact()))
        else:
            terms = [factor.terms_without(removed) for removed in self._numbers]
            each = removal_numbers(numbers.split(1, dim=1))  # [k, 1] each
            self._effects = exact_effects(pivots, each, self._of_pivots.unbind(1))  # [k, z] each
        total = factor.total
        self.losses = [without.total(factor.objective) - total for without in terms]
        greatest = self._effects.reduction.max(1)
        self.reductions, self.best = greatest.values.tolist(), greatest.indices.tolist()
        self.regrets = missed_reduction(self._effects.reduction, pivots.ranks_by_score()).tolist()

    def _products(self) -> tuple[list[float], Tensor, Tensor]:
        """Return |t| [k], numbers of the removals [k, 14] and their products with the pivots [k, 8, z], on the host.

        A removal is along w = t / |t|. On the device t is used, and the host divides.
        """
        f, p, V, rows = self.factor, self.pivots, self._V, self._rows
        k, z = len(V), len(p.rows)
        removed = torch.tensor([f.inducing_rows[slot] for slot in self.slots])
        both = torch.cat([p.rows_on_host, removed]).to(V.device)  # [z + k], in one copy
        flat_and_c = torch.cat([rows.flatten(0, 1), f.c_and_Pc])  # [3 k + 2, m]
        parts = [
            torch.bmm(rows, rows.mT),  # [k, 3, 3]
            flat_and_c @ p.H,  # [3 k + 2, z]
            rows @ f.c,  # [k, 3]
            V @ f.train.y,  # [k]
            V[:, both],  # [k, z + k]
            p.diagonal(),  # [z]
            p.entries(both[z:]),  # [z, k]
        ]
        on_host = torch.cat([part.flatten() for part in parts]).cpu().split([part.numel() for part in parts])
        squares, with_H, of_v = on_host[0].view(k, 9), on_host[1].view(-1, z), on_host[4].view(k, z + k)
        length = squares[:, :1].sqrt()  # [k, 1]
        linear = torch.cat([on_host[2].view(k, 3), torch.stack([on_host[3], of_v[:, z:].diagonal()], 1)], 1)  # [k, 5]
        own = torch.cat([with_H[:-2].view(k, 3, z), of_v[:, None, :z]], 1) / length[:, None]  # [k, 4, z]
        shared = torch.cat([with_H[-2:], on_host[5][None]])  # [3, z]
        of_pivots = torch.cat([own, shared.expand(k, 3, z), on_host[6].view(z, k).T[:, None]], 1)  # [k, 8, z]
        return length[:, 0].tolist(), torch.cat([squares / length.square(), linear / length], 1), of_pivots

    def removal(self, i: int) -> Removal:
        """Describe the model without the point of try `i`."""
        if self._first is not None:
            return self._first
        length, v_and_rows = self._lengths[i], (self._V[i], self._rows[i])
        v, rows = (part / length for part in v_and_rows)
        return self.factor.removal(self.slots[i], v, rows, self._numbers[i], self._of_pivots[i])

    def effects(self, i: int) -> Addition:
        """The exact effects [z] of the pivots in try `i`, on the host."""
        return Addition(*(part[i] for part in self._effects))
