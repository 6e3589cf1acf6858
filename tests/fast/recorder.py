"""A machine that records steps on a CPU, as a CUDA graph does: the same operations on the same tensors, once more."""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from glassformer.fast.graphs import Cuda

ASKS = {
    *("_local_scalar_dense", "nonzero", "masked_select", "equal", "is_nonzero", "bincount", "repeat_interleave"),
    *("_unique2", "unique_consecutive", "unique_dim"),
}
"""Operations after which the host knows what is in a tensor, so that it would wait for a device."""
INDEXES = {"index", "index_put", "index_put_", "_index_put_impl_"}
"""Operations that ask how many places a mask has, if they get one."""
GIVES = {"lift_fresh", "lift_fresh_copy"}
"""Operations on numbers of the host, which may have others when the record is played."""


class Forbidden(AssertionError):
    """A step looked into a tensor."""


class Unasked(TorchDispatchMode):
    """Refuses what would make the host wait, or what it says only once."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = [each for each in tree_flatten(args)[0] if isinstance(each, Tensor) and each.dtype == torch.bool]
        if name in ASKS or name in GIVES or (masks and name in INDEXES):
            raise Forbidden(f"a step may not use {name}")
        return self.run(func, args, kwargs or {})

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        return func(*args, **kwargs)


class Recording(Unasked):
    """Notes the operations. What they change is put back at the end: recording computes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[tuple[Any, Any, Any, Any]] = []
        self.before: dict[int, tuple[Tensor, Tensor]] = {}

    def run(self, func: Any, args: Any, kwargs: Any) -> Any:
        for schema, arg in zip(func._schema.arguments, args, strict=False):
            if schema.alias_info is not None and schema.alias_info.is_write:
                whole = torch.empty(0, dtype=arg.dtype).set_(arg.untyped_storage())
                self.before.setdefault(arg.untyped_storage().data_ptr(), (whole, whole.clone()))
        out = func(*args, **kwargs)
        self.noted.append((func, args, kwargs, out))
        return out

    def put_back(self) -> None:
        for whole, before in self.before.values():
            whole.copy_(before)

    def play(self) -> None:
        with torch.no_grad():
            for func, args, kwargs, out in self.noted:
                again = func(*args, **kwargs)
                for old, new in zip(tree_flatten(out)[0], tree_flatten(again)[0], strict=True):
                    if isinstance(old, Tensor) and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                        old.copy_(new)


class Recorder(Cuda):
    """In place of a device with graphs. Its records are counted, and how often they are played."""

    def __init__(self) -> None:
        self.records = self.plays = 0
        self.sizes = []
        self.late = self._open = 0  # `late`: how many steps had been asked for and not read, at the most

    def record(self, work):
        self.records += 1
        recording = Recording()
        with recording:
            work()
        recording.put_back()

        def play() -> None:
            self.plays += 1
            recording.play()

        return play

    def give(self, numbers, to):
        to.copy_(torch.tensor(numbers, dtype=to.dtype))

    def sent(self, ids):
        self.sizes.append(len(ids))
        self._open += 1
        self.late = max(self.late, self._open)
        copy = ids.clone()

        def received():
            self._open -= 1
            return copy.tolist()

        return received
