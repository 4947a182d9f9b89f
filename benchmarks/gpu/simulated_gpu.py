"""A simulated GPU: tensors that report device "cuda:0", compute on the CPU, and refuse what CUDA refuses.

It shows without a GPU that no step mixes devices, and it counts what a GPU would be asked for: kernel launches (about 5
microseconds each), host reads (about 15, and the queue of launches is empty after it) and uploads. It refuses two
devices in one operation (except numbers, and indices on the CPU), a generator of the CPU for a draw on the device, and
`numpy()` of a tensor on the device.

CUDA graphs are simulated as well (simulated_graph.py). Nothing is asynchronous, and only the thread that entered the
simulation can create tensors on the device. Therefore streams and races between threads are not tested.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Self
from unittest import mock

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch

from .simulated_graph import SimulatedGraph, refuse_in_graph, simulated_capture, tensors_of

CARD = torch.device("cuda", 0)
# fmt: off
VIEWS = {  # operations that launch nothing
    "view", "_unsafe_view", "t", "transpose", "permute", "slice", "select", "expand", "unsqueeze", "squeeze", "alias",
    "detach", "as_strided", "diagonal", "unbind", "split", "split_with_sizes", "narrow", "_reshape_alias", "unfold",
    "unsqueeze_", "squeeze_", "t_", "transpose_", "detach_", "lift_fresh", "empty", "empty_like", "empty_strided",
    "new_empty", "is_same_size", "resize_",
}
# fmt: on
RESHAPED_IN_PLACE = {"squeeze_", "unsqueeze_", "t_", "transpose_"}
READS = {"_local_scalar_dense", "nonzero", "equal", "_unique2", "masked_select", "is_nonzero"}
MIXED_DEVICES = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index", "copy_"}
WRITE_DATA: Any = Tensor.data.__set__  # type: ignore[attr-defined]
TRANSFERS = {Tensor.to, Tensor.cpu, Tensor.cuda, Tensor.type_as}
MAKERS = {torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor}


@dataclass
class DeviceWork:
    """What a GPU was asked for.

    Attributes
    ----------
    launches, reads, uploads : int
        Kernels that were started, values that the host waited for, and copies from the host to the device.
    """

    launches: int = 0
    reads: int = 0
    uploads: int = 0


class SimulatedTensor(Tensor):
    """A tensor on the simulated device; its numbers are those of the tensor `on_host`."""

    on_host: Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]
    device: torch.device = CARD  # type: ignore[assignment]  # torch itself sees a CPU tensor, so that autograd works
    is_cuda: bool = True  # type: ignore[assignment]
    is_cpu: bool = False  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, on_host: Tensor) -> SimulatedTensor:
        """Wrap the numbers of a tensor of the CPU."""
        with torch.inference_mode(mode=False):  # a tensor of the inference mode has no version that a view could share
            wrapper: SimulatedTensor = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
                cls,
                on_host.size(),
                strides=on_host.stride(),
                storage_offset=on_host.storage_offset(),
                dtype=on_host.dtype,
                device=torch.device("cpu"),
            )
        wrapper.on_host = on_host
        return wrapper

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return f"SimulatedTensor({self.on_host!r})"

    def __deepcopy__(self, memo: Any) -> Tensor:
        return SimulatedTensor(self.on_host.detach().clone()).requires_grad_(self.requires_grad)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return SimulatedTensor, (self.on_host,)

    def get_device(self) -> int:
        """The number of the device."""
        return 0

    def tolist(self) -> Any:
        """The values on the host: one read."""
        SimulatedGPU.current().count_read()
        return self.on_host.tolist()

    def numpy(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse, as CUDA does."""
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Compute one operation on the CPU, after the checks that CUDA makes."""
        kwargs = kwargs or {}
        if torch.is_inference_mode_enabled():  # there torch leaves it to us to take an operation apart
            out = func.decompose(*args, **kwargs)
            if out is not NotImplemented:
                return out
        name = func.overloadpacket.__name__
        tensors = [part for part in _leaves([*args, *kwargs.values()]) if isinstance(part, Tensor)]
        _check_devices(name, args, kwargs, tensors)
        gpu = SimulatedGPU.current()
        gpu.count(name, args)
        out = gpu.compute(name, func, _each(_host, args), {key: _each(_host, part) for key, part in kwargs.items()})
        if name in RESHAPED_IN_PLACE:
            with no_dispatch():
                func(*args, **kwargs)
            return args[0]
        wrapper_of = {id(_host(part)): part for part in tensors}
        return _each(lambda part: _wrapped(part, wrapper_of), out)


class SimulatedGPU(TorchFunctionMode):
    """`with SimulatedGPU() as gpu: ...`: device "cuda" exists, and `gpu.work` counts what it is asked for.

    Parameters
    ----------
    memory : float, default 80e9
        Bytes of the card. An operation whose result alone is larger raises torch.OutOfMemoryError.
    """

    _active: list[SimulatedGPU] = []  # noqa: RUF012 - a stack, as modes may be nested

    def __init__(self, memory: float = 80e9) -> None:
        super().__init__()
        self.memory, self.work = memory, DeviceWork()
        self._patches = ExitStack()

    @classmethod
    def current(cls) -> SimulatedGPU:
        """The simulation that is active; if none is, one whose counts are not read."""
        return cls._active[-1] if cls._active else SimulatedGPU()

    def __enter__(self) -> Self:
        card = SimpleNamespace(name="Simulated GPU", total_memory=int(self.memory), major=9, minor=0)
        answers = {
            "is_available": True,
            "device_count": 1,
            "current_device": 0,
            "synchronize": None,
            "get_device_name": card.name,
            "get_device_properties": card,
            "mem_get_info": (int(self.memory), int(self.memory)),
            "memory_reserved": 0,
            "memory_allocated": 0,
            "empty_cache": None,
            "is_current_stream_capturing": False,
        }
        for name, stand_in in (("CUDAGraph", self._graph), ("graph", simulated_capture)):
            self._patches.enter_context(mock.patch.object(torch.cuda, name, stand_in))
        for name, answer in answers.items():
            self._patches.enter_context(mock.patch.object(torch.cuda, name, lambda *_, answer=answer, **__: answer))
        self._patches.enter_context(
            mock.patch.object(torch._C._nn, "_parse_to", _place_of_module(torch._C._nn._parse_to))
        )
        future = torch.__future__
        overwrites = future.get_overwrite_module_params_on_conversion()  # else Module.to writes into its CPU tensors
        self._patches.callback(future.set_overwrite_module_params_on_conversion, overwrites)
        future.set_overwrite_module_params_on_conversion(True)
        self._active.append(self)
        return super().__enter__()

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        self._active.pop()
        self._patches.close()

    def count(self, name: str, args: Any) -> None:
        """Count one operation by its name in torch."""
        indices = (
            [part for part in args[1] or [] if isinstance(part, Tensor)] if name in MIXED_DEVICES - {"copy_"} else []
        )
        if name in READS or any(index.dtype == torch.bool for index in indices):
            self.count_read()
        self.count_upload(sum(not isinstance(index, SimulatedTensor) for index in indices))
        self.work.launches += name not in VIEWS | READS

    def count_read(self) -> None:
        """Count a value that the host waits for; inside a graph that is an error."""
        refuse_in_graph()
        self.work.reads += 1

    def count_upload(self, number: int = 1) -> None:
        """Count copies from the host; inside a graph they are an error."""
        if number:
            refuse_in_graph()
        self.work.uploads += number

    def compute(self, name: str, func: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
        """Compute on the host, and record the operation if a graph is being recorded."""
        graph = SimulatedGraph.active
        if graph is None or name in VIEWS:
            return func(*args, **kwargs)
        graph.before([part for part in _leaves([*args, *kwargs.values()]) if isinstance(part, Tensor)])
        out = func(*args, **kwargs)
        graph.after(func, args, kwargs, tensors_of(out))
        return out

    def count_launch(self) -> None:
        """Count one kernel, or one graph of kernels."""
        self.work.launches += 1

    def _graph(self) -> SimulatedGraph:
        return SimulatedGraph(self.count_launch)

    def check_size(self, result: Tensor) -> None:
        """Raise torch.OutOfMemoryError if a result is larger than the card."""
        if result.nbytes > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {result.nbytes / 2**20:.2f} MiB.")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == WRITE_DATA and isinstance(args[0], SimulatedTensor):
            args[0].on_host = args[1].on_host
            return None
        if func in TRANSFERS:
            return self._moved(func, args, kwargs)
        if "device" not in kwargs and func not in MAKERS:
            return func(*args, **kwargs)
        first_argument = args[0] if args else None
        device = kwargs.pop("device", None)
        on_card = isinstance(first_argument, SimulatedTensor) if device is None else _is_card(device)
        if on_card and kwargs.get("generator") is not None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if func in (torch.as_tensor, torch.asarray) and isinstance(first_argument, SimulatedTensor):
            return self._moved(
                Tensor.to,
                (first_argument, device or first_argument.device, kwargs.get("dtype", first_argument.dtype)),
                {},
            )
        if func is Tensor.new_tensor and first_argument is not None:
            func, args = torch.tensor, args[1:]
            kwargs = {"dtype": first_argument.dtype, **kwargs}
        if func in MAKERS and on_card:
            self.count_upload()
        result = func(*args, **kwargs)
        if not on_card:
            return _host(result)
        if isinstance(result, SimulatedTensor):
            return result
        self.work.launches += func not in MAKERS and func not in (torch.empty, torch.empty_strided)
        self.check_size(result)
        if SimulatedGraph.active is not None:  # its values are part of the graph
            SimulatedGraph.active.after(torch.clone, (result.clone(),), {}, (result,))
            return SimulatedTensor(result)
        return self._to_card(result)

    def _moved(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Tensor.to, cpu, cuda and type_as: copies between the devices."""
        tensor, arguments = args[0], list(args[1:])
        other = next((part for part in arguments if isinstance(part, Tensor)), kwargs.pop("other", None))
        device = kwargs.pop("device", None) if other is None else other.device
        if func in (Tensor.cpu, Tensor.cuda):
            device, arguments = torch.device("cpu") if func is Tensor.cpu else CARD, []
        places = [part for part in arguments if isinstance(part, (str, torch.device))]
        device = places[0] if places else device
        arguments = [part for part in arguments if not isinstance(part, (str, torch.device, Tensor))]
        if other is not None:
            arguments = [other.dtype, *arguments]
        on_card = isinstance(tensor, SimulatedTensor) if device is None else _is_card(device)
        if isinstance(tensor, SimulatedTensor) and not on_card:
            self.count_read()
            return Tensor.to(_Crossing.to_host(tensor), *arguments, **kwargs)
        if on_card and not isinstance(tensor, SimulatedTensor):
            self.count_upload()
            return self._to_card(Tensor.to(tensor, *arguments, **kwargs))
        return Tensor.to(tensor, *arguments, **kwargs) if arguments or kwargs else tensor

    @staticmethod
    def _to_card(tensor: Tensor) -> Tensor:
        if tensor.requires_grad and tensor.is_leaf:
            return SimulatedTensor(tensor.detach().clone()).requires_grad_()
        return _Crossing.to_card(tensor)


