"""The sidebar: data, kernel, method, run and machine, each under a heading that says what is chosen."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui
import torch

from ...kernels.base import registry as kernel_registry
from ...kernels.composites import TOKEN
from ...methods.base import registry
from ...runs import Spec
from ...runs.spec import in_words
from ...target_transforms import LOG, YEO_JOHNSON
from ..text import text
from ..widgets import WIDE, WithLayout, button, column, line_of_text
from .data_source import DataSource
from .field import Field
from .method_settings import Settings

MAX_PARTS = 5
HINT = "The covariance of f at two inputs. Kernels that end in “-ard” have one lengthscale per input."
SIGNS = {"+": "+", "×": "*"}
Parts = list[tuple[str, str]]  # (sign, kernel key or sum in parentheses); the first part has the sign ""


class KernelPicker(WithLayout):
    """A kernel as a list of parts with a sign each; its text is in `value` and is always a valid kernel.

    Parameters
    ----------
    kernel : str
        Text of the kernel that is shown first, such as "se * periodic + linear".
    on_change : callable
        Called without arguments after a person chose another kernel.
    """

    def __init__(self, kernel: str, on_change: Callable[[], None]) -> None:
        self._on_change, self._disabled = on_change, False
        self.parts: Parts = []
        self._fields: list[Any] = []  # the kernel of the first part, and a row with the controls of each other one
        self._rows = pn.Column(sizing_mode="stretch_width", margin=0)
        look = {"variant": "text", "size": "small", "margin": (0, 4)}
        self.add = button("Combine with another kernel", "add", self._append, **look)
        self.message = line_of_text(margin=(0, 14))
        self._layout = column(self._rows, self.message, self.add, margin=0)
        self.adopt(kernel)

    @property
    def value(self) -> str:
        """The text of the kernel, as `kernels.make` reads it."""
        return "".join(f"{sign}{key}" for sign, key in self.parts)

    def disable(self, disabled: bool) -> None:
        """Disable the widgets, because the method has a kernel of its own, or enable them again."""
        if disabled != self._disabled:
            self._disabled = disabled
            self._rebuild()

    def adopt(self, kernel: str) -> None:
        """Show this kernel without calling `on_change`; widgets that show it already stay, and keep a click."""
        if self.parts != (new_parts := parts(kernel)):
            self.parts = new_parts
            self._rebuild()

    def _append(self) -> None:
        if len(self.parts) < MAX_PARTS:
            self._set([*self.parts, ("+", self._compatible_keys()[0])])

    def _set(self, new_parts: Parts) -> None:
        self.parts = new_parts
        self._rebuild()
        self._on_change()

    def _compatible_keys(self) -> list[str]:
        """Keys of the kernels with the same kind of inputs as the first part, the periodic kernel first."""
        input_kind = _inputs(self.parts[0][1])
        keys = [key for key in sorted(kernel_registry) if kernel_registry[key].inputs == input_kind]
        return sorted(keys, key=lambda key: key != "periodic")

    def _rebuild(self) -> None:
        key, look = self.parts[0][1], {"disabled": self._disabled, "bare": True, "hint": HINT}
        first = Field("Kernel", key, self._read, _options(sorted(kernel_registry), key), **look)
        self._fields = [first, *(self._row(k) for k in range(1, len(self.parts)))]
        self._rows[:] = self._fields
        self.add.visible = len(self.parts) < MAX_PARTS and not self._disabled
        self.message.object = f'<span style="font-size:12px;opacity:.75">k = {text(_written(self.value))}</span>'
        self.message.visible = len(self.parts) > 1

    def _row(self, k: int) -> Any:
        """The controls of part k: sign, kernel, and a button that removes it."""
        sign, key = self.parts[k]
        look = {"disabled": self._disabled, "width": 64, "sizing_mode": None, "margin": (3, 0, 3, 12)}
        signs = Field("Sign", sign, self._read, SIGNS, **look)
        options, narrow = _options(self._compatible_keys(), key), {"disabled": self._disabled, "margin": (3, 6)}
        keys = Field(f"Kernel {k + 1}", key, self._read, options, **narrow)
        remove = pmui.IconButton(
            icon="close",
            description=f"Remove kernel {k + 1}",
            size="small",
            disabled=self._disabled,
            margin=(20, 8, 0, 0),
            on_click=lambda _: self._set(self.parts[:k] + self.parts[k + 1 :]),
        )
        return pn.Row(signs, keys, remove, sizing_mode="stretch_width", margin=0)

    def _read(self) -> None:
        """Take the signs and keys that the fields show."""
        first, *rows = self._fields
        new_parts = [("", first.value), *((signs.value, keys.value) for signs, keys, _ in rows)]
        if _inputs(first.value) != _inputs(self.parts[0][1]):
            new_parts = new_parts[:1]  # the other parts need another kind of inputs
        self._set(new_parts)


def _written(kernel: str) -> str:
    return kernel.replace("*", " × ").replace("+", " + ")


def parts(kernel: str) -> Parts:
    """Split the text of a kernel at the signs outside parentheses and outside the brackets of column names."""
    result, depth = [("", "")], 0
    for token in re.findall(TOKEN, kernel):
        if token in "+*" and depth == 0:
            result.append((token, ""))
        else:
            depth += {"(": 1, ")": -1}.get(token, 0)
            result[-1] = result[-1][0], result[-1][1] + token
    return result


def _inputs(key: str) -> str:
    """The kind of inputs of a part; for a sum in parentheses, that of its first kernel."""
    first = parts(key.strip("()"))[0][1].strip("()")
    return kernel_registry[first.partition("[")[0]].inputs


def _options(keys: list[str], current: str) -> dict[str, str]:
    """Return {title: key} for a selector, with the current part added when it is a sum in parentheses."""
    options = {f"{kernel_registry[key].title} ({key})": key for key in keys}
    return options | ({} if current in options.values() else {current: current})


DEFAULT_STEPS = 300  # that a reset of "Pause after" restores
FAMILIES = {
    "inducing": "Inducing points",
    "exact": "The full GP",
    "eigenfunctions": "Eigenfunctions",
    "cross_validation": "Hyperparameters of an exact GP",
    "minibatches": "Minibatches",
    "neighbours": "Nearest rows and series",
}
PRECISIONS = {"64 bit": "float64", "32 bit": "float32"}
HEADING = """
:host > div { display: flex; justify-content: space-between; align-items: baseline; gap: 12px; width: 100%; }
b { font-size: 13.5px; font-weight: 650; }
span { font-size: 12.5px; opacity: .75; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
"""
SECTIONS = {
    "&": {"borderTop": "1px solid rgba(127, 140, 153, .35)"},
    "&::before": {"display": "none"},
    "& > h3 > .MuiAccordionSummary-root": {"minHeight": "40px !important", "padding": "0 12px"},
    "& > h3 .MuiAccordionSummary-content": {"margin": "0 !important", "minWidth": 0},
    "& .MuiAccordionDetails-root": {"padding": "0 0 8px"},
}
HINTS = {  # label of a field -> what it does
    "Seed": "Seed of all random choices. The same seed gives the same steps.",
    "Split": "Number of the split into training and test rows. Another split tests on other rows. "
    "Empty for a split of another kind, such as a share of the rows, which the heading names.",
    "Pause after": "Pause after this many steps. Press Play to continue for as many again; 0 means no limit.",
    "or after": "Pause after this many seconds on the clock, scoring and drawing included; 0 means no limit.",
    "Target": "Let the GP model the logarithm of the target (if all are above 0), or a power of it that the rows "
    "decide (Yeo-Johnson). Use this if the target is skewed, or if errors grow with it. Predictions return to the "
    "units of the target, and their bands are skewed too.",
    "Precision": "32 bit halves memory and roughly doubles speed; use 64 bit when the noise is small.",
}


class Sections(WithLayout):
    """Parts of the sidebar under a heading each. One is unfolded; the headings of the others say what is chosen there.

    Parameters
    ----------
    parts : dict
        {heading: what is under it}.
    unfolded : str
        The heading of the part that is unfolded at first.
    """

    def __init__(self, parts: dict[str, Any], unfolded: str) -> None:
        look: dict[str, Any] = {"css_classes": ["section"], "stylesheets": [HEADING], "margin": 0}
        self._headings = {title: pn.pane.HTML("", **WIDE, **look) for title in parts}
        pairs = zip(self._headings.values(), parts.values(), strict=True)
        look = {"margin": 0, "sx": SECTIONS, "elevation": 0, "square": True, "disable_gutters": True}
        self._titles = list(parts)
        self._layout = pmui.Accordion(*pairs, active=[self._titles.index(unfolded)], toggle=True, **WIDE, **look)

    def unfold(self, title: str) -> None:
        """Unfold the part with this heading, and fold the one that was unfolded."""
        self._layout.active = [self._titles.index(title)]

    def say(self, title: str, chosen: str) -> None:
        """Write what is chosen into a heading."""
        self._headings[title].object = f"<b>{title}</b><span>{text(chosen, 60)}</span>"


class Controls(WithLayout):
    """The sections of the sidebar.

    Parameters
    ----------
    spec : Spec
        The spec that the widgets show first.
    on_change : callable
        Called without arguments after a person changed a widget; `apply_to` then returns the new spec.
    data : DataSource, optional
        What the first section holds.
    under_kernel : sequence, optional
        What stands under the kernel.
    """

    def __init__(
        self,
        spec: Spec,
        on_change: Callable[[], None],
        data: DataSource | None = None,
        under_kernel: Sequence[Any] = (),
    ) -> None:
        self._on_change, self._rows, self._data = on_change, 0, data
        hint = "Five families and their baselines; all of them run step by step on the same rows."
        self.method = Field("Method", spec.method, self._choose_method, by_family(), bare=True, hint=hint)
        self.kernel = KernelPicker(_kernel(spec), self._report)
        self.seed, self.split, self.budget, self.seconds, self.target, self.dtype, self.device = (
            Field(label, default, self._report, choices, default=default, hint=HINTS.get(label, ""), unit=unit)
            for label, default, choices, unit in (
                ("Seed", 0, None, ""),
                ("Split", 0, None, ""),
                ("Pause after", DEFAULT_STEPS, None, "steps"),
                ("or after", 0.0, None, "s"),
                ("Target", "", _transforms(""), ""),
                ("Precision", "float64", PRECISIONS, ""),
                ("Device", "cpu", _devices("cpu"), ""),
            )
        )
        self.budget.zero = "no limit"
        self._under_kernel = column(*under_kernel, margin=0)
        self._place = column(margin=0)
        pairs = ((self.budget, self.seconds), (self.seed, self.split), (self.dtype, self.device))
        budget, seeds, machine = (pn.Row(*pair, **WIDE, margin=0) for pair in pairs)
        parts = {
            "Data": column(*([] if data is None else [data]), self.target, margin=0),
            "Kernel": column(self.kernel, self._under_kernel, margin=0),
            "Method": column(self.method, self._place, margin=0),
            "Run": column(budget, seeds, margin=0),
            "Machine": machine,
        }
        self.sections = self._layout = Sections(parts, "Method")
        self.adopt(spec)

    def apply_to(self, spec: Spec) -> Spec:
        """Return a copy of `spec` with the values of the widgets; raises SettingError for values out of bounds."""
        limits = {"steps": self.budget.value, "seconds": self.seconds.value}
        return replace(
            spec,
            method=self.method.value,
            settings=self.settings.values,
            split=spec.split if self.split.value is None else self.split.value,
            kernel=spec.kernel if self.kernel.value == _kernel(spec) else self.kernel.value,
            seed=self.seed.value,
            budget={unit: limit for unit, limit in limits.items() if limit},
            dtype=self.dtype.value,
            device=self.device.value,
            target_transform=self.target.value,
        )

    def adopt(self, spec: Spec) -> None:
        """Show this spec in the widgets without calling `on_change`."""
        self.kernel.adopt(_kernel(spec))
        self.method.value, self.seed.value, self.dtype.value = spec.method, spec.seed, spec.dtype
        self._split, self.split.value = spec.split, spec.split if isinstance(spec.split, int) else None
        self.budget.value, self.seconds.value = spec.budget.get("steps", 0), spec.budget.get("seconds", 0.0)
        self.target.choose_from(_transforms(spec.target_transform), spec.target_transform)
        self.device.choose_from(_devices(spec.device), spec.device)
        self._show_settings(spec)
        self._summarise()

    def describe(self, rows: int) -> None:
        """Show what the settings that follow the number of training rows are for so many rows."""
        self._rows = rows
        self.settings.describe(rows)
        self._summarise()

    def _summarise(self) -> None:
        """Say beside each heading what is chosen under it."""
        method, kernel = registry[self.method.value], self.kernel.value
        plain_kernel = kernel_registry[kernel].title if kernel in kernel_registry else _written(kernel)
        device = "processor" if self.device.value == "cpu" else str(self.device.value)
        self.sections.say("Data", "" if self._data is None else self._data.summary)
        self.sections.say("Kernel", "features of the method" if method.own_kernel else plain_kernel)
        self.sections.say("Method", method.title)
        split = self._split if self.split.value is None else self.split.value
        self.sections.say("Run", f"seed {self.seed.value}, split {in_words(split)}")
        self.sections.say("Machine", f"{self.dtype.value.removeprefix('float')} bit, {device}")

    def _choose_method(self) -> None:
        self._show_settings(Spec(self.method.value))
        self._report()

    def _show_settings(self, spec: Spec) -> None:
        self.settings = Settings(registry[spec.method], spec.settings, self._report, self._rows)
        self._place[:] = [self.settings]
        # A method with features of its own has no kernel to choose, and no hyperparameters of one.
        self.kernel.disable(registry[spec.method].own_kernel)
        self._under_kernel.visible = not registry[spec.method].own_kernel

    def _report(self) -> None:
        self._summarise()
        self._on_change()


def by_family() -> dict[str, dict[str, str]]:
    """Return {family title: {method title: method key}} for the groups of the method selector."""
    groups: dict[str, dict[str, str]] = {}
    for key, method in registry.items():
        groups.setdefault(FAMILIES.get(method.family, method.family), {})[method.title] = key
    order = list(FAMILIES.values())
    return dict(sorted(groups.items(), key=lambda item: order.index(item[0]) if item[0] in order else len(order)))


def _kernel(spec: Spec) -> str:
    return spec.kernel if isinstance(spec.kernel, str) else str(spec.kernel["name"])


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
