"""The Decision Transformer of `transformers` predicts the same actions from the same weights, in float64."""

import numpy as np
import pytest
import torch

from control.played import agent
from glassformer.data.trajectories.episodes import TIMES
from glassformer.data.trajectories.windows import features, waves
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Regress
from glassformer.nn.transformer import Transformer
from glassformer.store.families import FAMILIES
from specimens import close

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

S, A, D, LONG = 3, 2, 16, 12


def ours(own) -> Transformer:
    torch.manual_seed(11)
    stack = StackConfig(
        d_model=D, n_heads=2, n_layers=2, d_ff=4 * D, n_features=own.n_features, positions="none", embedding_norm=True
    )
    made = Transformer(ModelConfig(decoder=stack, tie_embeddings=False, head=Regress(A, "none"))).double().eval()
    with torch.no_grad():
        for each in made.parameters():
            each.add_(torch.randn_like(each) * 0.3)
    return made


def theirs(model: Transformer, own):
    """Their model with the weights of ours: each of its four embeddings is some columns of our one map."""
    config = transformers.DecisionTransformerConfig(
        state_dim=S, act_dim=A, hidden_size=D, n_layer=2, n_head=2, max_ep_len=LONG, action_tanh=False
    )
    made = transformers.DecisionTransformerModel(config).double().eval()
    weights = model.state_dict()
    blocks = {name: each for name, each in weights.items() if name.startswith(("decoder.blocks.", "decoder.norm."))}
    renamed = FAMILIES["gpt2"].export(blocks, model.config.stack.n_heads)
    W, b = weights["decoder.embedding.weight"], weights["decoder.embedding.bias"]
    given = {name.replace("transformer.", "encoder.", 1): each for name, each in renamed.items()}
    for kind, (name, columns) in enumerate((("return", W[:, 3:4]), ("state", W[:, 4:7]), ("action", W[:, 7:9]))):
        given |= {f"embed_{name}.weight": columns, f"embed_{name}.bias": W[:, kind] + b}
    given["embed_timestep.weight"] = torch.as_tensor(waves(np.arange(LONG))).double() @ W[:, -TIMES:].T
    given |= {f"embed_ln.{name}": weights[f"decoder.embedding_norm.{name}"] for name in ("weight", "bias")}
    given |= {f"predict_action.0.{name}": weights[f"head.{name}"] for name in ("weight", "bias")}
    given["encoder.wpe.weight"] = torch.zeros_like(made.encoder.wpe.weight)
    missing, unexpected = made.load_state_dict(given, strict=False)
    assert not unexpected
    assert {name.split(".")[0] for name in missing} <= {"predict_state", "predict_return", "encoder"}, missing
    assert not [name for name in missing if ".h." in name or "ln_f" in name]
    return made


@pytest.mark.parametrize("first", [0, 5], ids=["from the beginning", "from the middle"])
def test_actions_are_theirs(first):
    own = agent(discrete=False).spaces
    model, random = ours(own), np.random.default_rng(1)
    B, L = 3, 6
    seen, acted = random.normal(size=(B, L, S)).astype(np.float32), random.normal(size=(B, L, A)).astype(np.float32)
    to_go, times = random.normal(size=(B, L)), np.tile(np.arange(first, first + L), (B, 1))
    read = torch.as_tensor(features(own, to_go, seen, acted, times)).double()
    answer = model(read.flatten(1, 2))[:, 1::3]
    expected = theirs(model, own)(
        states=read[:, :, 1, 4:7],
        actions=read[:, :, 2, 7:9],
        returns_to_go=read[:, :, 0, 3:4],
        timesteps=torch.as_tensor(times),
    )
    close(answer, expected.action_preds)
