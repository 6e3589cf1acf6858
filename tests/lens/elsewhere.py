"""A device that is none: tensors that say they are elsewhere, computed here, under the rules of an accelerator.

It has no float64, as Apple's has not. Its name is that of a device which torch lets one ask for without its library.
"""

from contextlib import contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

DEVICE = torch.device("lazy")
CROSSES = {"_to_copy", "copy_"}
INDEXES = {"index", "index_put_", "_index_put_impl_"}
"""Take whole numbers and flags of the processor, as the devices do."""


class There(torch.Tensor):
    """A tensor of the device; `held` are its numbers."""

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, held.stride(), held.storage_offset(), dtype=held.dtype, device=DEVICE
        )

    def __init__(self, held):
        self.held = held

    def tolist(self):
        """Its numbers, which torch reads from no subclass."""
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation, types, given=(), named=None):
        return computed(operation, given, named or {})


class Operations(TorchDispatchMode):
    """Every operation, also of those that make a tensor."""

    def __torch_dispatch__(self, operation, types, given=(), named=None):
        return computed(operation, given, named or {})


class Made(TorchFunctionMode):
    """What torch copies from Python's numbers to a device, and asks nobody: made here, and moved."""

    def __torch_function__(self, function, types, given=(), named=None):
        named = dict(named or {})
        if function is torch.tensor and "device" in named:
            return torch.tensor(*given, **{**named, "device": None}).to(named["device"])
        if function is torch.Tensor.new_tensor:
            return torch.tensor(given[1], dtype=given[0].dtype).to(given[0].device)
        if function in (torch.Tensor.__getitem__, torch.Tensor.__setitem__):
            places = given[1] if isinstance(given[1], tuple) else (given[1],)
            places = tuple(torch.tensor(each) if isinstance(each, list | range) else each for each in places)
            given = (given[0], places, *given[2:])
        return function(*given, **named)


@contextmanager
def accelerator():
    """While it lasts, tensors can be made on the device and moved there.

    Errors: `TypeError` for float64, which it does not have, and `RuntimeError` where its tensors meet those of the
    processor, but for single numbers and what is counted in an index.
    """
    with Made(), Operations():
        yield DEVICE


def computed(operation, given, named):
    """One operation, on the device where one of its tensors is there."""
    tensors = [each for each in tree_leaves((given, named)) if isinstance(each, torch.Tensor)]
    there = [each for each in tensors if isinstance(each, There)]
    name = operation.overloadpacket.__name__
    for each in tensors if there and name not in CROSSES else []:
        if not isinstance(each, There) and each.ndim and not (name in INDEXES and not each.is_floating_point()):
            raise RuntimeError(f"Expected all tensors to be on the same device, but {name} got two.")
    requested = named.get("device")
    made_there = bool(there) if requested is None else torch.device(requested).type == DEVICE.type
    if requested is not None:
        named = {**named, "device": torch.device("cpu")}
    out = operation(*tree_map_only(There, held, given), **tree_map_only(There, held, named))
    if name.endswith("_") and not name.startswith("_"):
        return given[0]
    return tree_map_only(torch.Tensor, placed, out) if made_there else out


def held(tensor):
    """The numbers of a tensor of the device."""
    return tensor.held


def placed(tensor):
    """A tensor of the device."""
    if tensor.dtype == torch.float64:
        raise TypeError("This device has no float64.")
    return There(tensor)
