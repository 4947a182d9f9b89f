"""The widgets for kernel, method, settings, budget, target, seed, split, precision and device of a spec."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import panel as pn
import torch

from ...methods.base import registry
from ...runs import Spec
from ...target_transforms import LOG, YEO_JOHNSON
from ..widgets import WIDE, column
from .field import Field
from .kernel_builder import KernelPicker
from .method_settings import Settings

DEFAULT_STEPS = 300  # the run pauses after this many steps when the spec has no budget
FAMILIES = {
    "inducing": "Inducing points",
    "exact": "The full GP",
    "eigenfunctions": "Eigenfunctions",
    "cross_validation": "Hyperparameters of an exact GP",
    "minibatches": "Minibatches",
}
PRECISIONS = {"64 bit": "float64", "32 bit": "float32"}
HINTS = {  # label of a field -> what it does
    "Seed": "Seed of all random choices. The same seed gives the same steps.",
    "Split": "Number of the split into training and test rows. Another split tests on other rows.",
    "Pause after": "Pause after this many steps. Press Play to continue for as many again.",
    "or after": "Pause after this many seconds on the clock, scoring and drawing included; 0 means no limit.",
    "Target": "Let the GP model the logarithm of the target (if all are above 0), or a power of it that the rows "
    "decide (Yeo-Johnson). Use this if the target is skewed, or if errors grow with it. Predictions return to the "
    "units of the target, and their bands are skewed too.",
    "Precision": "32 bit halves memory and roughly doubles speed; use 64 bit when the noise is small.",
}


class Controls(pn.viewable.Viewer):
    """All widgets of the sidebar except data and presets.

    Parameters
    ----------
    spec : Spec
        The spec that the widgets show first.
    on_change : callable
        Called without arguments after a person changed a widget; `apply_to` then returns the new spec.
    under_kernel : sequence, optional
        What stands under the kernel.
    """

    def __init__(
        self, spec: Spec, on_change: Callable[[], None], under_kernel: Sequence[Any] = (), **params: Any
    ) -> None:
        super().__init__(**params)
        self._on_change, self._silent, self._rows = on_change, False, 0
        hint = "Five families and their baselines; all of them run step by step on the same rows."
        self.method = Field("Method", spec.method, self._choose_method, by_family(), heading=True, hint=hint)
        self.kernel = KernelPicker(_kernel(spec), self._report)
        steps = {"unit": "steps", "heading": True}
        fields = {
            name: Field(label, value, self._report, choices, default=default, hint=HINTS.get(label, ""), **style)
            for name, label, value, default, choices, style in (
                ("seed", "Seed", spec.seed, 0, None, {}),
                ("split", "Split", _split(spec), 0, None, {}),
                ("budget", "Pause after", spec.budget.get("steps", DEFAULT_STEPS), DEFAULT_STEPS, None, steps),
                ("seconds", "or after", float(spec.budget.get("seconds", 0.0)), 0.0, None, {"unit": "s"}),
                ("target", "Target", spec.target_transform, "", _transforms(spec.target_transform), {}),
                ("dtype", "Precision", spec.dtype, "float64", PRECISIONS, {}),
                ("device", "Device", spec.device, "cpu", _devices(spec.device), {}),
            )
        }
        self.seed, self.split, self.budget, self.seconds, self.target, self.dtype, self.device = fields.values()
        self.settings = Settings(registry[spec.method], spec.settings, self._report)
        self._under_kernel = column(*under_kernel, margin=0)
        self._show_kernel_of(spec.method)
        self._place = column(self.settings, margin=0)
        pairs = ((self.budget, self.seconds), (self.seed, self.split), (self.dtype, self.device))
        budget, seeds, machine = (pn.Row(*pair, **WIDE, margin=0) for pair in pairs)
        self._layout = column(
            self.kernel, self._under_kernel, self.method, self._place, budget, self.target, seeds, machine, margin=0
        )

    def apply_to(self, spec: Spec) -> Spec:
        """Return a copy of `spec` with the values of the widgets; raises SettingError for values out of bounds."""
        return replace(
            spec,
            method=self.method.value,
            settings=self.settings.values,
            split=self.split.value,
            kernel=spec.kernel if self.kernel.value == _kernel(spec) else self.kernel.value,
            seed=self.seed.value,
            budget={"steps": self.budget.value} | ({"seconds": self.seconds.value} if self.seconds.value else {}),
            dtype=self.dtype.value,
            device=self.device.value,
            target_transform=self.target.value,
        )

    def adopt(self, spec: Spec) -> None:
        """Show this spec in the widgets without calling `on_change`."""
        with self._without_report():
            self.kernel.adopt(_kernel(spec))
            self.method.value, self.seed.value = spec.method, spec.seed
            self.split.value, self.budget.value = _split(spec), spec.budget.get("steps", DEFAULT_STEPS)
            self.seconds.value = float(spec.budget.get("seconds", 0.0))
            self.dtype.value = spec.dtype
            self.target.choose_from(_transforms(spec.target_transform), spec.target_transform)
            self.device.choose_from(_devices(spec.device), spec.device)
            self._show_settings(spec)

    def describe(self, rows: int) -> None:
        """Show what the settings that follow the number of training rows are for so many rows."""
        if rows != self._rows:
            self._rows = rows
            self.settings.describe(rows)

    def _choose_method(self) -> None:
        self._show_settings(Spec(self.method.value))
        self._report()

    def _show_settings(self, spec: Spec) -> None:
        self.settings = Settings(registry[spec.method], spec.settings, self._report, self._rows)
        self._place[:] = [self.settings]
        self._show_kernel_of(spec.method)

    def _show_kernel_of(self, method: str) -> None:
        """A method with features of its own has no kernel to choose, and no hyperparameters of one."""
        self.kernel.disabled = registry[method].own_kernel
        self._under_kernel.visible = not registry[method].own_kernel

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


def _transforms(chosen: str) -> dict[str, str]:
    """Return {label: target_transform} of the usual transforms, and of the one that a spec names."""
    transforms = {"as it is": "", "logarithm": LOG, "Yeo-Johnson": YEO_JOHNSON}
    if chosen not in transforms.values():
        transforms[chosen.replace(YEO_JOHNSON, "Yeo-Johnson")] = chosen  # with its power
    return transforms


def _devices(chosen: str) -> dict[str, str]:
    """Return {label: device} of what this machine has, and of the device that a spec names."""
    devices = ["cpu", *(["cuda"] if torch.cuda.is_available() else []), chosen]
    return {_device_label(device): device for device in devices}


def _device_label(device: str) -> str:
    """Return what the page calls a device: a GPU that is here has a name and a memory."""
    if device == "cpu":
        return "processor"
    number = int(device.partition(":")[2] or 0)
    if not torch.cuda.is_available() or number >= torch.cuda.device_count():
        return f"{device} (not here)"
    card = torch.cuda.get_device_properties(number)
    return f"{device}: {card.name}, {card.total_memory / 1e9:.0f} GB"
