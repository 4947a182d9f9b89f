"""An exception as one sentence for the page: ours as written, any other as constant text with an id in the log."""

from __future__ import annotations

import logging
import secrets

from ...errors import GPExplorerError
from ...runs.outcomes import WAY_OUT, is_memory

log = logging.getLogger("gpexplorer.ui")


def sentence(error: BaseException, doing: str) -> str:
    """What to show after `error` came while `doing` this; plain text, still to be escaped."""
    if isinstance(error, GPExplorerError):
        return str(error)
    number = record(error, doing)
    if is_memory(error):
        return f"Memory ran out while {doing}: {WAY_OUT}. The log has it as {number}."
    return (
        f"Something unexpected went wrong while {doing}. The log has it as {number}; reset, or choose other settings."
    )


def record(error: BaseException, doing: str) -> str:
    """Write the trace to the log; returns the id under which it is found there."""
    number = secrets.token_hex(3)
    log.error("%s: while %s", number, doing, exc_info=error)
    return number
