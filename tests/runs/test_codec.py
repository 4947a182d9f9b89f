"""Steps survive being written as text, and text that is no step of the method is refused."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

from gpexplorer.errors import StoreError
from gpexplorer.methods.base import registry
from gpexplorer.problem import Step
from gpexplorer.runs.storage import codec
from toy_method import Place, State, Toy, same


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.int64, torch.bool, torch.uint8])
def test_steps_survive_text(dtype: torch.dtype):
    odd = torch.tensor([[0, 1], [1, 0]]).to(dtype).T  # not contiguous
    state = State(3, odd, torch.tensor(math.nan), Place(odd[:1], None), (-math.inf, True))
    step = Step(state, state.place)

    line = json.loads(json.dumps(codec.encode(step), allow_nan=False))
    back = codec.decode(line, codec.classes_of(Toy))

    assert same(back.info, step.info)
    assert same(back.state._replace(theta=0), state._replace(theta=0))
    assert torch.isnan(back.state.theta)


def test_steps_of_earlier_versions_are_read_which_name_every_state_the_same():
    method = registry["gbcd"]
    state = method.State(torch.ones(3), torch.ones(4), torch.zeros(0), step=1, phase="solve", position=2)
    line = codec.encode(Step(state, method.Info("solve")))
    for part, name in (("state", "State"), ("info", "Info")):
        line[part]["named"] = name

    back = codec.decode(line, codec.classes_of(method))

    assert type(back.state) is method.State
    assert type(back.info) is method.Info
    assert same(back.state, state)


@pytest.mark.parametrize(
    "line",
    [
        {},
        {"state": {"named": "Path", "fields": {}}, "info": None, "tensors": ""},
        {"state": {"named": "State", "fields": {"step": 1}}, "info": None, "tensors": "AAAA"},
        {"state": {"tensor": 9}, "info": None, "tensors": codec.encode(Step(torch.zeros(1), None))["tensors"]},
        {"state": {"odd": 1}, "info": None, "tensors": codec.encode(Step(1, None))["tensors"]},
    ],
)
def test_a_line_that_is_no_step_of_the_method_is_refused(line: dict[str, Any]):
    with pytest.raises(StoreError, match="does not fit its method"):
        codec.decode(line, codec.classes_of(Toy))


def test_a_step_that_cannot_be_stored_says_what_it_holds():
    with pytest.raises(StoreError, match="A step holds a dict, which cannot be stored"):
        codec.encode(Step({"a": 1}, None))
