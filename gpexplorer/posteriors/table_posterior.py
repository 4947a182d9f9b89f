"""Posteriors that read tables: a cell that is not known is averaged over the values that training has there.

    p(y | row) = sum_k w_k p(y | row with value k)

The values are the words of training for a word that training does not have, and values of the column for a gap that no
rule of training fills; see `TableReader.variants`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data.files.inputs_by_name import ModelInputs, strips_read, target_values
from ..data.quoting import display_name, listing, quote
from ..data.reader.table_reader import WARNED, RowsRead, Variant
from ..data.standardising import checked_inputs, inputs_in_units, model_rows, table_rows
from ..errors import DataError
from ..problem import Dataset, MixedRows
from .base import Posterior
from .marginals import Marginals, MixtureMarginals, NormalMarginals

STRIP_BYTES = 2**20  # of the float64 of the rows that are read from a file and added at once


class TablePosterior(Posterior):
    """A posterior in the units of the file, which reads a table as that of training was read.

    Notes
    -----
    Means, variances, quantiles and densities of a row with a cell that is not known are averaged over the values that
    training has there. Covariances, samples, paths and derivatives take a value in the middle, and warn.
    """

    columns: Dataset  # no rows: only how inputs are read

    def __repr__(self) -> str:
        columns = f"target {quote(self.columns.target)}, inputs {listing(self.columns.names, 6)}"
        return f"<posterior of {self.of}, {columns}: {self._contents()}>"

    @property
    def model_inputs(self) -> ModelInputs:
        """What the posterior knows of its inputs."""
        numbers, texts = self.columns.columns or ((), self.columns.names[:1])
        return ModelInputs(numbers, texts, self.columns.d - len(texts), self.columns.reader)

    def with_file(self, path: str | os.PathLike[str]) -> Self:
        """Return the posterior after all rows of a file, which may be larger than memory.

        Parameters
        ----------
        path : str or path
            A Parquet or text file. Its columns are found by the names of the fit, in any order, and read as those of
            the fit were.

        Returns
        -------
        Posterior
            The same as `with_rows` with all rows at once, to rounding.

        Raises
        ------
        DataError
            If a column does not exist, or a row has a cell that cannot be read.

        Notes
        -----
        The cost of `with_rows`, and memory for a few thousand rows. What a person should know of cells that were read,
        such as a unit that training does not have, is one warning at the end. To use no row twice, fit to a sample of
        the rows and begin with ``posterior.without_rows()``.
        """
        posterior = self
        for X, y in rows_of_file(Path(path), self):
            posterior = posterior.with_rows(X, y)
        return posterior

    def rows(self, X: Any) -> Any:
        """Check the inputs and put them on the device, in float64 and in the units of the file."""
        return checked_inputs(X, self.columns)

    def moments(self, X: Any) -> tuple[Tensor, Tensor]:
        return self.block_marginals(X).moments

    def mean(self, X: Any) -> Tensor:
        """Predictive mean [t]; see `Posterior.mean`."""
        read = table_rows(X, self.columns)
        if read is not None and read.unknown:
            return marginals_of_rows(self, read).moments[0]
        return super().mean(X if read is None else model_rows(read, self.columns))

    def marginals(self, X: Any, noise: bool | None = None) -> Marginals:
        """The predictive distribution of each row; see `Posterior.marginals`."""
        read = table_rows(X, self.columns)
        if read is not None and read.unknown:
            return marginals_of_rows(self, read, noise)
        return super().marginals(X if read is None else model_rows(read, self.columns), noise)


class GroupedMarginals(Marginals):
    """Distributions of rows that are of different kinds.

    Parameters
    ----------
    groups : sequence of (Tensor [b], Marginals)
        The numbers of some rows, and their distributions; each row is in one group.
    """

    def __init__(self, groups: Sequence[tuple[Tensor, Marginals]]) -> None:
        self.groups = [(rows, part.double()) for rows, part in groups]
        self.order = torch.cat([rows for rows, _ in self.groups]).argsort()

    @property
    def moments(self) -> tuple[Tensor, Tensor]:
        means, variances = zip(*(part.moments for _, part in self.groups), strict=True)
        return self._joined(means), self._joined(variances)

    def _log_density(self, y: Tensor) -> Tensor:
        return self._joined([part.log_density(_of_rows(y, rows)) for rows, part in self.groups])

    def _cdf(self, y: Tensor) -> Tensor:
        return self._joined([part.cdf(_of_rows(y, rows)) for rows, part in self.groups])

    def _quantile(self, levels: Tensor) -> Tensor:
        return self._joined([part.quantile(levels) for _, part in self.groups])

    def widened(self, factors: Tensor) -> GroupedMarginals:
        return GroupedMarginals([(rows, part.widened(factors[rows])) for rows, part in self.groups])

    def _joined(self, parts: Sequence[Tensor]) -> Tensor:
        """Values [..., b] of the groups as values [..., t] of the rows."""
        return torch.cat(list(parts), -1)[..., self.order]


def _of_rows(y: Tensor, rows: Tensor) -> Tensor:
    return y[..., rows] if y.ndim else y


def marginals_of_rows(posterior: Any, read: RowsRead, noise: bool | None = None) -> Marginals:
    """The distributions of rows that were read, all of which have an answer.

    Parameters
    ----------
    posterior : TablePosterior
    noise : bool, optional
        As for `Posterior.marginals`.
    """
    groups: list[tuple[Tensor, Marginals]] = []
    has_noise = posterior.wants_noise(noise)
    for unknown, rows in rows_by_unknown(read):
        X = chosen_rows(posterior, read, rows)
        if unknown:
            of_f = averaged(posterior, X, unknown)
            part: Marginals = observed_average(posterior, of_f) if has_noise else of_f
        else:
            part = posterior.marginals(X, noise)
        groups.append((torch.from_numpy(rows).to(posterior.like.device), part))
    return groups[0][1] if len(groups) == 1 else GroupedMarginals(groups)


def marginals_of_part(posterior: Any, rows: Dataset) -> Marginals:
    """The distributions of scaled rows of a split, such as its test rows.

    A row with a cell that training does not know has a normal distribution, with the mean and the variance of the
    average over the values of training: the target of a new word is hardly ever that of one of these words.

    Parameters
    ----------
    posterior : InUnits
    rows : Dataset
    """
    masks = [mask for mask in (rows.unknown or {}).values() if bool(mask.any())]
    if not masks:
        return posterior.marginals_at_scaled(rows.X)
    is_unknown = torch.stack(masks).any(0)
    groups: list[tuple[Tensor, Marginals]] = []
    for mask, of in ((~is_unknown, marginals_of_part), (is_unknown, _as_normal)):
        if bool(mask.any()):
            index = mask.nonzero()[:, 0]
            groups.append((index.to(posterior.like.device), of(posterior, rows.rows(index))))
    return GroupedMarginals(groups)


def _as_normal(posterior: Any, rows: Dataset) -> Marginals:
    """Normal distributions of scaled rows, in each of which a cell is not known."""
    X, n = inputs_in_units(rows.X, rows), len(rows)
    numbers, texts = (X.numbers.cpu().numpy(), X.texts) if isinstance(X, MixedRows) else (X, ())
    unknown = {source: mask.numpy() for source, mask in (rows.unknown or {}).items() if bool(mask.any())}
    read = RowsRead(numbers, texts, ("",) * n, np.ones(n, dtype=bool), unknown)
    return NormalMarginals(*marginals_of_rows(posterior, read).moments)


def rows_by_unknown(read: RowsRead) -> Iterator[tuple[tuple[str, ...], NDArray[np.int64]]]:
    """Rows that have an answer, together with the columns that are not known in them."""
    sources = list(read.unknown)
    pattern = np.zeros(len(read.answered), dtype=np.int64)
    for k, source in enumerate(sources):
        pattern += read.unknown[source].astype(np.int64) << min(k, 60)
    for value in np.unique(pattern[read.answered]).tolist():
        chosen = tuple(source for k, source in enumerate(sources) if value >> min(k, 60) & 1)
        yield chosen, np.flatnonzero(read.answered & (pattern == value))


def chosen_rows(posterior: Any, read: RowsRead, rows: NDArray[np.int64]) -> Any:
    """Some of the rows in the form that the posterior takes."""
    texts = tuple(tuple(column[i] for i in rows) for column in read.texts)
    return model_rows(read._replace(X=read.X[rows], texts=texts), posterior.columns)


def averaged(posterior: Any, X: Any, unknown: tuple[str, ...]) -> MixtureMarginals:
    """The distributions of f at rows [t], averaged over the values of columns that are not known."""
    weights, variants = posterior.columns.reader.variants(unknown)
    return MixtureMarginals([posterior.marginals(_changed(X, each), noise=False) for each in variants], weights)


def observed_average(posterior: Any, of_f: MixtureMarginals) -> MixtureMarginals:
    """The distributions of observations, from those of f that `averaged` gives."""
    return MixtureMarginals([posterior.observed(part) for part in of_f.parts], of_f.weights)


def _changed(X: Any, variant: Variant) -> Any:
    """The same rows with other values of some inputs."""
    if isinstance(X, MixedRows):
        return X.with_numbers(torch.from_numpy(variant.of(X.numbers.numpy())))
    return variant.of(X)


def rows_of_file(path: Path, posterior: TablePosterior) -> Iterator[tuple[Any, NDArray[np.float64]]]:
    """Inputs and targets of a file, strip by strip; see `TablePosterior.with_file`."""
    columns, name, begin = posterior.columns, display_name(path.name), 0
    notes, doubts, first_doubt = dict[str, None](), 0, ""
    strip = max(STRIP_BYTES // (8 * (columns.d + 1)), 1)
    for read, table in strips_read(path, posterior.model_inputs, strip, [columns.target]):
        y = target_values(columns.reader, columns.target, name, table)
        lost = np.flatnonzero(~(read.answered & np.isfinite(y)))
        if len(lost):
            row = int(lost[0])
            why = f"no number: {columns.target}" if read.answered[row] else read.why[row]
            raise DataError(f"{name}: row {begin + row + 1} cannot be learned ({why}): correct it, or leave it out.")
        is_unknown = np.any([np.zeros(len(y), dtype=bool), *read.unknown.values()], axis=0)
        has_doubt = [
            unknown or any(remark in why for remark in WARNED)
            for unknown, why in zip(is_unknown.tolist(), read.why, strict=True)
        ]
        if any(has_doubt) and not doubts:
            row = has_doubt.index(True)
            first_doubt = f"{name}, row {begin + row + 1}: {read.why[row]}"
        doubts, begin, notes = doubts + sum(has_doubt), begin + len(y), notes | dict.fromkeys(read.notes)
        yield model_rows(read, columns), y
    for note in (*notes, *([f"{first_doubt}; and {doubts - 1:,} more rows have such cells."] if doubts else ())):
        warnings.warn(note, stacklevel=3)
