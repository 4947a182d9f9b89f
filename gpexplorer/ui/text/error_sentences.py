"""Exceptions as sentences for the page.

Errors of this package are shown as written. Any other exception becomes constant text with an id that finds its
traceback in the log.
"""

from __future__ import annotations

import logging
import secrets

from ...errors import GPExplorerError
from ...runs.outcomes import WAY_OUT, is_memory

log = logging.getLogger("gpexplorer.ui")


def sentence(error: BaseException, activity: str) -> str:
    """Return the sentence to show for an exception, as plain text that still has to be escaped.

    Parameters
    ----------
    error : the exception.
    activity : what was going on, as the rest of a sentence that begins with "while", such as "the file was being read".
    """
    if isinstance(error, GPExplorerError):
        return str(error)
    log_id = record(error, activity)
    if is_memory(error):
        return f"Memory ran out while {activity}: {WAY_OUT}. The log entry is {log_id}."
    return (
        f"Something unexpected went wrong while {activity}. The log entry is {log_id}. "
        "Press Reset, or choose other settings."
    )


def record(error: BaseException, activity: str) -> str:
    """Write the traceback to the log and return the id of the log entry."""
    log_id = secrets.token_hex(3)
    log.error("%s: while %s", log_id, activity, exc_info=error)
    return log_id
