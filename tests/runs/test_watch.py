"""A run that is watched: a callback per record, which may stop the run or fail."""

import pickle

import numpy as np
import pytest

from gpexplorer.errors import SettingError
from steps_of import small_spec


@pytest.mark.parametrize("answer", [bool, np.bool_])
def test_a_callback_sees_every_record_and_stops_the_run(answer):
    run, seen = small_spec("sgpr", d=2).open(), []

    def callback(record):
        seen.append(record.index)
        return answer(record.index == 3)

    outcome = run.finish(steps=10, callback=callback)
    assert seen == [0, 1, 2, 3]
    assert outcome.reason == "stopped"
    assert run.done == 3
    assert run.finish(steps=5).reason == "budget"
    assert seen[-1] == 3  # the callback ended with its call


def test_an_error_ends_the_run_with_a_sentence_and_keeps_its_steps():
    run = small_spec("gbcd", d=2).open()

    def callback(record):
        if record.index == 2:
            raise KeyError("secret")

    outcome = run.finish(steps=8, callback=callback)
    assert outcome.reason == "stopped"
    assert "KeyError after 2 steps" in outcome.message
    assert "secret" not in outcome.message
    assert isinstance(run.error, KeyError)
    assert run.done == 2
    run.finish(steps=6)
    assert (run.done, run.error) == (6, None)


def test_an_error_after_the_last_step_of_the_budget_is_named_as_well():
    run = small_spec("gbcd", d=2).open()
    outcome = run.finish(steps=2, callback=lambda record: 1 / (2 - record.index))
    assert "ZeroDivisionError after 2 steps" in outcome.message
    assert isinstance(run.error, ZeroDivisionError)
    assert run.finish(steps=2).reason == "budget"
    assert run.error is None  # it ended well without another step


def test_a_closed_run_says_that_it_is_closed_and_not_that_its_budget_is_used_up():
    run = small_spec("gbcd", d=2).open()
    run.finish(steps=2)
    run.close()
    assert run.finish(steps=5).message.startswith("The run is closed after 2 steps")
    assert run.done == 2
    assert run.fork().finish(steps=3).reason == "budget"


def test_watching_ends_and_time_in_it_is_not_counted():
    ticks = iter(range(10_000))
    run, seen = small_spec("sgpr", d=2).open(), []
    run._clock = lambda: float(next(ticks))

    def slow(record):
        for _ in range(100):
            next(ticks)
        seen.append(record)

    end = run.watch(slow)
    run.advance()
    end()
    end()
    run.advance()
    assert [record.index for record in seen] == [0]
    assert run.trace[-1].seconds == 2.0


def test_a_copy_is_not_watched():
    run, seen = small_spec("sgpr", d=2).open(), []
    run.watch(lambda record: seen.append(record.index))
    run.advance()
    copy = pickle.loads(pickle.dumps(run))
    copy.advance()
    assert seen == [0]
    assert copy.done == 1


def test_a_copy_of_a_run_that_is_closed_continues_by_itself():
    run = small_spec("sgpr", d=2).open()
    run.finish(steps=1)
    run.close()
    copy = pickle.loads(pickle.dumps(run))
    assert "budget of 2 steps" in copy.finish(steps=2).message
    assert copy.done == 2
    assert "The run is closed after 1 steps" in run.finish(steps=2).message


def test_only_functions_can_watch():
    with pytest.raises(SettingError, match="function of a record"):
        small_spec("sgpr", d=2).open().watch("print")
