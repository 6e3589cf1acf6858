"""`torch.compile` traces a forward as one graph, changes nothing, and leaves the parameters their names."""

from __future__ import annotations

import pytest
import torch

from specimens import close, model, padded, production, tokens


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["encoder", "decoder", "encoder-decoder"])
@pytest.mark.parametrize("where", [None, "right"])
def test_one_graph(shape, where):
    torch.compiler.reset()
    made = model(shape)
    names = list(made.state_dict())
    rows = [tokens(6), tokens(6 if where is None else 4)]
    ids, keep = padded(rows, 6, "right")
    given = {"tokens": ids, "keep": None if where is None else keep}
    if shape == "encoder-decoder":
        given["source"] = tokens(2, 5)
    with production():
        compiled = torch.compile(made, fullgraph=True, backend="eager", dynamic=False)
        close(compiled(**given), made(**given))
    assert list(made.state_dict()) == names
