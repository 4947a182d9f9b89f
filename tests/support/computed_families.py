"""The families side by side, computed once for all tests of a process."""

from __future__ import annotations

from functools import cache

from gpexplorer.views.screens.side_by_side_page import family_of

family = cache(family_of)
