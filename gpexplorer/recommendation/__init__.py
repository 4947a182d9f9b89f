"""Which method should I use? `recommend(X, y, seconds=60)` answers by trying the candidates on held-out rows.

`candidates` lists what the rows, the time and the memory allow; `halving` tries all of them on few rows, and the better
half on more; `held_out` scores them on training rows that they were not fitted to; `final_fit` gives the chosen one the
rest of the time, and `averaging` averages it with the others and with the `simple_members` that run along, such as
boosted trees; `result` is the answer. `held_out` also gives one number to searches of other packages.
"""

from __future__ import annotations

from .halving import recommend
from .held_out import held_out_score
from .result import Recommendation
from .stages import Progress

__all__ = ["Progress", "Recommendation", "held_out_score", "recommend"]
