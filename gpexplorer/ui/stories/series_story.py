"""The story of a filter that walks along a series."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=snelson-like&data.n=100&"
SMOOTH = f"{ROWS}kernel=matern32&method=states&"

SERIES = Story(
    7,
    "series",
    "A filter walks along a series",
    (
        Part(
            "One row after the other",
            "The band knows the rows before each time only. It closes a little at every row. Move the place to walk "
            "along the series.",
            f"{SMOOTH}at=0&view=filter",
            "What happens to the band in the gap, where no row comes?",
            "It opens, as it does ahead of the last row seen: without rows, the future returns to the prior.",
        ),
        Part(
            "Learning by walking",
            "A walk from the first row to the last gives the likelihood of all rows. Its value is 45.8 at the start.",
            f"{SMOOTH}at=1&view=filter",
            "Where does it end, when hyperparameters are learned?",
            "At -10.5, after twelve evaluations.",
            f"{SMOOTH}at=12&view=filter",
        ),
        Part(
            "Is it an approximation?",
            "The state is the function with its slope. All that earlier rows say about later ones goes through these "
            "two numbers.",
            f"{SMOOTH}at=12&view=fit",
            "The full GP computes with a matrix of 90 rows. What objective does it reach?",
            "The same to all digits, -10.5. A walk is the full GP for this kernel, and its time grows with the rows.",
            f"{ROWS}kernel=matern32&method=ml&at=12&view=fit",
        ),
        Part(
            "A rougher function",
            "A Matern kernel of order 1/2 has no slope, and its state is one number.",
            f"{ROWS}kernel=matern12&method=states&at=0&view=filter",
            "Does the band open more slowly or faster between rows?",
            "Faster at first, since nothing is known about the direction. The objective ends at -6.4, four nat worse.",
            f"{ROWS}kernel=matern12&method=states&at=13&view=filter",
        ),
        Part(
            "A trap: the band that knew the future",
            "In the usual picture each place is predicted from all rows, those behind it and those ahead.",
            f"{SMOOTH}at=12&view=fit",
            "Would this band have been right for a forecast made in the gap?",
            "No: it was closed by rows that came later. A forecast is judged by the band of the filter, which is wider "
            "there. The page now shows it.",
            f"{SMOOTH}at=12&view=filter",
        ),
    ),
)
