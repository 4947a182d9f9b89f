"""The fields of a spec, for the modules that `spec` imports.

`Spec.open` makes a run, so `spec` imports `opening` and `run`. They name a spec by this protocol and not by its class:
otherwise the three modules would import one another in a circle.
"""

from __future__ import annotations

from typing import Any, ClassVar, Protocol


class Description(Protocol):
    """The fields of a `Spec` as a run knows them. `spec.Spec` is the one class that has them."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def method(self) -> str: ...
    @property
    def settings(self) -> dict[str, Any]: ...
    @property
    def data(self) -> str | dict[str, Any]: ...
    @property
    def split(self) -> int | dict[str, Any]: ...
    @property
    def kernel(self) -> str | dict[str, Any]: ...
    @property
    def seed(self) -> int: ...
    @property
    def device(self) -> str: ...
    @property
    def dtype(self) -> str: ...
    @property
    def budget(self) -> dict[str, Any]: ...
    @property
    def target_transform(self) -> str: ...
    @property
    def input_transform(self) -> str: ...

    def key(self) -> str:
        """The name of the run."""
