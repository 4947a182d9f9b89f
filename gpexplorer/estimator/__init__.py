"""Any method as a scikit-learn regressor."""

from .regressor import Estimator

__all__ = ["Estimator"]
