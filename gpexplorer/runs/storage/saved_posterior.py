"""Reading any posterior from a file, those of exact GPs that are solved by blocks included.

`posteriors.load_posterior` is below the methods and knows no solver by blocks; this one gives it theirs.
"""

from __future__ import annotations

import os
from typing import Any

from ... import posteriors
from ...methods.exact.posteriors import joint_from_rows


def load_posterior(path: str | os.PathLike[str], device: str = "cpu") -> Any:
    """Read a posterior from a file that `Posterior.save` wrote.

    Parameters
    ----------
    device : str, default "cpu"
        Where it computes.

    Returns
    -------
    Posterior
        With the units, the columns and the noise of the model that was saved.

    Raises
    ------
    PosteriorError
        If the file is not such a file, comes from a later version, or contradicts itself.

    Examples
    --------
    >>> run.posterior(of="y").save("model.safetensors")
    >>> mean, var = load_posterior("model.safetensors")(X)
    """
    return posteriors.load_posterior(path, device, joint_from_rows)
