"""Loading of any source: `load("kin40k")`, `load("my.csv", target="price")`, `load(frame)`, `load((X, y))`."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import torch

from ..errors import DataError, has_items, is_one_of
from ..problem import Dataset, MixedRows
from .edits import edited
from .files.choice import Choice
from .files.columns import pick
from .files.layouts import read_set
from .files.parsed_columns import Numbers
from .files.reading import Raw, kind_of, read_path, readable
from .files.row_names import is_row_name
from .files.size_limits import LOCAL
from .given_folds import groups_of_rows
from .in_memory import TABLE, array_table, from_arrays, from_frame, is_frame
from .mapped import load_mapped, sha256_of
from .quoting import listing, nearest, quote
from .reader.cells import is_number
from .reader.column_cells import KINDS
from .reader.number_format import missing_number
from .reader.target_statistics import fit_to_targets, of_training_rows
from .sets.cards import Progress, card, fetch_card, is_cached, names
from .sets.generators import GENERATORS, complete, generate
from .sets.poses import DIMENSION, NOTE, TEST, TRAIN
from .sets.poses import named as poses
from .splits import Given, How, Mask, Split, make_split, part

if TYPE_CHECKING:
    import pandas as pd

POSES = "poses"
CHOICES = tuple(field.name for field in fields(Choice))


def available() -> pd.DataFrame:
    """Return a table of all public sets and generators.

    Returns
    -------
    DataFrame
        One row per name, with columns n, d, task, licence, notes, source, and whether it is on this machine.
    """
    import pandas as pd

    made = [(name, recipe.n, recipe.d, recipe.formula) for name, recipe in GENERATORS.items()]
    made.append((POSES, TRAIN + TEST, DIMENSION, NOTE))
    rows: list[tuple[Any, ...]] = [
        (name, n, d, "regression", "BSD-3-Clause (formula)", notes, "generator", True) for name, n, d, notes in made
    ]
    rows += [
        (own.name, own.n, own.d, own.task, own.licence, " ".join((*own.traps, *own.notes)), "registry", is_cached(own))
        for own in map(card, names())
    ]
    columns = ["name", "n", "d", "task", "licence", "notes", "source", "cached"]
    return pd.DataFrame(rows, columns=columns).set_index("name")


def fetch(name: str, progress: Progress | None = None) -> tuple[Path, ...]:
    """Download a public set, unless it is on this machine.

    Parameters
    ----------
    name : str
        A public set, or a generator, which has no files.
    progress : callable, optional
        Called as progress(done, total) with numbers of bytes.

    Returns
    -------
    tuple of Path
        The files, whose checksums are correct.
    """
    return () if is_one_of(name, (POSES, *GENERATORS)) else fetch_card(card(str(name)), progress)


def is_named(source: Any) -> bool:
    """Whether a source is a public set or a generator, by name or as a dict.

    A link from a stranger may request nothing else, because any other text would be opened as a file of this machine.
    """
    name = source.get("name") if isinstance(source, Mapping) else source
    return isinstance(name, str) and name in (POSES, *GENERATORS, *names())


def load(source: Any, split: How = 0, **options: Any) -> Split:
    """Load training and test rows, in the units of the file.

    Parameters
    ----------
    source : str, Path, DataFrame, tuple, dict or Split
        A public set or a generator by name; a file; a table; a pair (X, y); or a dict {"name": ..., option: ...}, as a
        Spec contains it. The entry "edits" of a dict changes training rows; see `data.edits`. A split stays as it is.
    split : int, mapping or "all", default 0
        A fold, {"test": share, "seed": s}, {"folds": k, "fold": i} or {"before": x}; "all" for training rows alone.
    **options : object
        Of a generator: n, d, noise, seed, kernel, theta. Of a table: target, inputs, drop, objects (one text column as
        input), texts (columns of text as inputs beside the numbers, for a kernel on named columns), groups (a column
        that is no input: rows with the same value in it are held out together), missing ("fill" with the median or
        what other columns suggest, which is the default of tables, "drop" or "refuse"), encode (columns that become
        inputs of 0 and 1), dates (columns that become days), decimal ("," where 3,5 is 3.5), kinds (how columns are
        read, such as {"when": "date mdy", "code": "words"}). Without options, every column that can explain something
        is used. Of a file: sha256, by which one that has changed is refused. Of a Parquet file larger than memory:
        memory="mapped", dtype ("float64" or "float32"), and progress(done, total), which may raise to cancel.

    Returns
    -------
    Split
        Of a table, ``train.reader`` says how each column was read, and reads new rows alike. With memory="mapped" its
        rows are scaled, and its tensors map files in a cache.

    Raises
    ------
    DataError
        One sentence about the first thing that is wrong.
    """
    if isinstance(source, Split):
        return source
    split, options = plain(split), {key: plain(value) for key, value in options.items()}
    if isinstance(source, Mapping) and "edits" in source:
        return edited(load({k: v for k, v in source.items() if k != "edits"}, split, **options), source["edits"])
    if isinstance(source, Mapping):
        source, options = _named(source, options)
    if is_frame(source):
        choice = _choice(TABLE, options)
        return _split(_picked(from_frame(source, (*choice.named, *choice.drop)), choice), split, Given(), None)
    if isinstance(source, tuple | list) and len(source) == 2:
        table = array_table(source[0])
        source = source if table is None else (table, source[1])
        raw, target, objects = from_arrays(*source)
        missing = None if is_frame(source[0]) else "refuse"
        choice = _choice("the arrays", {"missing": missing, "target": target, "objects": objects, **options})
        is_read = is_frame(source[0]) or bool(choice.encode or choice.dates or choice.kinds)
        choice = _with_numbers(choice, raw.table.schema, [target] if is_frame(source[0]) else raw.table.column_names)
        numbers = pick(raw, choice, keep_all=True)
        return _split(numbers if is_read else numbers._replace(reader=None), split, Given(), None)
    if not isinstance(source, str | PurePath):
        kind = type(source).__name__
        raise DataError(f"Data of type {kind} cannot be read: give a name, a path, a DataFrame or (X, y).")
    name = str(source)
    if name in GENERATORS:
        identity = complete(name, options)
        return make_split(generate(name, options), split, Given(), identity, (GENERATORS[name].formula,), name)
    if name == POSES:
        return poses(options, split)
    if name in names():
        public = card(name)
        numbers, given = read_set(public, fetch_card(public), _choice(name, options))
        return _split(numbers, split, given, [file.sha256 for file in public.files], name)
    return _file(Path(source), split, options)


def as_split(numbers: Numbers, how: How = 0, name: str = "upload", choice: Choice | None = None) -> Split:
    """Return checked numbers, such as those of the upload child, as a split.

    Its key is the one that `load` gives to a file of this name with the same choice of columns, so that a spec made
    from an upload accepts the same rows from a file.
    """
    return _split(numbers, how, Given(), _file_identity(choice or Choice(), None), Path(name).stem)


def _named(source: Mapping[str, Any], options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The name and the options in a dict."""
    merged = {**source, **options}
    name = merged.pop("name", None)
    if not isinstance(name, str) or not name:
        raise DataError(
            f'The data {quote(dict(source), 80)} have no name: give {{"name": "kin40k"}}, or a DataFrame of columns.'
        )
    return name, merged


