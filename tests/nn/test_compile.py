"""`torch.compile` traces a forward as one graph, changes nothing, and leaves the parameters their names.

The tracer cannot follow the checks of shapes that the tests hook into the package, so this file runs itself without.
"""

import sys

import pytest
import torch

from fresh import printed
from specimens import close, model, padded, tokens


def compare(shape: str, width: int) -> None:
    """One shape, its second row padded from `width` to 6."""
    torch.compiler.reset()
    made = model(shape, dropout=0.1).train()
    names = list(made.state_dict())
    ids, keep = padded([tokens(6), tokens(width)], 6, "right")
    given = {"tokens": ids, "keep": None if width == 6 else keep}
    if shape == "encoder-decoder":
        given["source"] = tokens(2, 5)
    compiled = torch.compile(made, fullgraph=True, backend="eager", dynamic=False)
    compiled(**given).sum().backward()
    assert all(parameter.grad is not None for parameter in made.parameters())
    made.eval()
    close(compiled(**given), made(**given))
    assert list(made.state_dict()) == names


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["encoder", "decoder", "encoder-decoder"])
def test_one_graph(shape):
    printed(__file__, shape)


if __name__ == "__main__":
    for width in (6, 4):
        compare(sys.argv[1], width)
