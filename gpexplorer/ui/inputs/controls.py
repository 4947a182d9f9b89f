"""The widgets for kernel, method, settings, seed, split, precision, device and budget of a spec."""

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

DEFAULT_STEPS = 300  # the run pauses after this many steps when the spec has no budget
FAMILIES = {
    "inducing": "Inducing points", "exact": "The full GP", "eigenfunctions": "Eigenfunctions",
    "cross_validation": "Hyperparameters of an exact GP", "minibatches": "Minibatches",
}  # fmt: skip


class Controls(pn.viewable.Viewer):
    """All widgets of the sidebar except data and presets.

    Parameters
    ----------
    spec : the spec that the widgets show first.
    on_change : called without arguments after a person changed a widget; `apply_to` then returns the new spec.
    """

    def __init__(self, spec: Spec, on_change: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._on_change, self._silent = on_change, False
        self.method = pmui.Select(
            label="Method", groups=by_family(), value=spec.method, searchable=True, **SIZE,
            description="Five families and their baselines; all of them run step by step on the same rows.",
        )  # fmt: skip
        self.kernel = KernelPicker(_kernel(spec), self._report)
        self.seed = pmui.IntInput(
            label="Seed", value=spec.seed, start=0, **SIZE,
            description="Seed of all random choices. The same seed gives the same steps.",
        )  # fmt: skip
        self.split = pmui.IntInput(
            label="Split", value=_split(spec), start=0, **SIZE,
            description="Number of the split into training and test rows. Another split tests on other rows.",
        )  # fmt: skip
        self.budget = pmui.IntInput(
            label="Pause after (steps)", value=spec.budget.get("steps", DEFAULT_STEPS), start=1, step=100,
            description="Pause after this many steps. Press Play to continue for as many again.", **SIZE,
        )  # fmt: skip
        self.dtype = pmui.Select(
            label="Precision", options=["float64", "float32"], value=spec.dtype, **SIZE,
            description="float32 halves memory and roughly doubles speed; use float64 when the noise is small.",
        )  # fmt: skip
        devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
        self.device = pmui.Select(
            label="Device", options=list(dict.fromkeys([*devices, spec.device])), value=spec.device, **SIZE
        )
        self.settings = Settings(registry[spec.method], spec.settings, self._report)
        self.kernel.disabled = registry[spec.method].own_kernel
        self._place = pn.Column(self.settings, sizing_mode="stretch_width", margin=0)
        self.method.param.watch(self._choose_method, "value")
        for widget in (self.seed, self.split, self.budget, self.dtype, self.device):
            widget.param.watch(lambda _: self._report(), "value")
        pair = {"sizing_mode": "stretch_width", "margin": 0}
        self._layout = pn.Column(
            self.kernel, self.method, self._place, self.budget, pn.Row(self.seed, self.split, **pair),
            pn.Row(self.dtype, self.device, **pair), sizing_mode="stretch_width", margin=0,
        )  # fmt: skip

    def apply_to(self, spec: Spec) -> Spec:
        """Return a copy of `spec` with the values of the widgets; raises SettingError for values out of bounds."""
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
        """Show this spec in the widgets without calling `on_change`."""
        with self._without_report():
            self.kernel.adopt(_kernel(spec))
            self.method.value, self.seed.value = spec.method, spec.seed
            self.split.value, self.budget.value = _split(spec), spec.budget.get("steps", DEFAULT_STEPS)
            self.dtype.value, self.device.value = spec.dtype, spec.device
            self._show_settings(spec)

    def _choose_method(self, event: Any) -> None:
        if not self._silent:
            self._show_settings(Spec(event.new))
            self._report()

    def _show_settings(self, spec: Spec) -> None:
        self.settings = Settings(registry[spec.method], spec.settings, self._report)
        self._place[:] = [self.settings]
        self.kernel.disabled = registry[spec.method].own_kernel

    def _report(self) -> None:
        if not self._silent:
            self._on_change()

    @contextmanager
    def _without_report(self) -> Iterator[None]:
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def __panel__(self) -> Any:
        return self._layout


def by_family() -> dict[str, dict[str, str]]:
    """Return {family title: {method title: method key}} for the groups of the method selector."""
    groups: dict[str, dict[str, str]] = {}
    for key, method in registry.items():
        groups.setdefault(FAMILIES.get(method.family, method.family), {})[method.title] = key
    order = list(FAMILIES.values())
    return dict(sorted(groups.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _kernel(spec: Spec) -> str:
    return spec.kernel if isinstance(spec.kernel, str) else str(spec.kernel["name"])


def _split(spec: Spec) -> int:
    return spec.split if isinstance(spec.split, int) else 0
