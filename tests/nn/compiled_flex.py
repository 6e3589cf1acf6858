"""FlexAttention's compiled kernel beside the reference, as a program: `python compiled_flex.py cuda [NAME...]`.

In a process of its own, as the tests' checks of shapes stand around every function, and no kernel can be made of those.
On a processor torch's C++ template stands in for the accelerator's and has no gradients; blocks are left out in both.
"""

import sys
from dataclasses import fields, replace

import torch
from torch import Tensor

from glassformer.base.schemes import Pattern
from glassformer.nn.flex import _adding, blocks_of, compiled
from glassformer.nn.mask import Mask
from glassformer.nn.rules import ATTEND

B, H, G, K = 2, 4, 2, 16


def packed(S: int, *numbers: int) -> Tensor:
    """[rows, S]: each row cut into as many documents of one length."""
    return torch.stack([torch.arange(S) * n // S for n in numbers])


def masks(T: int, S: int) -> dict[str, Mask]:
    """What a mask may say, by name; the last row of `keep` reads nothing."""
    keep = torch.rand(B, S) < 0.6
    keep[-1] = False
    own = packed(T, 5, 3)
    return {
        "nothing": Mask(),
        "causal": Mask(causal=True),
        "keep": Mask(keep=keep),
        "documents": Mask(causal=True, documents=packed(S, 5, 3), query_documents=own),
        "documents of all rows": Mask(documents=packed(S, 4)[0], query_documents=packed(T, 4)[0]),
        "documents and keep": Mask(documents=packed(S, 5, 3), query_documents=own, keep=keep),
        "window": Mask(causal=True, window=20),
        "stride": Mask(causal=True, pattern=Pattern(stride=150), documents=packed(S, 2)[0], query_documents=own[:1]),
        "prefix": Mask(causal=True, prefix=torch.tensor([S, 0, *range(3, B + 1)])),
        "prefix of all rows": Mask(causal=True, prefix=torch.tensor([S // 2])),
        "global": Mask(pattern=Pattern(window=9, global_tokens=3), keep=keep),
        "positions": Mask(causal=True, query_positions=torch.randint(S, (B, T)), key_positions=torch.randperm(S) - 3),
        "bias": Mask(causal=True, keep=keep, bias=torch.randn(H, T, S)),
        "bias of each row": Mask(documents=packed(S, 5, 3), query_documents=own, bias=torch.randn(B, H, T, S)),
        "learned bias": Mask(causal=True, keep=keep, bias=torch.randn(H, T, S, requires_grad=True)),
    }


def moved(mask: Mask, device: torch.device) -> Mask:
    """The mask on another device; a bias that learns is a leaf there, too."""
    given = {each.name: getattr(mask, each.name) for each in fields(mask) if each.init}
    tensors = {name: value for name, value in given.items() if isinstance(value, Tensor)}
    return replace(
        mask, **{name: each.detach().to(device).requires_grad_(each.requires_grad) for name, each in tensors.items()}
    )


def apart(T: int, S: int, mask: Mask, device: torch.device) -> float:
    """The largest difference from the reference: in value, and in every gradient where there are any."""
    learns = device.type != "cpu"
    q, k, v = (torch.randn(B, n, m, K, device=device, requires_grad=learns) for n, m in ((H, T), (G, S), (G, S)))
    inputs = [q, k, v, *([mask.bias] if mask.bias is not None and mask.bias.requires_grad else [])]
    answers = []
    for backend in ("flex", "reference"):
        with torch.set_grad_enabled(learns):
            if backend == "flex" and not learns:
                blocks, _ = blocks_of(mask, T, S, device)
                output = compiled()(q * 0.3, k, v, _adding(mask.bias, q.dtype), blocks)
            else:
                output = ATTEND["softmax"][backend](q, k, v, mask, scale=0.3)
        weights = torch.linspace(-1, 2, output.numel(), device=device).view_as(output)
        answers.append([output, *(torch.autograd.grad((output * weights).sum(), inputs) if learns else ())])
    return max((a - b).abs().max().item() for a, b in zip(*answers, strict=True))


def main(device: str, *names: str) -> None:
    """Every mask, or those named, at lengths that blocks divide and that they do not."""
    torch.manual_seed(0)
    for T, S in ((256, 256), (70, 300)):
        for name, mask in masks(T, S).items():
            if not names or name in names:
                error = apart(T, S, moved(mask, torch.device(device)), torch.device(device))
                assert error < 1e-3, f"{name}, {T} x {S}: {error} apart"
                print(f"{name}, {T} x {S}: {error:.1e}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