class _Crossing(torch.autograd.Function):
    """A copy between the devices through which gradients pass."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.on_host.clone() if isinstance(tensor, SimulatedTensor) else SimulatedTensor(tensor.clone())

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        return gradient.on_host if isinstance(gradient, SimulatedTensor) else SimulatedTensor(gradient)

    @classmethod
    def to_host(cls, tensor: SimulatedTensor) -> Tensor:
        """The numbers of a tensor on the device."""
        return (
            cls.apply(tensor) if tensor.requires_grad and torch.is_grad_enabled() else tensor.on_host.detach().clone()
        )

    @classmethod
    def to_card(cls, tensor: Tensor) -> Tensor:
        """The same numbers on the device."""
        if tensor.requires_grad and torch.is_grad_enabled():
            return cls.apply(tensor)
        return SimulatedTensor(tensor.detach().clone())


def _place_of_module(parse: Callable[..., Any]) -> Callable[..., Any]:
    """How Module.to reads its arguments, which is done below the level at which tensors say where they are."""

    def parsed(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], SimulatedTensor):
            return CARD, args[0].dtype, False, None
        return parse(*args, **kwargs)

    return parsed


def _is_card(device: Any) -> bool:
    return torch.device(device).type == "cuda"


def _leaves(parts: Iterable[Any]) -> Iterator[Any]:
    for part in parts:
        if isinstance(part, (list, tuple)):
            yield from part
        else:
            yield part


def _each(change: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to a value, or to each value of a list or a tuple."""
    return type(value)([_each(change, part) for part in value]) if type(value) in (list, tuple) else change(value)


