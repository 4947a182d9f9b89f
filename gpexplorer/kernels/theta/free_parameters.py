"""The map from the numbers that a descent may move to all entries of a vector: fixed, tied and bounded entries.

    v = T(f)    v_i = f_g(i) + o_i for a free entry of group g(i), and a given number for a fixed one
    dF/df_g = sum of dF/dv_i over the entries of the group

Entries of a group are equal up to their offsets o. A descent moves f, so that no optimiser and no method
knows about the restrictions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True, eq=False)
class FreeParameters:
    """Which entries of a vector [p] are free, which are equal, and between which bounds they stay.

    Parameters
    ----------
    group : Tensor [p]
        The position of each entry among the q free numbers, -1 for a fixed entry. Groups are numbered from 0.
    given : Tensor [p]
        The value of each fixed entry; the others are not read.
    lower, upper : Tensor [q]
        Bounds of the free numbers, which may be infinite.
    offset : Tensor [p]
        What is added to the common number of a group.
    """

    group: Tensor
    given: Tensor
    lower: Tensor
    upper: Tensor
    offset: Tensor

    @classmethod
    def of(
        cls,
        begin: Float[Tensor, " p"],
        fixed: list[int],
        tied: list[list[int]],
        lower: Tensor,
        upper: Tensor,
        offset: Tensor | None = None,
    ) -> FreeParameters:
        """Make the map from what is known of each entry.

        Parameters
        ----------
        begin : Tensor [p]
            It has the values of the fixed entries.
        fixed : list of int
            Entries that do not move.
        tied : list of list of int
            Groups of entries that are equal, with no entry in two. One with a fixed entry is fixed at its value.
        lower, upper : Tensor [p]
            Bounds of the entries; those of a group hold for all of it.
        offset : Tensor [p], optional
            Without it, the entries of a group are equal.
        """
        offset = torch.zeros_like(begin) if offset is None else offset
        first = {entry: entries[0] for entries in tied for entry in entries}
        root = [first.get(entry, entry) for entry in range(len(begin))]
        source = {root[entry]: entry for entry in reversed(fixed)}
        group, given, members = torch.full((len(begin),), -1), begin.clone(), dict[int, list[int]]()
        for entry in range(len(begin)):
            if (fixed_entry := source.get(root[entry])) is None:
                members.setdefault(root[entry], []).append(entry)
            elif fixed_entry != entry:
                given[entry] = begin[fixed_entry] - offset[fixed_entry] + offset[entry]
        for position, entries in enumerate(members.values()):
            group[entries] = position
            if len(entries) == 1:
                offset = offset.clone()
                offset[entries] = 0.0
        low = [float((lower - offset)[entries].max()) for entries in members.values()]
        high = [float((upper - offset)[entries].min()) for entries in members.values()]
        return cls(group.to(begin.device), given, begin.new_tensor(low), begin.new_tensor(high), offset)

    def to(self, device: torch.device) -> FreeParameters:
        """Return the same map on another device."""
        tensors = (self.group, self.given, self.lower, self.upper, self.offset)
        return FreeParameters(*(tensor.to(device) for tensor in tensors))

    @property
    def is_bounded(self) -> bool:
        """Whether any free number has a bound."""
        return bool(self.lower.isfinite().any() or self.upper.isfinite().any())

    @property
    def is_fixed(self) -> Tensor:
        """Which entries [p] do not move."""
        return self.group < 0

    @property
    def is_restricted(self) -> Tensor:
        """Which entries [p] are fixed, have a bound, or equal another entry."""
        sizes = torch.bincount(self.group.clamp_min(0)[~self.is_fixed], minlength=len(self.lower))
        restricted = (sizes > 1) | self.lower.isfinite() | self.upper.isfinite()  # [q]
        return torch.cat([restricted, restricted.new_ones(1)])[self.group]

    def with_others(self, count: int) -> FreeParameters:
        """Return the map of a vector with this many more entries at its end, which are free."""
        like, q = self.given, len(self.lower)
        places = torch.arange(q, q + count, device=self.group.device)
        infinite = like.new_full((count,), math.inf)
        others = {"group": places, "lower": -infinite, "upper": infinite}
        others |= dict.fromkeys(("given", "offset"), like.new_zeros(count))
        return replace(self, **{name: torch.cat([getattr(self, name), added]) for name, added in others.items()})

    def sums(self, v: Float[Tensor, " p"]) -> Float[Tensor, " q"]:
        """Sum the entries of each group: the gradient in the free numbers from the gradient in all entries."""
        total = v.new_zeros(len(self.lower) + 1)  # the last one collects the fixed entries
        return total.index_add_(0, self.group.remainder(len(total)), v)[:-1]

    def free(self, v: Float[Tensor, " p"]) -> Float[Tensor, " q"]:
        """Return the free numbers nearest to a vector: means of groups, moved to their bounds."""
        v = v - self.offset.to(v)
        mean = self.sums(v) / self.sums(torch.ones_like(v))
        # entries that are equal keep their bits, which a mean of three might not
        first, is_free = torch.full((len(mean),), len(v), device=v.device), ~self.is_fixed
        first.scatter_reduce_(0, self.group[is_free], torch.arange(len(v), device=v.device)[is_free], "amin")
        same = self.sums((v != torch.cat([v[first], v[:1]])[self.group]).to(v)) == 0.0
        return torch.where(same, v[first], mean).clamp(self.lower.to(v), self.upper.to(v))

    def full(self, f: Float[Tensor, " q"]) -> Float[Tensor, " p"]:
        """Return all entries, v = T(f)."""
        values = torch.cat([f, f.new_zeros(1)])[self.group] + self.offset.to(f)
        return torch.where(self.is_fixed, self.given.to(f), values)

    def project(self, v: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return the allowed vector nearest to v."""
        return self.full(self.free(v))

    def spread(self, gradient: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Project a gradient: 0 for fixed entries, and the mean of its group for every other one."""
        sizes = self.sums(torch.ones_like(gradient))
        mean = self.sums(gradient) / sizes
        return torch.cat([mean, mean.new_zeros(1)])[self.group]

    def descending(self, v: Float[Tensor, " p"], gradient: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Project a gradient at v as `spread` does, with 0 where a bound stops the descent."""
        f, g = self.free(v), self.sums(gradient)
        stopped = ((f <= self.lower) & (g > 0.0)) | ((f >= self.upper) & (g < 0.0))  # [q]
        return self.spread(gradient).where(~torch.cat([stopped, stopped.new_zeros(1)])[self.group], 0.0)
