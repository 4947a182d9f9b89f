"""The families side by side, computed once for all tests of a process."""

from __future__ import annotations

from functools import cache

from gpexplorer.views.side_by_side.family_frames import family_of

family = cache(family_of)
