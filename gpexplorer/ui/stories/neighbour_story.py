"""The story of rows that depend on their nearest rows only."""

from __future__ import annotations

from .story import Part, Story

ROWS = "v=1&data=sin-product&data.n=600&kernel=matern32&"
FEW, MORE = "set.num_neighbours=1&set.num_nearest=1&", "set.num_neighbours=10&set.num_nearest=30&"

NEIGHBOURS = Story(
    6,
    "neighbours",
    "A map, and the rows around each row",
    (
        Part(
            "An order that covers the map first",
            "The rows stand in an order: the first are far apart, the last fill in. Each depends on the ten nearest of "
            "those before it. Move the place in the order and see whom a row leans on.",
            f"{ROWS}method=vecchia&{MORE}at=1&view=near-rows",
        ),
        Part(
            "Nothing left to say",
            "A dot says how uncertain a row is after its neighbours, noise included. The dashed line is the noise.",
            f"{ROWS}method=vecchia&{MORE}at=1&view=near-rows-sd",
            "What would a row far away add to the last rows of the order?",
            "Little: their neighbours have said nearly all that can be known, so that the rest may be left out.",
        ),
        Part(
            "Learning from small matrices",
            "The likelihood is made of small matrices, 11 by 11, in place of one with 540 rows.",
            f"{ROWS}method=vecchia&{MORE}at=0&view=fit",
            "How far from the full GP does it end, whose test error is .267?",
            "It reaches .273.",
            f"{ROWS}method=vecchia&{MORE}at=18&view=fit",
        ),
        Part(
            "The full GP",
            "This is the answer with all rows, 540 by 540.",
            f"{ROWS}method=ml&at=0&view=fit",
            "Its NLPD is .298. What does each of its bands gain over thirty nearest rows?",
            "About .01 nat: the other NLPD is .310. With a million rows the matrix does not exist, and neighbours take "
            "two minutes.",
            f"{ROWS}method=ml&at=17&view=fit",
        ),
        Part(
            "A trap: too few neighbours",
            "One neighbour is the cheapest of all, and learning converges without a complaint.",
            f"{ROWS}method=vecchia&{FEW}at=0&view=fit",
            "What does the map look like that is predicted from the nearest row alone?",
            "A patchwork: it jumps where the nearest row is another one, and the test error is .43 in place of .27. "
            "Edges in a picture where the data have none are the sign. Raise the neighbours.",
            f"{ROWS}method=vecchia&{FEW}at=15&view=fit",
        ),
    ),
)