def _choice(name: str, options: Mapping[str, Any]) -> Choice:
    """The choice of columns in these options; column names may be numbers, as in a frame."""
    unknown = [key for key in options if key not in CHOICES]
    if unknown:
        raise DataError(f"{name} has no option {quote(unknown[0])}. {nearest(unknown[0], CHOICES)}")
    fields = {key: value for key, value in options.items() if value is not None}
    for key in ("inputs", "drop", "encode", "dates", "texts"):
        if key in fields:
            single = isinstance(fields[key], str) or not has_items(fields[key])
            fields[key] = (str(fields[key]),) if single else tuple(map(str, fields[key]))
    fields |= {key: str(fields[key]) for key in ("target", "objects", "groups") if key in fields}
    if "kinds" in fields:
        fields["kinds"] = _kinds(name, fields["kinds"])
    if not is_one_of(fields.get("missing", "fill"), ("refuse", "drop", "fill")):
        raise DataError(f'{name}: missing={quote(fields["missing"])} is not known: choose "refuse", "drop" or "fill".')
    if not is_one_of(fields.get("decimal", "."), (".", ",")):
        raise DataError(f'{name}: decimal={quote(fields["decimal"])} is not known: choose "." or ",".')
    return Choice(**fields)


def _with_numbers(choice: Choice, schema: pa.Schema, titles: Sequence[str]) -> Choice:
    """The choice in which these columns of a pair (X, y) are numbers where they have them, and no kind was asked for.

    In a file or a frame, 20210301 is a date, whose column has a name, and new rows are read by it. Whoever gives an
    array has made numbers of all that was to be read, and gives later rows as arrays of as many columns, which no
    reader sees: they would not fit the days and the parts of the year that training had in place of the number.
    """
    plain = [c for c in titles if is_number(schema.field(c).type) and not choice.asked(c)]
    return replace(choice, kinds=(*choice.kinds, *((column, "number") for column in plain)))


