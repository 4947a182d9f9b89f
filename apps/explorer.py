"""The explorer as an app: `make app`, or `panel serve apps/explorer.py`."""

from __future__ import annotations

from gpexplorer.ui import app

app().servable()
