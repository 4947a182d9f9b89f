"""Kernel, method, its settings, seed, split, precision and budget: the half of a spec that is chosen by widgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui
import torch

from ...methods.base import registry
from ...runs import Spec
from .kernel_builder import KernelPicker
from .method_settings import SIZE, Settings

STEPS = 300  # to pause after, where a spec does not say
FAMILIES = {
    "inducing": "Inducing points", "exact": "The full GP", "eigenfunctions": "Eigenfunctions",
    "cross_validation": "Hyperparameters of an exact GP", "minibatches": "Minibatches",
}  # fmt: skip


class Controls(pn.viewable.Viewer):
    """`changed` is called with no argument after a person chose something else; `asked` says what."""

    def __init__(self, spec: Spec, changed: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._tell, self._quiet = changed, False
        self.method = pmui.Select(
            label="Method", groups=by_family(), value=spec.method, searchable=True, **SIZE,
            description="Five families and their rivals, all run step by step on the same rows.",
        )  # fmt: skip
        self.kernel = KernelPicker(_kernel(spec), self._changed)
        self.seed = pmui.IntInput(
            label="Seed", value=spec.seed, start=0, description="The same seed gives the same steps.", **SIZE
        )
        self.split = pmui.IntInput(
            label="Split", value=_split(spec), start=0, description="Which rows are held out for the test scores.",
            **SIZE,
        )  # fmt: skip
        self.budget = pmui.IntInput(
            label="Pause after (steps)", value=spec.budget.get("steps", STEPS), start=1, step=100,
            description="The run pauses after so many steps; Play goes on as long again.", **SIZE,
        )  # fmt: skip
        self.dtype = pmui.Select(
            label="Precision", options=["float64", "float32"], value=spec.dtype, **SIZE,
            description="Half the bytes go twice as fast, where rounding does no harm.",
        )  # fmt: skip
        devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        self.device = pmui.Select(
            label="Computed on", options=list(dict.fromkeys([*devices, spec.device])), value=spec.device, **SIZE
        )
        self.settings = Settings(registry[spec.method], spec.settings, self._changed)
        self.kernel.disabled = registry[spec.method].own_kernel
        self._place = pn.Column(self.settings, sizing_mode="stretch_width", margin=0)
        self.method.param.watch(self._choose_method, "value")
        for widget in (self.seed, self.split, self.budget, self.dtype, self.device):
            widget.param.watch(lambda _: self._changed(), "value")
        pair = {"sizing_mode": "stretch_width", "margin": 0}
        self._layout = pn.Column(
            self.kernel, self.method, self._place, self.budget, pn.Row(self.seed, self.split, **pair),
            pn.Row(self.dtype, self.device, **pair), sizing_mode="stretch_width", margin=0,
        )  # fmt: skip

    def asked(self, spec: Spec) -> Spec:
        """This spec with what the widgets hold; SettingError where they hold what cannot be."""
        return replace(
            spec,
            method=self.method.value,
            settings=self.settings.values,
            split=self.split.value,
            kernel=self.kernel.value,
            seed=self.seed.value,
            budget={"steps": self.budget.value},
            dtype=self.dtype.value,
            device=self.device.value,
        )

    def adopt(self, spec: Spec) -> None:
        """Let the widgets hold this spec; nobody is told."""
        with self._silent():
            self.kernel.adopt(_kernel(spec))
            self.method.value, self.seed.value = spec.method, spec.seed
            self.split.value, self.budget.value = _split(spec), spec.budget.get("steps", STEPS)
            self.dtype.value, self.device.value = spec.dtype, spec.device
            self._show_settings(spec)

    def _choose_method(self, event: Any) -> None:
        if not self._quiet:
            self._show_settings(Spec(event.new))
            self._changed()

    def _show_settings(self, spec: Spec) -> None:
        self.settings = Settings(registry[spec.method], spec.settings, self._changed)
        self._place[:] = [self.settings]
        self.kernel.disabled = registry[spec.method].own_kernel

    def _changed(self) -> None:
        if not self._quiet:
            self._tell()

    @contextmanager
    def _silent(self) -> Iterator[None]:
        self._quiet = True
        try:
            yield
        finally:
            self._quiet = False

    def __panel__(self) -> Any:
        return self._layout


def by_family() -> dict[str, dict[str, str]]:
    """Title -> key of every method, under the title of its family."""
    found: dict[str, dict[str, str]] = {}
    for key, kind in registry.items():
        found.setdefault(FAMILIES.get(kind.family, kind.family), {})[kind.title] = key
    order = list(FAMILIES.values())
    return dict(sorted(found.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _kernel(spec: Spec) -> str:
    return spec.kernel if isinstance(spec.kernel, str) else str(spec.kernel["name"])


def _split(spec: Spec) -> int:
    return spec.split if isinstance(spec.split, int) else 0