def _kinds(name: str, kinds: Any) -> tuple[tuple[str, str], ...]:
    """The option `kinds` as pairs of a column and how it is read."""
    if not isinstance(kinds, Mapping):
        raise DataError(f'{name}: kinds={quote(kinds)} is no mapping: give {{"when": "date mdy"}} or similar.')
    for column, kind in kinds.items():
        word = str(kind).partition(" ")[0]
        is_known = str(kind) in KINDS or word in ("number", "date", "words", "raw")
        if not is_known or (" missing" in str(kind) and missing_number(str(kind)) is None):
            raise DataError(
                f"{name}: the kind {quote(kind)} of column {quote(column)} is not known: choose one of "
                f'{listing(KINDS)}, "date dmy", "date mdy", "number 1.234,5" or "number missing -999".'
            )
    return tuple((str(column), str(kind)) for column, kind in kinds.items())


def _file(path: Path, split: How, options: dict[str, Any]) -> Split:
    if not kind_of(path.name) and path.parent == Path() and not _exists(path):
        raise DataError(f"There is no data set or file {quote(path)}. {nearest(path, (*GENERATORS, POSES, *names()))}")
    memory, expected = options.pop("memory", None), options.pop("sha256", None)
    if memory not in (None, "whole", "mapped"):
        raise DataError(f'{path.name}: memory={quote(memory)} is not known: choose "whole" or "mapped".')
    if expected:
        _refuse_changed(path, str(expected), memory == "mapped")
    if memory == "mapped":
        mapping = {key: options.pop(key) for key in ("dtype", "progress") if key in options}
        return load_mapped(path, split, _choice(path.name, options), **mapping)
    header = options.pop("header", None)
    choice = _choice(path.name, options)
    numbers = _picked(read_path(path, header=header, also=(*choice.named, *choice.drop)), choice)
    return _split(numbers, split, Given(), _file_identity(choice, header), path.stem)


def _picked(raw: Raw, choice: Choice) -> Numbers:
    """The chosen columns of a table; DataError if its inputs leave only a name or a count of the rows as the target."""
    numbers = pick(raw, choice)
    why = is_row_name(numbers.target, numbers.y) if choice.target is None and choice.inputs is not None else ""
    if why:
        raise DataError(
            f"{raw.name} has no column of numbers beside the inputs that could be the target: {quote(numbers.target)} "
            f'{why}. Name the column to predict, target="NAME".'
        )
    return numbers


def _refuse_changed(path: Path, expected: str, of_any_size: bool) -> None:
    """Raise DataError if the file is not the one with this SHA-256, or is too large to be read as a whole."""
    with readable(path):
        if not of_any_size:
            LOCAL.check_file(path.name, path.stat().st_size)
    actual = sha256_of(path)
    if actual != expected.lower():
        raise DataError(
            f"{quote(path.name)} has changed, or is another file: its SHA-256 is {actual[:12]}…, and "
            f"{quote(expected, 12)} was asked for. Give the file as it was, or take it as it is: leave sha256 out of "
            "the data, on the command line with --set data.sha256=null."
        )


