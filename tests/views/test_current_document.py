"""One session that raises must not take drawing away from all others."""

from __future__ import annotations

import gc

import pytest
from bokeh.document import Document
from bokeh.document.callbacks import invoke_with_curdoc
from bokeh.io import curdoc

from gpexplorer import Spec, views
from gpexplorer.views.drawing.live import Live


def raise_in_a_session() -> None:
    """A callback that raises in a session which is over afterwards."""
    document = Document()

    def callback() -> None:
        raise ValueError("a value that the widget does not accept")

    with pytest.raises(ValueError, match="does not accept"):
        invoke_with_curdoc(document, callback)


def test_a_callback_that_raises_leaves_no_dead_document_behind():
    before = curdoc()

    raise_in_a_session()
    gc.collect()

    assert curdoc() is before


def test_drawing_does_not_use_the_current_document(monkeypatch: pytest.MonkeyPatch):
    run = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 40, "d": 1}, kernel="se").open()
    run.finish(steps=2)
    view = views.for_run(run)[0]
    monkeypatch.setattr("bokeh.io.doc._PATCHED_CURDOCS", [lambda: None])  # a reference to a document that is gone

    with pytest.raises(RuntimeError, match="destroyed"):
        curdoc()
    live = Live(view, view.data(run, 2))

    assert live.figure.renderers
    assert live.figure.document is None
