"""The likelihood of many chains at once: a dozen passes over C (r + 1) numbers, all into arrays that are held.

    we = 2^(z / log 2 + log2 e),  t = we + s2,  sum log t = sum over groups of eight of log (t_1 ... t_8)

An exponential by powers of two costs half of one by powers of e, and a logarithm of eight numbers' product an eighth
of eight; a product too small for a float counts as the smallest, where no chain goes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

GROUP = 8  # factors that share a logarithm
LEAST = torch.finfo(torch.float64).tiny


class Together:
    """Likelihood and slopes of C chains: one call at a time, since its arrays are held."""

    def __init__(self, e: Tensor, u2: Tensor, times: Tensor) -> None:
        """As Halves has them: [r + 1], the noise's own terms last."""
        self._u2, self._less, self._log2e, self._noise = u2, -times, e.log2(), float(times[-1])
        self._held = (e[:0], e[:0])  # [C, r + 1] each

    def __call__(self, z: Tensor, slope: Tensor) -> Tensor:
        """Value [C]; the slopes are written into `slope` [C, r + 1]."""
        if self._held[0].shape != z.shape:
            self._held = (torch.empty_like(z), torch.empty_like(z))
        t, common = self._held
        parts = torch.add(self._log2e, z, alpha=1.0 / math.log(2.0), out=slope).exp2_()  # [C, r + 1] w e, and s2
        s2 = parts[:, -1].clone()
        torch.add(parts, s2[:, None], out=t)[:, -1] = s2
        logs = self._logs(t, z[:, -1])
        over = t.reciprocal_()
        torch.addcmul(self._less, self._u2, over, out=common).mul_(over)
        parts.mul_(common)[:, -1] = common.sum(1).mul_(s2)
        return torch.addmv(logs, over, self._u2, beta=-1.0, alpha=-1.0)

    def _logs(self, t: Tensor, noise: Tensor) -> Tensor:
        """sum_i times_i log t_i [C]; all times but the noise's are 1/2."""
        r = t.shape[1] - 1
        whole = r - r % GROUP
        products = t[:, :whole].unflatten(1, (GROUP, whole // GROUP)).prod(1)
        logs = products.clamp_min_(LEAST).log_().sum(1)
        if whole < r:
            logs += t[:, whole:r].log().sum(1)
        return logs.mul_(0.5).add_(noise, alpha=self._noise)
