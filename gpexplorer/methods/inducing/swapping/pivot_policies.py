"""Which rows are the information pivots: drawn evenly, chosen for the trace norm, or grown as guesses fail.

"random"     the paper's own choice: every few swaps all z are drawn anew (section 3.3.2)
"optimised"  greedy on the trace norm of the residual, as CSI's look-ahead chooses (Bach and Jordan 2005): of a pool
             four times as large, the row whose residual column e, deflated by those taken, explains most, |e|^2 / e_j
"adaptive"   begin with a few; while the scores rank badly, a rejected proposal's column is added, not exchanged
"scored"     half are the rows that the last pivots ranked best, a quarter is drawn in proportion to D = diag(K - Khat)
             (Chen et al. 2022, randomly pivoted Cholesky), the rest evenly: candidates to swap in, all of them tested
             exactly in every swap until they are chosen anew. A row far from all others is in no pivot's column, so no
             score finds it, and even draws seldom do; its D does.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ....linalg import ranks

POLICIES = ("random", "optimised", "adaptive", "scored")
POOL = 4  # candidates to each pivot of the optimised policy
FIRST = 8  # pivots that the adaptive policy begins with
TRUSTED = 0.8  # rank correlation from which the adaptive policy grows no further
WINDOW = 32  # newest exact tests that the correlation is taken over


def best_of_pool(E: Float[Tensor, "k n"], pool: Tensor, z: int) -> Tensor:
    """z of the pool's rows, chosen greedily by the trace norm of what their residual columns E explain: [<= z].

    With G = E E' and C = E[:, pool], taking k deflates both by rank one; n k^2 flops once, k^2 a choice.
    """
    G, C = (E @ E.T).double(), E[:, pool].double()
    least = 1e2 * torch.finfo(E.dtype).eps * float(C.diagonal().max())
    taken: list[int] = []
    for _ in range(min(z, len(pool))):
        d = C.diagonal()
        gain = torch.where(d > least, G.diagonal() / d, -torch.inf)
        k = int(gain.argmax())
        if not torch.isfinite(gain[k]):
            break
        taken.append(k)
        c, g = C[:, k] / C[k, k], G[:, k].clone()
        G = G - torch.outer(c, g) - torch.outer(g, c) + torch.outer(c, c) * g[k]
        C = C - torch.outer(c, C[k])
    return pool[taken]


def by_variance(D: Float[Tensor, " k"], many: int, rng: torch.Generator) -> Int[Tensor, " c"]:
    """Up to `many` of k indices, drawn without repetition in proportion to D; the rates of a race win as often."""
    arrivals = torch.empty(len(D), dtype=torch.float64).exponential_(generator=rng).to(D)
    return (D / arrivals).topk(min(many, len(D))).indices


def missed(exact: Float[Tensor, " c"], guesses: Float[Tensor, " c"]) -> float:
    """By how much the best candidate beats the one guessed best, -inf where unknown; nan if none was guessed."""
    known = guesses.masked_fill(exact == -torch.inf, -torch.inf)
    guessed = int(known.argmax())
    return float(exact.max() - exact[guessed]) if float(known[guessed]) > -torch.inf else float("nan")


def rank_correlation(tested: Float[Tensor, "w 2"]) -> float:
    """Spearman's, between the approximate and the exact falls of the candidates tested; nan for fewer than four."""
    if len(tested) < WINDOW // 8:
        return float("nan")
    return ranks.rank_correlation(*tested.cpu().numpy().T)
