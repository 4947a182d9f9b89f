"""A sweep: many runs that differ in a few fields, one after another in this process or on a Dask cluster."""

from __future__ import annotations

import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from pathlib import PurePath
from typing import Any, NamedTuple

import pandas as pd
import param

from ...data.loading import plain
from ...errors import ClusterError, DataError, GPExplorerError, SettingError, closest, has_items, is_one_of, quoted
from ...methods.base import registry
from ..run import Run
from ..setting_checks import of_kind
from ..spec import A_SPEC, Spec, named_specs
from ..storage.journal import InUse
from ..store import Store
from .cluster import cancel, connected, first_done, result, stopping_with_worker
from .comparison import Finished, not_default
from .setting_labels import setting_in_words

MOST = 200  # runs in one sweep, unless the caller allows more
TAKE_OVER_SECONDS = 60.0  # that a worker waits for the step of one that is closed
COUNT = 4  # values that are proposed for one name


class Swept(NamedTuple):
    """One run of a sweep.

    Attributes
    ----------
    name : str
        The name of the run, such as "num_inducing=8, seed=1".
    finished : Finished or None
        The run, or None if it could not be opened.
    sentence : str
        Why it ended, or why it could not be opened.
    """

    name: str
    finished: Finished | None
    sentence: str


def grid(spec: Spec, over: Mapping[str, Sequence[Any]], most: int = MOST, labels: bool = False) -> dict[str, Spec]:
    """Make the specs of every combination of some values.

    Parameters
    ----------
    spec : Spec
        Gives everything that does not vary.
    over : mapping
        Lists of values by name. A name is a field of the spec, or a setting of its method. The last name varies
        fastest. Where "method" varies, the other methods have those settings of the spec that are not defaults.
    most : int, default 200
        The largest number of combinations that is allowed.
    labels : bool, default False
        Whether the names have the method and the labels of the page: "CholQR swaps, Inducing points m = 8, seed = 1".

    Returns
    -------
    dict of str to Spec
        The specs by names such as "num_inducing=8, seed=1".

    Raises
    ------
    SettingError
        If a value cannot be used, or there are more combinations than `most`.

    Examples
    --------
    >>> specs = grid(Spec("cholqr", budget={"steps": 50}), {"num_inducing": [8, 32], "seed": [0, 1, 2]})
    >>> table = comparison.table({run.name: run.finished for run in sweep(specs)})
    """
    spec, over = of_kind("The spec of a sweep", spec, Spec, A_SPEC), _lists(over)
    count = math.prod(map(len, over.values()))
    if not over or not 1 <= count <= most:
        raise SettingError(f"The sweep has {count if over else 0:,} runs; give 1 to {most}.")
    specs = {}
    for values in itertools.product(*over.values()):
        chosen = dict(zip(over, values, strict=True))
        one = with_values(spec, chosen)
        titled = {name: value for name, value in chosen.items() if name != "method"} if labels else chosen
        words = [setting_in_words(one.method, name, value, labels) for name, value in titled.items()]
        specs[", ".join([registry[one.method].title, *words] if labels else words)] = one
    return specs


def around(spec: Spec, name: str) -> list[Any]:
    """A few values to begin a sweep with: the present value of a setting and values near it.

    Parameters
    ----------
    spec : Spec
        Gives the present value.
    name : str
        A setting of its method, or "seed" or "split".
    """
    of_kind("The spec of a sweep", spec, Spec, A_SPEC)
    if is_one_of(name, ("seed", "split")):
        return list(range(COUNT))
    if not is_one_of(name, spec.settings):
        raise SettingError(f"{spec.method} has no setting {quoted(name)}{closest(name, spec.settings)}")
    setting = registry[spec.method].param.objects()[name]
    if isinstance(setting, param.Boolean):
        return [False, True]
    if isinstance(setting, param.Selector):
        return list(setting.objects)
    if isinstance(setting, param.String):
        return [spec.settings.get(name, setting.default)]
    largest = max((bound for bound in getattr(setting, "softbounds", None) or () if bound), default=8)
    present = spec.settings.get(name, setting.default) or largest / 8  # 0 often means that the method chooses
    low, high = getattr(setting, "bounds", None) or (None, None)
    is_whole = isinstance(setting, param.Integer)
    values = [present * 2.0**k for k in range(-1, COUNT - 1) if present * 2.0**k >= 1 or not is_whole]
    allowed = [v for v in values if (low is None or v >= low) and (high is None or v <= high)]
    return list(dict.fromkeys(round(v) if is_whole else v for v in allowed))


