"""The panels under the pictures, in their order.

Apart because the explorer is long and knows none of them by name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..session import Session
from .compare_panel import ComparePanel
from .predict_panel import PredictPanel
from .race_panel import RacePanel
from .scaling_panel import ScalingPanel
from .share_panel import SharePanel
from .study_panel import PanelAccordion, StudyPanel


def panels_below(
    session: Session, export: Callable[[str], str], options: Callable[[], dict[str, dict[str, Any]]]
) -> PanelAccordion:
    """Return the panels of a session, none of which is built before it is opened.

    Parameters
    ----------
    session : Session
        The session.
    export : callable
        Returns the pictures on the screen as HTML, with a note.
    options : callable
        Returns the options of these pictures.
    """
    builders: dict[str, Callable[[], StudyPanel]] = {
        "Compare: runs you keep, sweeps, the front of time and error": lambda: ComparePanel(session),
        "Race: several methods on these rows, in turns": lambda: RacePanel(session),
        "Predict: new rows by the run on the screen": lambda: PredictPanel(session),
        "Scaling: what would more rows cost?": lambda: ScalingPanel(session),
        "Link, code and files": lambda: SharePanel(session, export, options),
    }
    return PanelAccordion(builders)