def _host(part: Any) -> Any:
    return part.on_host if isinstance(part, SimulatedTensor) else part


def _wrapped(part: Any, wrapper_of: dict[int, Tensor]) -> Any:
    if not isinstance(part, Tensor) or isinstance(part, SimulatedTensor):
        return part
    if id(part) in wrapper_of:
        return wrapper_of[id(part)]
    SimulatedGPU.current().check_size(part)
    return SimulatedTensor(part)


def _check_devices(name: str, args: Any, kwargs: dict[str, Any], tensors: list[Tensor]) -> None:
    """Refuse what CUDA refuses."""
    others = [part for part in tensors if not isinstance(part, SimulatedTensor)]
    in_backward_pass = torch._C._current_graph_task_id() != -1  # where torch itself adds zeros, on what it sees: a CPU
    if name not in MIXED_DEVICES and not in_backward_pass and any(part.dim() > 0 for part in others):
        raise RuntimeError(f"{name}: Expected all tensors to be on the same device, but found cuda:0 and cpu!")
    if others and name in MIXED_DEVICES - {"copy_"} and not isinstance(args[0], SimulatedTensor):
        raise RuntimeError(f"{name}: indices should be on the device of the indexed tensor (cpu)")
    if any(isinstance(part, torch.Generator) for part in [*args, *kwargs.values()]):
        raise RuntimeError(f"{name}: Expected a 'cuda' device type for generator but found 'cpu'")