def sweep(
    specs: Mapping[str, Spec],
    scheduler: str = "",
    data: Any = None,
    opened: Callable[[Run], None] | None = None,
    store: str | PurePath | None = None,
) -> Iterator[Swept]:
    """Run every spec to the end of its own budget.

    Parameters
    ----------
    specs : mapping of str to Spec
        The runs by name, as `grid` makes them. Each needs a budget.
    scheduler : str
        The address of a Dask scheduler. Its workers read named data themselves. Without it, the runs follow one
        another in this process.
    data : Split, arrays or frame, optional
        Rows in memory, as in `Spec.open`.
    opened : callable, optional
        Receives each run of this process before its first step, so that it can be stopped.
    store : path, optional
        The directory of a `Store`. Every step is kept there, and a run that is there already continues from its last
        step, or is not run again: where more of it is there, it counts up to the end of its own budget, and the store
        keeps the rest. Workers of a scheduler must see the same directory.

    Yields
    ------
    Swept
        Each run as it ends. A run that fails has a sentence, and the others continue.
    """
    specs = named_specs("A sweep", specs)
    endless = [name for name, spec in specs.items() if not spec.budget]
    if endless:
        raise SettingError(f'The run "{endless[0]}" has no budget: give steps or seconds, so that the sweep ends.')
    if scheduler:
        return _on_workers(specs, scheduler, data, store)
    return (_run(*item, data, store, opened) for item in specs.items())


def _on_workers(specs: Mapping[str, Spec], scheduler: str, data: Any, store: str | PurePath | None) -> Iterator[Swept]:
    with connected(scheduler) as client:
        shared = None if data is None else client.scatter(data, broadcast=True)
        futures = {client.submit(_run, name, spec, shared, store, pure=False): name for name, spec in specs.items()}
        names, failure = dict(futures), ""
        try:
            for future in first_done(client, list(futures)):
                name = names.pop(future)
                try:
                    yield result(client, future)
                except ClusterError as error:
                    yield Swept(name, None, str(error))
        except ClusterError as error:
            failure = str(error)
            cancel(client, list(names))
        yield from (Swept(name, None, failure) for name in names.values())


def _run(
    name: str, spec: Spec, data: Any, store: str | PurePath | None = None, opened: Callable[[Run], None] | None = None
) -> Swept:
    """Run one spec and close it. An error of the method is its outcome. A spec that cannot be opened has a sentence."""
    try:
        run = _open(spec, None if store is None else Store(store), data)
    except GPExplorerError as error:
        return Swept(name, None, str(error))
    with closing(run):
        own = run.within_budget()
        if opened is not None:
            opened(own)
        with stopping_with_worker(own.stop):
            outcome = own.finish()
        return Swept(name, Finished.of(own), outcome.message)


def _open(spec: Spec, store: Store | None, data: Any) -> Run:
    """Open a run. One that another worker still writes, which was told to end, is waited for."""
    end = time.monotonic() + TAKE_OVER_SECONDS
    while True:
        try:
            return spec.open(store=store, data=data)
        except InUse:
            with stopping_with_worker(lambda: None) as on_worker:
                if not on_worker or time.monotonic() > end:
                    raise
        time.sleep(0.2)


def _lists(over: Any) -> dict[str, list[Any]]:
    """The values of each name as a list. A text or a single number is refused."""
    if not isinstance(over, Mapping):
        raise SettingError(f'over is {quoted(over)}; give names with lists of values, such as {{"seed": [0, 1]}}.')
    for name, values in over.items():
        if isinstance(values, (str, Mapping)) or not has_items(values):
            raise SettingError(f"The sweep over {name} is {quoted(values)}; give a list of values.")
    return {name: [plain(value) for value in values] for name, values in over.items()}


def with_values(spec: Spec, chosen: Mapping[str, Any]) -> Spec:
    """Return the spec with these fields of its own and settings of its method, by name.

    Another method takes over the settings that are not the defaults of the spec's own method.
    """
    names = {entry.name for entry in fields(spec)}
    settings = {name: value for name, value in chosen.items() if name not in names}
    changed = {name: value for name, value in chosen.items() if name in names}
    kept = not_default(spec) if changed.get("method", spec.method) != spec.method else spec.settings
    return replace(spec, **{"settings": {**kept, **settings}, **changed})


def with_digest(table: pd.DataFrame) -> pd.DataFrame:
    """Return the table of a sweep with a digest among its attributes, which a Parquet file keeps."""
    table = table.copy()
    table.attrs["digest"] = _digest_of(table)
    return table


def read_table(path: str | PurePath) -> pd.DataFrame:
    """Read the table of a sweep that `gpexplorer sweep` wrote.

    Parameters
    ----------
    path : str or path
        The Parquet file.

    Returns
    -------
    DataFrame
        One row per run, as `comparison.table` gives it.

    Raises
    ------
    DataError
        If the file cannot be read, or was changed after it was written. A table without a digest is read as it is.
    """
    way_out = "Run the sweep again, or copy the file again from where it came from."
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError, TypeError, LookupError) as error:
        reason = str(error).partition("\n")[0][:200]
        raise DataError(f"{path} cannot be read as the table of a sweep ({reason}). {way_out}") from None
    if table.attrs.pop("digest", None) not in (None, _digest_of(table)):
        raise DataError(f"{path} was changed after it was written: its content has another digest. {way_out}")
    return table


def _digest_of(table: pd.DataFrame) -> str:
    return hashlib.blake2b(table.to_csv().encode(), digest_size=16).hexdigest()
