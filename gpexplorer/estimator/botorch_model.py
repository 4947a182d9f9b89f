"""A fitted posterior as a model of BoTorch, so that its acquisition functions and optimisers can be used with it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..errors import SettingError
from ..methods import gpytorch_parts
from ..posteriors import Posterior
from ..runs.setting_checks import of_kind

MOST_ROWS = 2000  # rows of one joint covariance; more groups of candidates are computed in several batches


def botorch_model(posterior: Posterior) -> Any:
    """Wrap a posterior as a BoTorch model with one output. Hyperparameters and weights stay as they are.

    Parameters
    ----------
    posterior : Posterior
        Such as `run.posterior()`, `Estimator.posterior_` or `load_posterior(path)`. Its inputs must be numbers.

    Returns
    -------
    botorch.models.model.Model
        BoTorch maximises the target. To minimise it, fit a method to the negated target and wrap that posterior.

    Raises
    ------
    SettingError
        If BoTorch is not installed.

    Notes
    -----
    Joint covariances of q candidates cost what `posterior.cov` of q rows does. Derivatives with respect to the
    candidates go through it. BoTorch takes the target as normally distributed, with this mean and covariance. After a
    transform of the target, its distribution is skewed and only the moments agree; for a target whose logarithm is of
    interest, fit the method to the logarithm itself.

    BoTorch's `fantasize` and `condition_on_observations` are not there, so that `qKnowledgeGradient` and others that
    look ahead cannot be used. To condition on further rows, wrap ``posterior.with_rows(X, y)``.

    Examples
    --------
    >>> from botorch.acquisition import LogExpectedImprovement                                      # doctest: +SKIP
    >>> acquisition = LogExpectedImprovement(botorch_model(run.posterior()), best_f=y.max())        # doctest: +SKIP
    """
    of_kind("The posterior of a BoTorch model", posterior, Posterior, "a posterior, such as run.posterior()")
    try:
        distributions = gpytorch_parts.package().distributions
        from botorch.models.model import Model
        from botorch.posteriors.gpytorch import GPyTorchPosterior
    except ImportError:
        raise SettingError("BoTorch is not installed: pip install gpexplorer[botorch].") from None

    class PosteriorModel(Model):  # type: ignore[misc]
        """A model whose posterior is given."""

        @property
        def num_outputs(self) -> int:
            """A posterior has one target."""
            return 1

        @property
        def batch_shape(self) -> torch.Size:
            """There is one model, not a batch of them."""
            return torch.Size([])

        def posterior(
            self,
            X: Tensor,
            output_indices: list[int] | None = None,
            observation_noise: bool | Tensor = False,
            posterior_transform: Any = None,
        ) -> Any:
            """The joint posterior of candidates X [..., q, d], with the model's noise or with variances [..., q, 1].

            Raises
            ------
            SettingError
                If another output than the first is asked for.
            """
            if output_indices is not None and list(output_indices) != [0]:
                raise SettingError(
                    f"output_indices is {output_indices}; a posterior has one output: give [0], or none."
                )
            is_given = isinstance(observation_noise, Tensor) and observation_noise.dtype != torch.bool
            mean, covariance = joint_moments(posterior, X, noise=not is_given and bool(observation_noise))
            if is_given:
                variances = torch.broadcast_to(torch.as_tensor(observation_noise), (*mean.shape, 1))[..., 0]
                covariance = covariance + torch.diag_embed(variances.to(covariance))
            joint = GPyTorchPosterior(distributions.MultivariateNormal(mean, covariance))
            return joint if posterior_transform is None else posterior_transform(joint)

    return PosteriorModel()


def joint_moments(posterior: Posterior, X: Tensor, noise: bool) -> tuple[Tensor, Tensor]:
    """Means [..., q] and covariances [..., q, q] of each group of q rows of X [..., q, d]."""
    posterior = posterior.asked_for("y" if noise else "f")  # after a transform of the target, the means differ as well
    q, d = X.shape[-2:]
    groups = X.reshape(-1, q, d)
    means, covariances = [], []
    for batch in groups.split(max(MOST_ROWS // q, 1)):
        rows = batch.reshape(-1, d)
        means.append(posterior.mean(rows).view(len(batch), q))
        if q == 1:
            covariances.append(posterior.var(rows).view(-1, 1, 1))
            continue
        joint = posterior.cov(rows).view(len(batch), q, len(batch), q)
        index = torch.arange(len(batch), device=joint.device)
        covariances.append(joint[index, :, index])  # of each group with itself
    mean, covariance = torch.cat(means), torch.cat(covariances)
    return mean.view(X.shape[:-1]), covariance.view(*X.shape[:-1], q)
