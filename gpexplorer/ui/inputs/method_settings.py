"""Controls for the settings of a method: hints from `doc`, slider ranges from the soft bounds, equations in the hint.

Values from the browser are not trusted: they go into a Spec, which checks every bound again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param

from ...methods.base import Method
from ...methods.capabilities import HasInducingPoints
from ..widgets import WIDE, column
from .field import Field

_ZERO = re.compile(r"(?:^|[.;] )((?:With 0,|0(?! does)) [^.;]*)")  # the clause of a doc that says what 0 stands for
MAX_LABEL = 24  # characters

LABELS = {  # plain words for names that are short in a program; a doc may bring its own before a colon
    "acceptance": "Wanted acceptance rate",
    "again": "Choose all points again",
    "averaging": "Weight of the newest",
    "averaging_decay": "Decay of that weight",
    "balance": "Balance of residuals",
    "band_tolerance": "Tolerance of bands",
    "bands": "Rows behind the bands",
    "basis": "Choice of functions",
    "batch_size": "Rows per minibatch b",
    "block": "Rows per block",
    "cache": "Memory for kernel rows",
    "calibrate": "Calibrate the bands",
    "candidates": "Candidate functions",
    "cg_iterations": "CG iterations at most",
    "cg_tolerance": "CG tolerance",
    "chunk": "Rows that join at once",
    "coarse": "Coarse rows",
    "compete": "All pivots compete",
    "conjugate": "Steps to combine with",
    "conditionals": "Rows of the likelihood",
    "stretch": "Rows learned first",
    "copies": "A theta for every fold",
    "coupling": "Coupling of the folds",
    "criterion": "Criterion",
    "damped": "Damped preconditioner",
    "dual_start": "First multipliers",
    "engine": "Engine",
    "evaluations": "Evaluations at most",
    "evaluate_every": "Epochs per evaluation",
    "factors": "Memory for factors",
    "forcing": "CG tolerance by gradient",
    "fraction": "Share for validation",
    "full_steps": "Learning on all rows",
    "gap": "Gap to the exact model",
    "gram_update": "Minibatch joins averages",
    "grid_factor": "Ratio of grid values",
    "grid_size": "Noise levels on the grid",
    "growth": "Rows that join per step",
    "head": "Weights of features",
    "jitter": "Jitter over the noise",
    "largest": "Bound on parameters",
    "largest_gap": "Step taken back from",
    "layers": "Layers of the network",
    "learn": "Learn hyperparameters",
    "likelihood": "Unexplained variance",
    "max_epochs": "Epochs at most",
    "max_iterations": "Iterations at most",
    "max_rollbacks": "Steps taken back, most",
    "max_rounds": "Rounds at most",
    "mean_tolerance": "Tolerance of the mean",
    "memory": "Memory for kernels",
    "metric": "Geometry of A and B",
    "minibatches": "Minibatches per step",
    "mixed": "Kernel in float32",
    "multiplier": "Matrix in the gradient",
    "mu_growth": "Growth of the penalty",
    "natural_rate": "Rate of natural steps",
    "noise_floor": "Smallest noise sd",
    "noise_prior": "Variance of noise prior",
    "num_candidates": "Candidates per point",
    "num_eigenfunctions": "Eigenfunctions p",
    "num_features": "Features D",
    "num_nearest": "Rows near a new one",
    "num_neighbours": "Neighbours k",
    "num_proposals": "Candidates beside pivots",
    "num_regressors": "Regressors",
    "optimiser": "Optimiser",
    "pairs": "Pairs per step",
    "patience": "Patience",
    "per_step": "Iterations per step",
    "pivot_policy": "Choice of pivots",
    "one_at_a_time": "One number at a time",
    "pivot_refresh": "Swaps until new pivots",
    "polish": "Moves at the end",
    "pool": "Candidates per row",
    "probes": "Random vectors",
    "rank": "Rank of preconditioner",
    "rate": "Learning rate",
    "rate_decay": "Decay of the rate",
    "rate_scaling": "Rates of A and B",
    "rebuild": "Swaps until rebuilding",
    "refit": "Final fit",
    "refresh": "Iterations to a check",
    "removal": "Choice of removal",
    "restarts": "Further random starts",
    "rho": "Penalty weight rho",
    "rho_span": "Range of rho",
    "root": "Kind of preconditioner",
    "rounds": "Rounds of neighbours",
    "samples": "Samples",
    "schedule": "Schedule of the rate",
    "search": "Learning rates tried",
    "shortlist": "Shortlist per row",
    "spacing": "Spacing of the grid",
    "starts": "Initial values tried",
    "subset": "Rows learned on",
    "theta_method": "Cz = y while theta moves",
    "theta_steps": "Gradient steps of theta",
    "thin": "Iterations per draw",
    "tolerance": "Tolerance",
    "trial": "Minibatches per trial",
    "validation": "Share set aside",
    "variance_rows": "Rows for variances",
    "variational": "Moves of the posterior",
    "warm_up": "Steps of warm-up",
    "weight": "Weight of the targets",
    "weight_mode": "Mode of weight prior",
    "weight_variance": "Variance of weight prior",
    "weights": "Weights of functions",
    "width": "Width of the network",
}
MOST_OPEN = 5  # settings that are shown outside the accordion where a method has no equations
SLIM = {
    "& .MuiAccordionSummary-root": {"minHeight": "26px !important", "padding": "0 8px"},
    "& .MuiAccordionSummary-content": {"margin": "0 !important"},
    "& .MuiAccordionDetails-root": {"padding": "0 0 6px"},
}


class Settings(pn.viewable.Viewer):
    """The controls for the settings of one method.

    Parameters
    ----------
    method : type
        The class whose parameters are shown.
    given : dict
        Values by the name of the setting; the others start at their defaults.
    on_change : callable
        Called without arguments after a person changed a setting.
    rows : int, default 0
        Number of training rows, from which a method chooses its number of inducing points; 0 if it is not known.
    """

    def __init__(
        self, method: type[Method], given: dict[str, Any], on_change: Callable[[], None], rows: int = 0, **params: Any
    ) -> None:
        super().__init__(**params)
        self.method, self._on_change = method, on_change
        parameters = {name: setting for name, setting in method.param.objects().items() if name not in ("name", "seed")}
        texts = [
            name
            for name in parameters
            if name not in method.used_settings() or isinstance(parameters[name], param.String)
        ]
        self._texts = {name: given.get(name, parameters[name].default) for name in texts}  # kept, without a control
        self.widgets = {
            name: self._field(name, setting, given.get(name, setting.default))
            for name, setting in parameters.items()
            if name not in texts
        }
        self._layout = self._arrange()
        self.describe(rows)

    def describe(self, rows: int) -> None:
        """Say beside the number of inducing points how many 0 is for so many training rows."""
        if rows and "num_inducing" in self.widgets and issubclass(self.method, HasInducingPoints):
            m = self.method(num_inducing=0).num_points(rows)
            self.widgets["num_inducing"].zero = f"0 is automatic: {m:,}"

    @property
    def values(self) -> dict[str, Any]:
        """The current values of the widgets, not checked."""
        return self._texts | {name: widget.value for name, widget in self.widgets.items()}

    def _field(self, name: str, setting: param.Parameter, value: Any) -> Field:
        doc = setting.doc or ""
        common: dict[str, Any] = {
            "hint": f"{doc} In Python: {name}.".strip(),
            "equation": self.method.equations.get(name, ""),
        }
        choices = None
        if isinstance(setting, param.Selector):
            choices = {plain(str(choice)): choice for choice in setting.objects}
            if value not in choices.values():  # a list of rows or points, which no page can type
                choices[f"{len(value)} rows or points of a spec"] = value
        elif not isinstance(setting, param.Boolean):
            low, high = setting.softbounds or setting.bounds or (None, None)
            common |= {"start": low, "end": high, "zero": meaning_of_zero(doc)}
            value = value if isinstance(setting, param.Integer) else float(value)
        return Field(label_of(name, doc), value, self._on_change, choices, default=setting.default, **common)

    def _arrange(self) -> pn.Column:
        """Settings with an equation come first; the others are in a closed accordion.

        A method without equations shows the first settings that it declares itself.
        In the accordion, the settings declared by the method itself come before those it shares with its family.
        """
        equations, own = self.method.equations, vars(self.method)
        primary = [name for name in self.widgets if name in equations]
        primary = primary or [name for name in self.widgets if name in own][:MOST_OPEN]
        secondary = [name for name in self.widgets if name not in primary]
        secondary_fields = [self.widgets[name] for name in sorted(secondary, key=lambda name: name not in own)]
        widgets: list[Any] = [self.widgets[name] for name in primary]
        if secondary_fields:
            more = ("More settings", column(*secondary_fields, margin=0))
            look = {"title_variant": "subtitle2", "dynamic": True, "margin": (2, 10), "sx": SLIM}
            widgets.append(pmui.Accordion(more, **WIDE, **look))
        return column(*widgets)

    def __panel__(self) -> Any:
        return self._layout


def label_of(name: str, doc: str = "") -> str:
    """Return the label of a setting: the text before the colon of its doc if that is short, else that of the table."""
    heading = doc.partition(":")[0]
    is_short = ":" in doc and len(heading) <= MAX_LABEL
    return heading if is_short else LABELS.get(name) or name.removeprefix("num_").replace("_", " ").capitalize()


def meaning_of_zero(doc: str) -> str:
    """Return the words of a doc that say what the value 0 does, such as "0 means no limit", or "" if there are none."""
    clause = _ZERO.search(doc)
    return clause[1] if clause else ""


def plain(choice: str) -> str:
    """Return the words of a choice: underscores are spaces."""
    return choice.replace("_", " ")
