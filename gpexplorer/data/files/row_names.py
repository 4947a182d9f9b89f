"""Columns that name or number the rows, which say nothing about the target."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from ..reader.cells import is_number, is_text
from ..table_checks import Floats

ID_NAME = re.compile(
    r"(?i)^(.*[ _.-])?(id|ids|uid|index|idx|row|rows|rownames?|row[ _]?(no|nr|num|number|id|index)|no|nr|num|number|key"
    r"|uuid|unnamed: ?0|column 1|obs|observation|case|record|sample[ _]?(id|no|nr|number)?|serial|lfd|nummer|rank"
    r"|count(er)?)\.?$"
)
_TARGETS = re.compile(r"(?i)^(y|z|f|target|label|output|response|value|outcome|result)\d*$")
_TIMES = re.compile(
    r"(?i)(^x[ _]?\d*$|^t$|time|date|day|week|month|year|yr|hour|minute|second|^min$|^sec$|step|epoch|iteration|period|"
    r"tick|jahr|monat|woche|tag$|position|^pos$|depth|distance|^dist$|dose|temp|age$|frame|cycle|lag|lap|stage|quarter)"
)
NAMES, COUNTS = "looks like a name of the row", "only counts the rows"


def keeps_time(name: str) -> bool:
    """Whether a column of this name may count days or steps, and so be an input."""
    return bool(_TIMES.search(name)) and not ID_NAME.match(name)


def is_row_name(name: str, values: Floats) -> str:
    """Say why a column of numbers [n], some of which may be missing, seems to name or number the rows; "" if not."""
    rows = np.flatnonzero(~np.isnan(values))
    values = values[rows]
    if len(values) < 3 or _TARGETS.match(name):
        return ""
    with np.errstate(invalid="ignore"):
        if not keeps_time(name) and (np.diff(values) == np.diff(rows)).all():
            return COUNTS
        whole = bool((values == np.round(values)).all())
    return NAMES if ID_NAME.match(name) and whole and len(np.unique(values)) == len(values) else ""


def names_copied_rows(table: pa.Table, name: str, values: Floats) -> bool:
    """Whether a column with the name of an id has repeated values only in rows that are copies of each other."""
    if not ID_NAME.match(name) or np.isnan(values).any() or (values != np.round(values)).any():
        return False
    ids, row_ids, sizes = np.unique(values, return_inverse=True, return_counts=True)
    if len(ids) == len(values) or 2 * len(ids) < len(values):
        return False
    comparable = [c for c in table.column_names if is_number(table[c].type) or is_text(table[c].type)]
    rows = table.select(comparable).filter(pa.array(sizes[row_ids] > 1))
    different = rows.group_by(comparable, use_threads=False).aggregate([])
    return different.num_rows == int((sizes > 1).sum())
