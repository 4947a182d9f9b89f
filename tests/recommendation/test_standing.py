"""A Gaussian process that is preferred though another one has a lower NLPD is never called the best one."""

from __future__ import annotations

import numpy as np
import pytest

from gpexplorer.recommendation import result
from gpexplorer.recommendation.averaging import Average
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane, chosen
from gpexplorer.recommendation.result import BEST, CHOSEN, PREFERRED, standing_of, table, why_not
from gpexplorer.views.runs.comparison_charts import CandidateScores

NOISE = np.random.default_rng(4).normal(size=120)


def lane(name: str, sd: float, targets: np.ndarray = NOISE) -> Lane:
    """A lane whose predictions of these targets have the mean 0 and this standard deviation."""
    scores = RowScores.of(targets, np.zeros(len(targets)), np.full(len(targets), sd**2))
    return Lane(Candidate(name, "exact", "ml", "se"), 0, 1e9, rows=200, scores=scores)


FIRST, LOWER, WORSE = lane("first", 1.05), lane("lower", float(NOISE.std())), lane("worse", 3.0)


def test_the_chosen_lane_is_the_best_one_or_preferred_within_a_standard_error_of_it() -> None:
    assert chosen([LOWER, FIRST, WORSE], [FIRST, LOWER, WORSE]) is FIRST
    assert standing_of(FIRST, [FIRST, LOWER, WORSE]) == PREFERRED
    assert standing_of(FIRST, [FIRST, WORSE]) == BEST
    assert standing_of(LOWER, [FIRST, LOWER, WORSE]) == BEST
    assert standing_of(WORSE, [FIRST, LOWER, WORSE]) == CHOSEN  # by a search that was cancelled
    few = lane("few", 0.1, 0.1 * NOISE[:40])
    assert few.known_scores.nlpd < FIRST.known_scores.nlpd
    assert standing_of(FIRST, [few, FIRST]) == BEST  # its score is that of other rows


def test_the_difference_has_its_sign_and_its_standard_error() -> None:
    difference = LOWER.known_scores.density - FIRST.known_scores.density
    assert difference.mean() < 0.0
    size, error = abs(difference.mean()), difference.std() / np.sqrt(120)
    assert why_not(LOWER, FIRST) == (
        f"Its NLPD, {LOWER.known_scores.nlpd:.3g}, is lower by {size:.2g} nats than that of first, with a standard "
        f"error of {error:.1g}: these rows cannot tell the two apart, and first is preferred, because it suits more "
        "data sets."
    )
    assert f"is higher by {size:.2g} nats than that of lower, with" in why_not(FIRST, LOWER)
    assert "apart" not in why_not(WORSE, FIRST)


@pytest.mark.parametrize(("winner", "label"), [(FIRST, PREFERRED), (LOWER, BEST)])
def test_the_table_the_picture_and_the_sentences_say_the_same(winner: Lane, label: str) -> None:
    lanes = [FIRST, LOWER, WORSE]
    scores = winner.known_scores
    average = Average({"first": 0.6, "lower": 0.4}, None, {}, (0.0, 0.1), scores, (None, None))  # type: ignore[arg-type]
    of_average = table(lanes, winner, {}, average)
    assert of_average.set_index("model").loc[winner.name, "sentence"] == f"The {label}."
    assert CandidateScores(of_average).data()[label]["model"].tolist() == [winner.name]

    alone = table(lanes, winner, {}).set_index("model").loc[winner.name, "sentence"]
    assert alone == ("The answer." if label == BEST else f"The answer, the {PREFERRED}.")
    assert CandidateScores(table(lanes, winner, {})).data()["the answer"]["model"].tolist() == [winner.name]

    assert f"the {label} is {winner.name}: " in " ".join(result._heading(winner, average, label))
    other = LOWER if winner is FIRST else FIRST
    place = result._place_of(other, winner, average)
    assert place == ("The Gaussian process with the lowest NLPD" if label == PREFERRED else
                     "The runner-up among the Gaussian processes")  # fmt: skip
    assert result._place_of(WORSE, winner, None) == "The runner-up"
