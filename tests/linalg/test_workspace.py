"""One buffer serves matrix after matrix, and never two at once."""

from __future__ import annotations

import pickle
import weakref

import pytest
import torch
from torch import Tensor

from gpexplorer.linalg.workspace import Workspace


class Owner:
    pass


def test_a_buffer_is_used_again_after_its_owner_is_deleted_and_not_before():
    room, like, first, second = Workspace(1e6), torch.zeros(1), Owner(), Owner()
    first_matrix, second_matrix = room.matrix(first, 4, 3, like), room.matrix(second, 4, 3, like)
    assert first_matrix.data_ptr() != second_matrix.data_ptr()
    assert first_matrix.shape == (4, 3)
    at = first_matrix.data_ptr()
    del first, first_matrix
    third = Owner()
    smaller = room.matrix(third, 2, 5, like)
    assert smaller.data_ptr() == at
    assert smaller.shape == (2, 5)


def test_another_precision_or_a_larger_matrix_gets_a_new_buffer():
    room, first = Workspace(1e6), Owner()
    at = room.matrix(first, 4, 3, torch.zeros(1)).data_ptr()
    del first
    second, third = Owner(), Owner()
    assert room.matrix(second, 4, 3, torch.zeros(1).double()).dtype == torch.float64
    assert room.matrix(third, 40, 30, torch.zeros(1)).data_ptr() != at


@pytest.mark.parametrize("capturing", [True, False])
def test_a_buffer_in_a_graph_is_kept_when_a_larger_one_takes_its_place(
    capturing: bool, monkeypatch: pytest.MonkeyPatch
):
    made = list["weakref.ref[Tensor]"]()

    class OnCard(Tensor):
        is_cuda = True  # type: ignore[assignment]

        def new_empty(self, size: int) -> Tensor:  # type: ignore[override]
            made.append(weakref.ref(buffer := torch.empty(size)))
            return buffer

    like = torch.zeros(1).as_subclass(OnCard)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: capturing)
    room, first, second = Workspace(1e6), Owner(), Owner()
    room.matrix(first, 4, 3, like)
    del first
    room.matrix(second, 40, 30, like)
    assert (made[0]() is not None) == capturing


def test_a_pickled_workspace_contains_no_buffers():
    room, owner = Workspace(5e5), Owner()
    room.matrix(owner, 300, 300, torch.zeros(1))
    del owner
    sent = pickle.dumps(room)
    assert len(sent) < 1000
    assert pickle.loads(sent).budget == 5e5
