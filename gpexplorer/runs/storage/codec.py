"""Steps as JSON and back, to the last bit: tensors as safetensors bytes, named tuples by field. Pickle is not used.

A named tuple is built only from the classes that its method declares (`Method.State`, `Method.Info` and the classes of
their fields), so a file can bring numbers and never code. A tensor of a GPU is read on a GPU if there is one, and on
the processor otherwise: its device is no part of its value.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
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
GPU = re.compile(r"cuda(:\d{1,2})?")


def encode(step: Step) -> dict[str, Any]:
    """Turn a step into a JSON object.

    Returns
    -------
    dict
        The nested tuples under "state" and "info", and all their tensors as one base64 text under "tensors".

    Raises
    ------
    StoreError
        If the step holds something other than tensors, numbers, text and tuples of them.
    """
    tensors: list[Tensor] = []
    nested = {"state": _encode(step.state, tensors), "info": _encode(step.info, tensors)}
    blob = save({str(k): tensor.detach().cpu().clone().contiguous() for k, tensor in enumerate(tensors)})
    return {**nested, "tensors": base64.b64encode(blob).decode("ascii")}


def decode(line: dict[str, Any], classes: Classes) -> Step:
    """Turn a JSON object back into the step that `encode` was given.

    Parameters
    ----------
    line : dict
        What `encode` returned.
    classes : dict of str to type
        The named tuples of the method, from `classes_of`.

    Raises
    ------
    StoreError
        If the line does not fit these classes.
    """
    try:
        tensors = load(base64.b64decode(line["tensors"], validate=True))
        return Step(*(_decode(line[part], tensors, classes) for part in Step._fields))
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, binascii.Error, SafetensorError) as error:
        raise StoreError(
            f"A stored step does not fit its method ({type(error).__name__}): was it another version's?"
        ) from error


def classes_of(method: type[Method]) -> Classes:
    """The named tuples that make up a method's states and infos, by their qualified names.

    Files of earlier versions call the outer ones State and Info, whatever the method.
    """
    kinds = {kind.__qualname__: kind for root in (method.State, method.Info) for kind in _named_tuples(root)}
    return {"State": method.State, "Info": method.Info, **kinds}


def device_here(place: object) -> torch.device:
    """The device of this machine for a tensor that was stored from a device, such as "cuda:1"."""
    if not isinstance(place, str) or not GPU.fullmatch(place) or not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device(place)
    return device if (device.index or 0) < torch.cuda.device_count() else torch.device("cuda")


def _named_tuples(kind: Any) -> Iterator[type]:
    """The named tuples in a type, including those of its fields and of the members of a union."""
    if isinstance(kind, type) and hasattr(kind, "_fields"):
        yield kind
        for inner in typing.get_type_hints(kind).values():
            yield from _named_tuples(inner)
    for inner in typing.get_args(kind):
        yield from _named_tuples(inner)


def _encode(value: Any, tensors: list[Tensor]) -> Any:
    """JSON for one value; its tensors are appended to `tensors` and referred to by number."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, Tensor):
        tensors.append(value)
        place = {} if value.device.type == "cpu" else {"on": str(value.device)}
        return {"tensor": len(tensors) - 1, **place}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        fields = {name: _encode(part, tensors) for name, part in zip(value._fields, value, strict=True)}
        return {"named": type(value).__qualname__, "fields": fields}
    if isinstance(value, tuple):
        return {"tuple": [_encode(part, tensors) for part in value]}
    raise StoreError(f"A step holds a {type(value).__name__}, which cannot be stored: yield tensors, numbers and text.")


def _decode(value: Any, tensors: dict[str, Tensor], classes: Classes) -> Any:
    if not isinstance(value, dict):
        return value
    if "float" in value:
        return float(value["float"])
    if "tensor" in value:
        tensor = tensors[str(value["tensor"])]
        return tensor.to(device_here(value["on"])) if "on" in value else tensor
    if "tuple" in value:
        return tuple(_decode(part, tensors, classes) for part in value["tuple"])
    fields = {name: _decode(part, tensors, classes) for name, part in value["fields"].items()}
    return classes[value["named"]](**fields)
