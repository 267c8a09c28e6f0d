"""An Apple GPU, as far as a CPU can play one: tensors that say they are on mps, and that refuse float64."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_any, tree_map

aten = torch.ops.aten


class OnMps(Tensor):
    """A tensor whose numbers are on the CPU, and whose device is mps:0."""

    numbers: Tensor

    @staticmethod
    def __new__(cls: type[OnMps], numbers: Tensor) -> OnMps:
        if numbers.dtype in (torch.float64, torch.complex128):
            raise TypeError("the MPS framework doesn't support float64")
        layout: Any = {"strides": numbers.stride(), "storage_offset": numbers.storage_offset(), "dtype": numbers.dtype}
        made: Any = Tensor._make_wrapper_subclass(cls, numbers.shape, **layout, device=torch.device("mps", 0))
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,  # noqa: ANN401
        types: Any,  # noqa: ANN401
        args: Any = (),  # noqa: ANN401
        kwargs: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        return _run(func, args, kwargs or {})


def _is_mps(value: object) -> bool:
    return isinstance(value, torch.device) and value.type == "mps"


def _run(func: Any, args: Any, kwargs: Any) -> Any:  # noqa: ANN401
    """The operation on the CPU; the results are on mps if it was asked for, or if an argument was there."""

    def plain(value: Any) -> Any:  # noqa: ANN401
        return value.numbers if isinstance(value, OnMps) else torch.device("cpu") if _is_mps(value) else value

    asked, there = kwargs.get("device"), tree_any(lambda value: isinstance(value, OnMps), (args, kwargs))
    plain_args, plain_kwargs = tree_map(plain, (args, kwargs))
    made = func(*plain_args, **plain_kwargs)
    if func._schema.is_mutable:  # in place: the result, if any, is the first argument
        return args[0] if func._schema.returns else None
    here = there if asked is None else _is_mps(asked)
    return tree_map(lambda value: OnMps(value) if isinstance(value, Tensor) else value, made) if here else made


class _Operations(TorchDispatchMode):
    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing is compiled here, and importing the compiler takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        return _run(func, args, kwargs or {})


class _Methods(TorchFunctionMode):
    """x[...] and ~x, for which PyTorch would ask the driver."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        others: dict[Any, Any] = {Tensor.__getitem__: _item, Tensor.__invert__: torch.bitwise_not}
        if func in others and isinstance(args[0], OnMps):
            return others[func](*args)
        return func(*args, **(kwargs or {}))


def _item(x: Tensor, index: Any) -> Tensor:  # noqa: ANN401
    index = index if isinstance(index, tuple) else (index,)
    if any(isinstance(each, Tensor) for each in index):
        return aten.index.Tensor(x, [each if isinstance(each, Tensor) else None for each in index])
    if ... in index:
        at, missing = index.index(...), x.ndim + 1 - sum(each is not None for each in index)
        index = (*index[:at], *[slice(None)] * missing, *index[at + 1 :])
    dim = 0
    for each in index:
        if each is None:
            x, dim = x.unsqueeze(dim), dim + 1
        elif isinstance(each, slice):
            x, dim = aten.slice.Tensor(x, dim, each.start, each.stop, each.step or 1), dim + 1
        else:
            x = x.select(dim, each)
    return x


@contextmanager
def fake_mps() -> Iterator[None]:
    """Inside, PyTorch has an Apple GPU."""
    future: Any = torch.__future__
    mps: Any = torch.backends.mps
    operations: Any = _Operations
    available = mps.is_available
    before = future.get_overwrite_module_params_on_conversion()
    future.set_overwrite_module_params_on_conversion(True)
    mps.is_available = lambda: True
    try:
        with _Methods(), operations():
            yield
    finally:
        mps.is_available = available
        future.set_overwrite_module_params_on_conversion(before)
