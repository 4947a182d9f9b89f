"""The explorer as an app for `panel serve apps/explorer.py`.

`make app` and `python -m gpexplorer serve` start the same page and are the safer way: they listen on this machine
only. `panel serve` listens on all networks unless it is given `--address localhost`; the app then refuses visitors
from other machines, unless `--allow-websocket-origin HOST:PORT` names a host that is not this machine.
"""

from __future__ import annotations

from gpexplorer.ui.server import panel_serve_app

panel_serve_app().servable()
