"""The JSON Schema of a Spec: what an editor needs to complete and check a file of Spec JSON.

The schema is generated from the classes: one variant per method with its settings, their bounds and meanings. What a
schema cannot say, such as the number of entries of theta for a kernel, is checked when the spec is read.
"""

from __future__ import annotations

from typing import Any

import param

from .. import kernels
from ..data.splits import ALL
from ..data.standardising import LOG_INPUTS
from ..methods.base import Method, registry
from ..target_transforms import FORMS
from .opening import DTYPES, STARTS
from .spec import DEVICE, LARGEST_INTEGER, VERSION

TRANSFORM = r"log|yeo-johnson( ([01](\.\d*)?|\.\d+|2(\.0*)?|\d(\.\d*)?e-\d+))?"
PRIOR = r"^\s*[A-Za-z_-]+\s*\([^()]*\)\s*$"
MEANINGS = {
    "values": "Hyperparameters by name, in the units of the file; learning begins there.",
    "fixed": "Names of those that are not learned; * and ? stand for any characters.",
    "bounds": "Least and largest value by name, null for none.",
    "tied": "Groups of names whose values are equal.",
    "priors": "Densities by name, such as lognormal(0, 1).",
}
DRAFT = "https://json-schema.org/draft/2020-12/schema"


def spec_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the JSON that `Spec.from_json` reads."""
    count = {"type": "integer", "minimum": 0, "maximum": LARGEST_INTEGER}
    split = {
        "description": 'The number of a split, how to make one, or "all" for training rows alone.',
        "anyOf": [count, {"type": "object"}, {"const": ALL}],
    }
    return {
        "$schema": DRAFT,
        "title": "A gpexplorer Spec",
        "description": "A method, its settings, the data, the kernel and whatever else decides what is computed.",
        "type": "object",
        "required": ["method"],
        "additionalProperties": False,
        "properties": {
            "gpexplorer": {"const": VERSION, "description": "The version of the format."},
            "method": {"enum": sorted(registry), "description": "The key of a method."},
            "settings": {"type": "object", "description": "Settings of the method by name; the others are defaults."},
            "data": {
                "description": "A data set by name, a file, or an object with a name and options.",
                "anyOf": [{"type": "string", "minLength": 1}, {"type": "object", "required": ["name"]}],
            },
            "split": split,
            "kernel": {
                "description": "A kernel, or several joined by + and *; column names in brackets may follow each: "
                f"{', '.join(kernels.available())}.",
                "anyOf": [{"type": "string", "minLength": 1}, _named_kernel()],
            },
            "seed": {**count, "description": "The seed of every random choice of the method."},
            "device": {"type": "string", "pattern": f"^({DEVICE.pattern})$"},
            "dtype": {"enum": sorted(DTYPES)},
            "budget": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"steps": count, "seconds": {"type": "number", "exclusiveMinimum": 0}},
            },
            "input_transform": {
                "enum": ["", LOG_INPUTS],
                "description": "Whether inputs with a long tail are taken as logarithms.",
            },
            "target_transform": {
                "type": "string",
                "pattern": f"^({TRANSFORM})?$",
                "description": f"What the model learns in place of the target: {FORMS}.",
            },
        },
        "allOf": [
            {
                "if": {"properties": {"method": {"const": key}}, "required": ["method"]},
                "then": {"properties": {"settings": _settings(registry[key])}},
            }
            for key in sorted(registry)
        ],
    }


def _named_kernel() -> dict[str, Any]:
    theta = {"anyOf": [{"type": "number"}, {"type": "array", "items": {"type": "number"}}]}
    name, value = {"type": "string", "minLength": 1}, {"type": "number", "exclusiveMinimum": 0}
    names = {"type": "array", "items": name}
    bound = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]}
    bounds = {"type": "array", "items": bound, "minItems": 2, "maxItems": 2}
    options: dict[str, dict[str, Any]] = {
        "values": {"type": "object", "additionalProperties": value},
        "fixed": {"anyOf": [name, names]},
        "bounds": {"type": "object", "additionalProperties": bounds},
        "tied": {"anyOf": [names, {"type": "array", "items": names}]},
        "priors": {"type": "object", "additionalProperties": {"type": "string", "pattern": PRIOR}},
    }
    for option, meaning in MEANINGS.items():
        options[option]["description"] = meaning
    return {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {"name": {"type": "string"}, "theta": theta, "start": {"enum": list(STARTS)}, **options},
    }


def _settings(method: type[Method]) -> dict[str, Any]:
    parameters = method.param.objects()
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {**_values(setting), "default": setting.default, "description": setting.doc or ""}
            for name, setting in sorted(parameters.items())
            if name not in ("name", "seed")
        },
    }


def _values(setting: param.Parameter[Any]) -> dict[str, Any]:
    """What a setting takes, in the words of JSON Schema, as param says it of numbers and texts."""
    if isinstance(setting, param.Boolean | param.Number | param.String):
        values: dict[str, Any] = setting.schema()
        return values
    if not isinstance(setting, param.Selector):
        return {}
    if not hasattr(setting, "lists"):
        return {"enum": list(setting.objects)}
    point = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "array", "items": {"type": "number"}}]}
    return {"anyOf": [{"enum": list(setting.objects)}, {"type": "array", "minItems": 1, "items": point}]}
