"""The controls of the sidebar, all in one form.

The label stands above; below it a slider and a number, a list or a switch fill one row, with the unit at its end. A
value that was changed from its default is marked and can be reset. The explanation and the equation unfold from the
label.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

WHOLE, NUMBER, CHOICE, SWITCH = "whole", "number", "choice", "switch"
LARGEST = 1e300  # a number typed by a person is at most this
Choices = Mapping[str, Any] | Mapping[str, Mapping[str, Any]]  # {label: value}, or {group: {label: value}}


class Field(JSComponent):
    """One control.

    The browser sends what a person typed or chose; it is checked here, and only then becomes `value`.

    Parameters
    ----------
    label
        Name of the value.
    value
        The value shown first.
    on_change
        Called without arguments after a person changed the value.
    choices
        What can be chosen from, as {label: value} or {group: {label: value}}; None for a number or a switch.
    **params
        `hint`, `equation`, `unit`, `zero`, `default`, `start`, `end`, `disabled`, `heading` and those of a component. A
        field without `default` has no mark and no reset. A whole number with `start` and `end` has a slider.

    Raises
    ------
    TypeError
        Where `value` is neither a number nor a switch and there are no choices.
    """

    kind = param.Selector(default=NUMBER, objects=[WHOLE, NUMBER, CHOICE, SWITCH], doc="What is set.")
    label = param.String("", doc="Name of the value.")
    hint = param.String("", doc="What the value does, in a sentence or two.")
    equation = param.String("", doc="The formula in which the value stands, as LaTeX.")
    unit = param.String("", doc="Unit of the number.")
    zero = param.String("", doc="What 0 stands for, beside the label while the number is 0.")
    start = param.Number(None, allow_None=True, doc="Left end of the slider.")
    end = param.Number(None, allow_None=True, doc="Right end of the slider.")
    default = param.Parameter(None, doc="What a reset restores: a number, a truth value, or the index of a choice.")
    shown = param.Parameter(None, doc="What the browser shows: a number, a truth value, or the index of a choice.")
    groups = param.List(default=[], doc="Groups of labels, each [title, labels].")
    disabled = param.Boolean(False, doc="Whether the value cannot be changed.")
    heading = param.Boolean(False, doc="Whether the label is the heading of a group of controls.")

    _esm = """
    let count = 0
    const written = (value) => {
      if (typeof value !== "number") return ""
      const size = Math.abs(value)
      const text = size && (size >= 1e7 || size < 1e-4) ? value.toExponential(6) : String(Number(value.toPrecision(10)))
      return text.replace(/\\.?0+e\\+?/, "e").replace("-", "−")
    }
    const read = (text) => {
      const typed = text.trim().replace("−", "-")
      const grouped = /^[+-]?[1-9]\\d{0,2}([ ,]\\d{3})+(\\.\\d*)?$/.test(typed)
      return Number((grouped ? typed.replace(/[ ,]/g, "") : typed.replace(/^([^.,]*),(\\d+)$/, "$1.$2")) || NaN)
    }
    const create = (tag, props = {}, ...children) => {
      const element = Object.assign(document.createElement(tag), props)
      element.append(...children)
      return element
    }

    export function render({ model, el }) {
      const id = `field${++count}`
      const slide = model.kind === "whole" && model.start != null && model.end != null
      const label = create("label", { htmlFor: id, textContent: model.label })
      const reset = create("button", { type: "button", className: "reset", textContent: "↺" })
      reset.title = "Reset to the default"
      reset.setAttribute("aria-label", `Reset ${model.label}`)
      const more = create("button", { type: "button", className: "more", textContent: "?", title: "What is this?" })
      more.setAttribute("aria-label", `About ${model.label}`)
      more.setAttribute("aria-expanded", "false")
      const head = create("div", { className: "head" }, label, ...(model.default == null ? [] : [reset]))
      const row = create("div", { className: "row" })
      const about = create("div", { className: "about", hidden: true })
      const zero = create("div", { className: "zero", id: `${id}zero`, hidden: true })
      const send = (value) => model.send_msg(value)
      let input, range, marks

      if (model.kind === "choice") {
        input = create("select", { id, onchange: () => send(Number(input.value)) })
        row.append(input)
      } else if (model.kind === "switch") {
        input = create("input", { id, type: "checkbox", onchange: () => send(input.checked) })
        head.prepend(input)
      } else {
        input = create("input", { id, type: "text", inputMode: "decimal", autocomplete: "off" })
        input.setAttribute("role", "spinbutton")
        input.setAttribute("aria-describedby", zero.id)
        const commit = () => {
          const value = read(input.value)
          if (Number.isFinite(value) && value !== model.shown) send(value)
          else show()
        }
        input.onchange = commit
        input.onkeydown = (event) => {
          const step = { ArrowUp: 1, ArrowDown: -1 }[event.key]
          if (event.key === "Enter") commit()
          if (!step) return
          event.preventDefault()
          const value = read(input.value)
          const size = model.kind === "whole" ? 1 : 10 ** Math.floor(Math.log10(Math.abs(value) || 1) - 0.5)
          input.value = written(Number((value + step * size).toPrecision(10)))
        }
        if (slide) {
          marks = create("datalist", { id: `${id}marks` })
          range = create("input", { type: "range", step: 1, title: "The mark is the default" })
          range.setAttribute("list", marks.id)
          range.setAttribute("aria-label", `${model.label}, slider`)
          range.oninput = () => { input.value = written(Number(range.value)) }
          range.onchange = () => send(Number(range.value))
          row.append(range, marks)
        }
        row.append(input)
        if (model.unit) row.append(create("span", { className: "unit", textContent: model.unit }))
      }

      const fill = () => {
        let index = 0
        input.replaceChildren(...model.groups.flatMap(([title, labels]) => {
          const options = labels.map((text) => create("option", { value: index++, textContent: text }))
          return title ? [create("optgroup", { label: title }, ...options)] : options
        }))
      }
      const show = () => {
        if (model.kind === "choice") input.value = model.shown == null ? "" : String(model.shown)
        else if (model.kind === "switch") input.checked = Boolean(model.shown)
        else {
          input.value = written(model.shown)
          input.setAttribute("aria-valuenow", model.shown ?? "")
          if (range) {
            range.min = Math.min(model.start, model.shown ?? model.start)
            range.max = Math.max(model.end, model.shown ?? model.end)
            range.value = model.shown
          }
        }
        zero.textContent = zero.title = model.zero
        zero.hidden = !model.zero || model.shown !== 0
        const changed = model.default != null && model.shown !== model.default
        el.classList.toggle("changed", changed)
        reset.hidden = !changed || model.disabled
        for (const control of [input, range]) if (control) control.disabled = model.disabled
        if (marks) marks.replaceChildren(...(model.default == null ? [] : [create("option", { value: model.default })]))
      }
      const explain = () => {
        about.replaceChildren(...(model.hint ? [create("p", { textContent: model.hint })] : []))
        if (model.equation && window.katex) {
          const formula = create("div", { className: "formula" })
          formula.innerHTML = window.katex.renderToString(model.equation, { output: "mathml", throwOnError: false })
          about.append(formula)
        }
      }
      reset.onclick = () => send(model.default)
      more.onclick = () => {
        about.hidden = !about.hidden
        more.setAttribute("aria-expanded", String(!about.hidden))
        if (!about.hidden) explain()
      }
      if (model.kind === "whole" || model.kind === "number") head.append(zero)
      if (model.hint || model.equation) head.append(more)
      if (model.heading) el.classList.add("heading")
      el.append(head, ...(model.kind === "switch" ? [] : [row]), about)
      if (model.kind === "choice") fill()
      show()
      model.on("groups", () => { fill(); show() })
      for (const name of ["shown", "zero", "default", "disabled"]) model.on(name, show)
      model.on("label", () => { label.textContent = model.label })
      model.on("hint", () => about.hidden || explain())
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        """
        :host { color: inherit; font-size: 13px; --ink: var(--mui-palette-text-primary, #22303c);
                --accent: var(--mui-palette-primary-main, #0b6e99);
                --paper: var(--mui-palette-background-paper, #fff); }
        .head { display: flex; align-items: center; gap: 4px; min-height: 20px; line-height: 20px; }
        label { color: var(--ink); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
        :host .heading label, .heading label { font-weight: 650; }
        .row { display: flex; align-items: center; gap: 8px; height: 26px; }
        select, input[type=text] { box-sizing: border-box; height: 26px; min-width: 0; font: inherit; padding: 0 6px;
            color: var(--ink); background: var(--paper); border: 1px solid #7d8894; border-radius: 6px; }
        select { width: 100%; }
        input[type=text] { flex: 1 1 72px; font-variant-numeric: tabular-nums; }
        input[type=range] { flex: 3 1 100px; min-width: 0; margin: 0; height: 24px; accent-color: var(--accent);
                            color: var(--ink); }
        input[type=range] ~ input[type=text] { flex: 0 0 76px; }
        input[type=checkbox] { width: 16px; height: 16px; margin: 0 4px 0 0; accent-color: var(--accent); }
        .unit { color: var(--ink); opacity: .8; flex: none; }
        button { flex: none; padding: 0; border: 0; background: none; color: var(--accent); font: inherit;
                 cursor: pointer; width: 20px; height: 20px; line-height: 18px; border-radius: 10px; }
        button[hidden] { display: none; }
        .more { margin-left: auto; border: 1px solid currentColor; width: 16px; height: 16px; line-height: 13px;
                font-size: 11px; }
        .changed label::after, :host(.changed) label::after { content: " •"; color: var(--accent); }
        .zero { font-size: 11.5px; color: var(--ink); opacity: .8; flex: 1 1 0; min-width: 0; text-align: right;
                overflow: hidden; white-space: nowrap; text-overflow: ellipsis; }
        .about { font-size: 12px; line-height: 1.4; color: var(--ink); padding: 2px 0 4px; }
        .about p { margin: 0; } .formula { overflow-x: auto; padding: 4px 0; font-size: 13px; }
        :disabled { opacity: .55; }
        button:focus-visible, select:focus-visible, input:focus-visible { outline: 2px solid var(--accent);
                                                                          outline-offset: 1px; }
        """
    ]

    def __init__(
        self,
        label: str,
        value: Any,
        on_change: Callable[[], None] = lambda: None,
        choices: Choices | None = None,
        **params: Any,
    ) -> None:
        kind = _kind(value, choices)
        self._values: list[Any] = []
        default = params.pop("default", None)
        super().__init__(label=label, kind=kind, **{"margin": (2, 12), "sizing_mode": "stretch_width", **params})
        self._on_change = on_change
        if choices is not None:
            self.choose_from(choices, value)
        else:
            self.value = value
        if default is not None:
            self.default = self._index(default) if kind == CHOICE else default

    @property
    def value(self) -> Any:
        """The value: a number, a truth value, or one of the choices."""
        if self.kind != CHOICE:
            return self._value
        return None if self._value is None else self._values[self._value]

    @value.setter
    def value(self, value: Any) -> None:
        self._value = self._index(value) if self.kind == CHOICE else value
        self.shown = self._value

    def choose_from(self, choices: Choices, value: Any) -> None:
        """Offer other choices, and show this one; None shows no choice."""
        is_grouped = all(isinstance(entry, Mapping) for entry in choices.values())
        groups = choices if is_grouped else {"": choices}
        self._values = [entry for group in groups.values() for entry in group.values()]
        listed = [[title, list(group)] for title, group in groups.items()]
        if listed != self.groups:
            self.groups = listed
        self.value = value

    def enter(self, value: Any) -> None:
        """Set the value as a person would: it is checked, and `on_change` is called."""
        self._handle_msg(self._index(value) if self.kind == CHOICE else value)

    def _index(self, value: Any) -> int | None:
        return self._values.index(value) if value in self._values else None

    def _handle_msg(self, msg: Any) -> None:
        """Take a value from the browser, if it is one that this control can have."""
        if self.disabled or not self._accepts(msg):
            self.param.trigger("shown")
            return
        self._value = int(msg) if self.kind in (WHOLE, CHOICE) else msg
        self.shown = self._value
        self._on_change()

    def _accepts(self, msg: Any) -> bool:
        if self.kind == SWITCH:
            return isinstance(msg, bool)
        if isinstance(msg, bool) or not isinstance(msg, int | float) or not math.isfinite(msg) or abs(msg) > LARGEST:
            return False
        if self.kind == NUMBER:
            return True
        return msg == int(msg) and (self.kind == WHOLE or 0 <= msg < len(self._values))


def _kind(value: Any, choices: Choices | None) -> str:
    if choices is not None:
        return CHOICE
    if isinstance(value, bool):
        return SWITCH
    if isinstance(value, int | float):
        return WHOLE if isinstance(value, int) else NUMBER
    raise TypeError(f"A field shows a number, a switch or choices, not {value!r}.")
