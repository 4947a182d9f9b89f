"""Kernels put together by clicks: whatever is clicked, the text is a kernel, and any kernel's text can be shown."""

from __future__ import annotations

import pytest

from gpexplorer import Spec, kernels
from gpexplorer.kernels.base import registry
from gpexplorer.ui.inputs.controls import MAX_PARTS, Controls, KernelPicker, parts


@pytest.mark.parametrize("text", ["se", "se-ard*periodic+linear", "se*(linear+periodic)+lp", "(se+lp)*rq"])
def test_any_kernel_is_shown_as_it_is(text: str):
    calls: list[int] = []

    picker = KernelPicker(text, lambda: calls.append(1))

    assert picker.value == kernels.make(text).key
    assert "".join(sign + key for sign, key in parts(text)) == text
    assert calls == []


def test_parts_are_added_changed_and_taken_out():
    calls: list[str] = []
    picker = KernelPicker("se", lambda: calls.append(picker.value))

    picker.add.clicks += 1
    signs, keys, out = picker._rows[1]
    signs.enter("*")
    _, keys, out = picker._rows[1]
    keys.enter("linear")
    picker.add.clicks += 1
    _, _, out = picker._rows[1]
    out.clicks += 1

    assert calls == ["se+periodic", "se*periodic", "se*linear", "se*linear+periodic", "se+periodic"]


def test_widgets_that_show_a_kernel_already_stay_and_those_of_another_are_made_anew():
    """A click on a widget that is replaced between press and release is lost."""
    picker = KernelPicker("se+linear", lambda: None)
    before = list(picker._rows)

    picker.adopt("se+linear")
    picker.disable(False)
    assert all(old is new for old, new in zip(before, picker._rows, strict=True))
    picker.adopt("se*linear")
    assert picker._rows[1][0].value == "*"
    picker.disable(True)
    assert (picker._rows[0].disabled, picker.add.visible) == (True, False)


def test_what_a_browser_may_not_send_changes_nothing():
    picker = KernelPicker("se+linear", lambda: None)

    signs, keys, _ = picker._rows[1]
    for field in (picker._rows[0], signs, keys):
        for sent in ("^", "se); drop", -1, 1000, 0.5, None):
            field._handle_msg(sent)

    assert picker.value == "se+linear"


def test_there_are_never_too_many_nor_of_other_inputs():
    picker = KernelPicker("se", lambda: None)
    for _ in range(MAX_PARTS + 3):
        picker._append()
    assert len(picker.parts) == MAX_PARTS
    kernels.make(picker.value)

    picker._rows[0].enter("tanimoto")
    assert picker.value == "tanimoto"
    assert {registry[key].inputs for key in picker._compatible_keys()} == {"counts"}


def test_the_controls_ask_for_it():
    controls = Controls(Spec("cholqr", kernel="se"), lambda: None)
    controls.kernel._append()

    assert controls.apply_to(Spec("cholqr")).kernel == "se+periodic"
    controls.adopt(Spec("cholqr", kernel={"name": "rq*linear", "theta": [0.0] * 5}))
    assert controls.kernel.value == "rq*linear"
