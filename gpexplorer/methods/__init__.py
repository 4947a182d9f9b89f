"""Every registered method by its key: `gpexplorer.methods["cholqr"]`.

All modules of this package but `LATER` are imported, and a class with a `key` registers itself, so a new method is one
new file.
The module object is itself a mapping, so that `gpx.methods` is both the package and the table of its contents.
"""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType

from ..errors import SettingError, closest
from .base import Method, registry

__all__ = ["Method"]

LATER = (f"{__name__}.inducing.swapping.compiled_try",)  # imports Numba, an extra that takes most of a second

for _module in pkgutil.walk_packages(__path__, prefix=f"{__name__}."):
    if _module.name not in LATER:
        importlib.import_module(_module.name)


class _Catalogue(ModuleType, Mapping[str, type[Method]]):
    """This package, as a mapping from key to class in alphabetical order."""

    def __getitem__(self, key: str) -> type[Method]:
        if key not in self:
            raise SettingError(f"Method {key!r} is not known{closest(key, registry)}")
        return registry[key]

    def __contains__(self, key: object) -> bool:
        return isinstance(key, str) and key in registry

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(registry))

    def __len__(self) -> int:
        return len(registry)

    __hash__ = ModuleType.__hash__
    __eq__ = ModuleType.__eq__


sys.modules[__name__].__class__ = _Catalogue