def choice_entries(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that choose columns of a table, in JSON's own types, as the data of a Spec contain them."""
    choice = _choice("the data", {name: options[name] for name in options if name in CHOICES})
    chosen = {name: value for name, value in asdict(choice).items() if value != getattr(Choice(), name)}
    lists = {name: list(value) if isinstance(value, tuple) else value for name, value in chosen.items()}
    return lists | ({"kinds": dict(choice.kinds)} if choice.kinds else {})


def _file_identity(choice: Choice, header: Any) -> dict[str, Any]:
    """What distinguishes two readings of one file."""
    return {**choice.identity, "header": header}


def plain(value: Any) -> Any:
    """Return a NumPy number as a Python number, so that it is checked and hashed like one."""
    return value.item() if isinstance(value, np.generic) else value


def _exists(path: Path) -> bool:
    try:
        return path.name != "" and path.exists()
    except OSError:  # for example, the name is too long for a file
        return False


def _split(numbers: Numbers, how: How, given: Given, identity: object, name: str = "data") -> Split:
    X: Any = list(numbers.X) if isinstance(numbers.X, list) else torch.from_numpy(numbers.X.astype("float64"))
    X = MixedRows(X, numbers.texts) if numbers.texts else X
    y = torch.from_numpy(numbers.y.astype("float64"))
    groups = groups_of_rows(np.array(numbers.groups), len(y)) if numbers.groups else None
    data = Dataset(X, y, numbers.names, numbers.target, groups=groups)
    split = make_split(data, how, given, [_content(numbers), identity], numbers.notes, name)
    return split if numbers.reader is None else _learned(split, numbers, *part(data, how, given, name))


def _learned(split: Split, numbers: Numbers, is_train: Mask, is_test: Mask) -> Split:
    """The split with a reader that has learned from the training rows alone, and without useless inputs."""
    train, test, reader = split.train, split.test, numbers.reader
    assert reader is not None
    texts = [numbers.X] if isinstance(numbers.X, list) else numbers.texts
    cells = numbers.X if numbers.cells is None else numbers.cells
    cells = np.zeros((len(numbers.y), 0)) if isinstance(cells, list) else cells
    reader, read = of_training_rows(reader, cells, texts, numbers.y, is_train)
    if not isinstance(train.X, torch.Tensor | MixedRows):
        return replace(split, train=replace(train, reader=reader), test=replace(test, reader=reader))
    groups = None if train.groups is None else train.groups.number.numpy()
    X = reader.matrix({source: own.of_rows(is_train) for source, own in read.items()}, len(train))
    reader, X, as_new = fit_to_targets(reader, X, train.y.numpy(), groups)
    of_test = {source: read[source].of_rows(is_test) for source in reader.number_sources}
    unknown = {source: torch.from_numpy(reader.column(source).unknown(own)) for source, own in of_test.items()}
    unknown = {source: mask for source, mask in unknown.items() if bool(mask.any())}
    parts = []
    for rows, matrix in ((train, X), (test, reader.matrix(of_test, len(test)))):
        numbers_of_rows: Any = torch.from_numpy(np.ascontiguousarray(matrix))
        own = rows.X.with_numbers(numbers_of_rows) if isinstance(rows.X, MixedRows) else numbers_of_rows
        parts.append(replace(rows, X=own, names=reader.names, reader=reader))
    if as_new is not None and isinstance(train.X, torch.Tensor):
        parts[0] = replace(parts[0], as_new=torch.from_numpy(np.ascontiguousarray(as_new)))
    return replace(split, train=parts[0], test=replace(parts[1], unknown=unknown or None))


def _content(numbers: Numbers) -> str:
    """SHA-256 of all values: two tables have the same key only if they are equal."""
    digest = hashlib.sha256(repr((numbers.names, numbers.target)).encode())
    digest.update(repr(numbers.X).encode() if isinstance(numbers.X, list) else numbers.X.tobytes())
    digest.update(numbers.y.tobytes())
    for texts in (numbers.texts, numbers.groups):
        digest.update(repr(texts).encode() if texts else b"")
    return digest.hexdigest()
