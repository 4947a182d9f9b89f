"""Steps as JSON and back, to the last bit: tensors as safetensors bytes, named tuples by field; never pickle.

A named tuple is rebuilt only from the classes its method declares (`Method.State`, `Method.Info` and what their
fields name), so a file can bring numbers and never code.
"""

from __future__ import annotations

import base64
import binascii
import math
import typing
from collections.abc import Iterator
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ...errors import StoreError
from ...methods.base import Method
from ...problem import Step

Classes = dict[str, type]


def encode(step: Step) -> dict[str, Any]:
    """The step as a JSON object: its nest under "state" and "info", all its tensors as one base64 text."""
    held: list[Tensor] = []
    nest = {"state": _encode(step.state, held), "info": _encode(step.info, held)}
    blob = save({str(k): tensor.detach().cpu().clone().contiguous() for k, tensor in enumerate(held)})
    return {**nest, "tensors": base64.b64encode(blob).decode("ascii")}


def decode(line: dict[str, Any], classes: Classes) -> Step:
    """The step that `encode` was given; StoreError where the line is not one of these classes'."""
    try:
        held = load(base64.b64decode(line["tensors"], validate=True))
        return Step(*(_decode(line[part], held, classes) for part in Step._fields))
    except (KeyError, TypeError, ValueError, AttributeError, binascii.Error, SafetensorError) as error:
        raise StoreError(
            f"A stored step does not fit its method ({type(error).__name__}): was it another version's?"
        ) from error


def classes_of(method: type[Method]) -> Classes:
    """The named tuples that a method's states and infos are made of, by their names."""
    return {found.__qualname__: found for root in (method.State, method.Info) for found in _named(root)}


def _named(kind: Any) -> Iterator[type]:
    """Named tuples in a type, those of its fields and of its union's members included."""
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        yield kind
        for inner in typing.get_type_hints(kind).values():
            yield from _named(inner)
    for inner in typing.get_args(kind):
        yield from _named(inner)


def _encode(value: Any, held: list[Tensor]) -> Any:
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Tensor):
        held.append(value)
        place = {} if value.device.type == "cpu" else {"on": str(value.device)}
        return {"tensor": len(held) - 1, **place}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = {name: _encode(part, held) for name, part in zip(value._fields, value, strict=True)}
        return {"named": type(value).__qualname__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part, held) for part in value]}
    raise StoreError(f"A step holds a {type(value).__name__}, which cannot be stored: yield tensors, numbers and text.")


def _decode(value: Any, held: dict[str, Tensor], classes: Classes) -> Any:
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tensor" in value:
        tensor = held[str(value["tensor"])]
        return tensor.to(torch.device(value["on"])) if "on" in value else tensor
    if "tuple" in value:
        return tuple(_decode(part, held, classes) for part in value["tuple"])
    fields = {name: _decode(part, held, classes) for name, part in value["fields"].items()}
    return classes[value["named"]](**fields)
