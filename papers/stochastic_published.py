"""The numbers of tables 2 to 5 of Shoham and Avron, for the data sets of this package: means over five splits."""

from __future__ import annotations

METHODS = ("minimax", "scgd", "svgp", "bsgd")

# (kernel, data, rows per minibatch) -> (NLML per row, RMSE), each in the order of METHODS
PRINTED: dict[tuple[str, str, int], tuple[tuple[float, ...], tuple[float, ...]]] = {
    ("linear", "elevators", 32): ((-1.588, -1.530, -0.150, -1.125), (0.111, 0.158, 0.217, 0.090)),
    ("linear", "elevators", 64): ((-1.523, -1.427, -0.152, -1.139), (0.111, 0.114, 0.216, 0.094)),
    ("linear", "elevators", 128): ((-1.678, -1.399, 0.044, -1.173), (0.110, 0.101, 0.250, 0.091)),
    ("linear", "kin40k", 32): ((-1.713, -1.760, 0.792, -0.684), (0.061, 0.056, 0.651, 0.126)),
    ("linear", "kin40k", 64): ((-1.654, -1.682, 0.298, -0.952), (0.065, 0.060, 0.443, 0.097)),
    ("linear", "kin40k", 128): ((-1.590, -1.618, 0.003, -1.224), (0.073, 0.071, 0.283, 0.078)),
    ("linear", "protein", 32): ((0.392, 0.393, 0.848, 0.640), (0.426, 0.428, 0.550, 0.483)),
    ("linear", "protein", 64): ((0.325, 0.381, 0.659, 0.618), (0.430, 0.426, 0.494, 0.473)),
    ("linear", "protein", 128): ((0.289, 0.327, 0.709, 0.576), (0.435, 0.436, 0.513, 0.461)),
    ("gaussian", "elevators", 16): ((-1.094, -1.135, -0.915, -1.081), (0.096, 0.098, 0.089, 0.089)),
    ("gaussian", "elevators", 32): ((-1.042, -1.111, -0.926, -1.092), (0.100, 0.098, 0.088, 0.089)),
    ("gaussian", "elevators", 64): ((-0.988, -1.056, -0.932, -1.111), (0.089, 0.098, 0.088, 0.088)),
    ("gaussian", "kin40k", 16): ((-1.559, -1.606, -0.697, -0.515), (0.039, 0.040, 0.110, 0.147)),
    ("gaussian", "kin40k", 32): ((-1.585, -1.571, -0.796, -0.695), (0.039, 0.039, 0.096, 0.124)),
    ("gaussian", "kin40k", 64): ((-1.547, -1.539, -0.864, -0.947), (0.041, 0.041, 0.088, 0.096)),
    ("gaussian", "protein", 16): ((0.485, 0.476, 0.625, 0.716), (0.387, 0.388, 0.471, 0.507)),
    ("gaussian", "protein", 32): ((0.479, 0.479, 0.595, 0.674), (0.387, 0.389, 0.461, 0.493)),
    ("gaussian", "protein", 64): ((0.479, 0.474, 0.585, 0.644), (0.388, 0.389, 0.456, 0.481)),
}


def printed(kernel: str, data: str, batch: int, method: str) -> tuple[float, float]:
    """Return NLML per row and RMSE of the paper, nan where its tables have no entry."""
    values, errors = PRINTED.get((kernel, data, batch), ((float("nan"),) * 4,) * 2)
    k = METHODS.index(method)
    return values[k], errors[k]
