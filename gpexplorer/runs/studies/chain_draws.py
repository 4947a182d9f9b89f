"""The draws of a run that samples, as arrays and for ArviZ.

Apart because it is what people ask for by name; the picture of the chains only repeats the names of the numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...errors import SettingError
from ...methods.capabilities import SamplesWeights
from ..run import Run
from ..setting_checks import of_kind

LOG_LIKELIHOOD = "log likelihood"
SAMPLED = (LOG_LIKELIHOOD, "log noise variance", "log weight 1", "log weight 2", "log weight 3")  # State.watched


def chain_draws(run: Run) -> dict[str, np.ndarray]:
    """The draws of the chains after the warm-up.

    Parameters
    ----------
    run : Run
        A run of a method that samples, such as "grief-mcmc".

    Returns
    -------
    dict of str to ndarray [chains, draws]
        By name: the logarithms of the likelihood, of the noise variance (of targets scaled to standard deviation 1)
        and of the first weights. A long run keeps every second draw, or fewer: at most 256 per chain.

    Raises
    ------
    SettingError
        If the method does not sample, or there are no draws after the warm-up yet.
    """
    of_kind("The run", run, Run, "a Run")
    if not isinstance(run.method, SamplesWeights):
        raise SettingError(f"{run.method.key} does not sample, so that it has no draws; grief-mcmc does.")
    state = run.trace[-1].step.state if len(run.trace) else None
    if state is None or state.phase != "sample" or not state.watched.shape[1]:
        raise SettingError("There are no draws after the warm-up yet: let the run take more steps.")
    draws = state.watched.cpu().double().numpy()  # [chains, draws, numbers]
    return {name: draws[:, :, number] for number, name in enumerate(SAMPLED[: draws.shape[2]])}


def to_arviz(run: Run) -> Any:
    """The draws of a run as ArviZ's InferenceData, for its diagnostics and plots.

    Parameters
    ----------
    run : Run
        As for `chain_draws`.

    Returns
    -------
    arviz.InferenceData
        The group "posterior" holds the draws by name, "sample_stats" holds the log likelihood as "lp".

    Raises
    ------
    SettingError
        As `chain_draws` does, and if ArviZ is not installed.

    Examples
    --------
    >>> import arviz                                                                                # doctest: +SKIP
    >>> run = Spec("grief-mcmc", data="sin-product").open()                                         # doctest: +SKIP
    >>> run.finish(steps=100)                                                                       # doctest: +SKIP
    >>> arviz.summary(to_arviz(run))                                                                # doctest: +SKIP
    """
    draws = chain_draws(run)
    try:
        import arviz
    except ImportError:
        raise SettingError("ArviZ is not installed: pip install gpexplorer[arviz].") from None
    likelihood = draws.pop(LOG_LIKELIHOOD)
    return arviz.from_dict(posterior=draws, sample_stats={"lp": likelihood})
