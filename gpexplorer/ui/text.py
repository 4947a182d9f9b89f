"""Text on the page: escaping, numbers, durations, labels for screen readers, exceptions as sentences, files of texts.

Text that people typed or uploaded (names, columns, files, errors) is escaped before it is shown as HTML. Errors of this
package are shown as written. Any other exception becomes constant text with an id that finds its traceback in the log.
"""

from __future__ import annotations

import html
import logging
import math
import re
import secrets
from pathlib import Path
from typing import Any

import yaml

from ..data.mapped import scratch
from ..data.sets.cards import YAML, cache_dir
from ..errors import GPExplorerError
from ..runs.outcomes import WAY_OUT, is_memory

# The hyphen of -0.5 and 1e-3, not that of n-1, of 2021-03-01, and of what is quoted as it stands in a file
_HYPHEN = re.compile(r'(?<!\w)(\d[\d.,]*[eE]|(?<![.)\]"-]))-(?=\.?\d)')
MAX_LENGTH = 400  # characters of one text on the page
LONGEST_MESSAGE = 800  # characters of a message to the person


def texts_beside(module: str, name: str) -> dict[str, Any]:
    """Return the texts of a YAML file that lies beside a module, given the module's `__file__`."""
    content: dict[str, Any] = yaml.load(Path(module).with_name(name).read_text("utf-8"), YAML)
    return content


def text(value: object, max_length: int = MAX_LENGTH) -> str:
    """Return a value as text that cannot become markup, cut to at most `max_length` characters, with minus signs."""
    return escaped(with_minus_signs(cut(value, max_length)))


def escaped(content: str) -> str:
    """Return programs and other exact text so that it cannot become markup."""
    return html.escape(content, quote=True)


def with_minus_signs(sentence: str) -> str:
    """Return a sentence whose numbers have minus signs: at a hyphen, a browser breaks 3.6e-26 at the end of a line."""
    return _HYPHEN.sub(r"\1−", sentence)


def cut(value: object, max_length: int) -> str:
    """Return a value as text of at most this many characters, for widgets that escape it themselves."""
    content = str(value)
    return content if len(content) <= max_length else f"{content[: max_length - 1]}…"


def number(value: float) -> str:
    """Return a number with four significant digits, or a dash when it is not finite."""
    if not math.isfinite(value):
        return "—"
    return with_minus_signs(f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}")


def span(seconds: float) -> str:
    """Return a duration in milliseconds, seconds, minutes or hours."""
    if seconds < 1e-3:
        return "under 1 ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def named(label: str, help_: str) -> dict[str, str]:
    """Return label and tooltip of a widget; screen readers read only the tooltip, so it begins with the label."""
    return {"label": label, "description": with_minus_signs(f"{label}: {help_}")}


log = logging.getLogger("gpexplorer.ui")


def sentence(error: BaseException, activity: str) -> str:
    """Return the sentence to show for an exception, as plain text that still has to be escaped.

    Parameters
    ----------
    activity : str
        What was going on, as the rest of a sentence that begins with "while", such as "the file was being read".
    """
    if isinstance(error, GPExplorerError):
        return _without_folders(str(error))
    log_id = record(error, activity)
    if is_memory(error):
        return f"Memory ran out while {activity}: {WAY_OUT}. The log entry is {log_id}."
    return (
        f"Something unexpected went wrong while {activity}. The log entry is {log_id}. "
        "Start again, or choose other settings."
    )


def _without_folders(message: str) -> str:
    """A message in which files of the server have names relative to its folders, which are not a visitor's business."""
    for folder in (scratch(), cache_dir()):  # the first one may lie in the second one
        message = message.replace(f"{folder}/", "").replace(f'"{folder}"', "its folder")
    return message


def record(error: BaseException, activity: str) -> str:
    """Write the traceback to the log and return the id of the log entry."""
    log_id = secrets.token_hex(3)
    log.error("%s: while %s", log_id, activity, exc_info=error)
    return log_id
