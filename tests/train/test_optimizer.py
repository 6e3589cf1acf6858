"""AdamW against fifteen lines of NumPy, what decays, and the optimizer's state by name through a checkpoint."""

import numpy as np
import pytest
import torch
from torch import nn

from fresh import printed
from glassformer.base.errors import CheckpointError
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.outputs import Lm
from glassformer.nn.transformer import Transformer
from glassformer.store.checkpoint import load, load_optimizer, save
from glassformer.store.folders import step_folder
from glassformer.train import evaluate as evaluate_module
from glassformer.train.loop import train_steps
from glassformer.train.muon import Adafactor, AdamW
from glassformer.train.optimizer import OPTIMIZERS, Average, build_optimizer, load_optimizer_state, optimizer_state
from glassformer.train.run.session import start
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OPTIMIZERS as NAMES
from glassformer.train.settings import OptimizerConfig
from train.examples import LAYOUTS, assert_close, assert_same, batch, follow, model, recipe, weights

RATE, BETAS, EPSILON, DECAY = 0.01, (0.9, 0.98), 1e-9, 0.3


def adamw(theta: np.ndarray, gradients: list[np.ndarray], decay: float) -> np.ndarray:
    """Loshchilov and Hutter 2019, algorithm 2, line by line."""
    m = v = np.zeros_like(theta)
    for t, g in enumerate(gradients, start=1):
        m = BETAS[0] * m + (1 - BETAS[0]) * g
        v = BETAS[1] * v + (1 - BETAS[1]) * g**2
        m_hat = m / (1 - BETAS[0] ** t)
        v_hat = v / (1 - BETAS[1] ** t)
        theta = theta - RATE * (m_hat / (np.sqrt(v_hat) + EPSILON) + decay * theta)
    return theta


def built(network, **settings):
    values = {"beta1": BETAS[0], "beta2": BETAS[1], "epsilon": EPSILON, "weight_decay": DECAY} | settings
    return build_optimizer(network, OptimizerConfig(**values), learning_rate=RATE)


def train(network, optimizer, steps: int) -> None:
    """Steps along random gradients, the same whenever the generator stands at the same place."""
    for _ in range(steps):
        for parameter in network.parameters():
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()


@pytest.mark.parametrize("steps", [50, pytest.param(1_000, marks=pytest.mark.slow)])
def test_steps_equal_numpy(steps):
    network = model()
    optimizer, before = built(network), weights(network)
    seen: dict[str, list[np.ndarray]] = {name: [] for name in before}
    for _ in range(steps):
        train(network, optimizer, 0)
        for name, parameter in network.named_parameters():
            parameter.grad = torch.randn_like(parameter) * 10 ** torch.randn(())
            seen[name].append(parameter.grad.numpy().copy())
        optimizer.step()
    decays = {id(p) for group in optimizer.param_groups if group["weight_decay"] for p in group["params"]}
    assert 0 < len(decays) < len(before)
    for name, parameter in network.named_parameters():
        expected = adamw(before[name].numpy(), seen[name], DECAY if id(parameter) in decays else 0.0)
        np.testing.assert_allclose(parameter.detach().numpy(), expected, rtol=1e-12, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_linear_maps_decay_and_nothing_else(layout, positions):
    network = model(layout, positions=positions)
    decays = {id(p): group["weight_decay"] for group in built(network).param_groups for p in group["params"]}
    assert len(decays) == len(list(network.parameters()))
    roles = {"query", "key", "value", "output", "up", "down"}
    for name, parameter in network.named_parameters():
        *_, role, kind = name.split(".")
        assert decays[id(parameter)] == (DECAY if role in roles and kind == "weight" else 0.0), name


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_the_dense_map_of_a_head_is_a_hidden_matrix(name):
    """As in BERT; the matrix of the scores is none, whether it is the embedding's or its own."""
    sizes = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=12)
    for tie in (True, False):
        network = Transformer(ModelConfig(vocab_size=9, encoder=sizes, head=Lm("gelu"), tie_embeddings=tie))
        groups = built(network, name=name).param_groups
        hidden = {id(p) for group in groups if group["weight_decay"] for p in group["params"]}
        names = {each for each, p in network.named_parameters() if id(p) in hidden}
        assert {each for each in names if "blocks." not in each} == {"head.transform.dense.weight"}


def test_a_block_learns_slower_than_the_one_above_it():
    network = model(n_layers=3)
    scales = {id(p): g["scale"] for g in built(network, layer_decay=0.5).param_groups for p in g["params"]}
    for name, parameter in network.named_parameters():
        steps = 0 if name.startswith("head.") else 1 if ".norm." in name.replace("blocks", "") else 4
        if "blocks." in name:
            steps = 3 - int(name.split("blocks.")[1][0])
        assert scales[id(parameter)] == 0.5**steps, name


def test_the_scale_reaches_the_step():
    network = model()
    optimizer = built(network, layer_decay=0.5)
    next(iter(train_steps(network, [batch("encoder-decoder", [(3, 2)])], optimizer, Schedule("constant", 0.25, 1))))
    rates = {group["scale"]: group["lr"] for group in optimizer.param_groups}
    assert rates == {1.0: 0.25, 0.5: 0.125, 0.25: 0.0625}


def test_what_muon_leaves_to_adamw_has_a_rate_of_its_own():
    """On top of the layer decay; matrices of blocks keep theirs."""
    network = model(n_layers=2)
    plain = built(network, name="muon", layer_decay=0.5)
    scaled = built(network, name="muon", layer_decay=0.5, adamw_scale=3.0)
    before = {id(p): g["scale"] for g in plain.param_groups for p in g["params"]}
    after = {id(p): g["scale"] for g in scaled.param_groups for p in g["params"]}
    hidden = {id(p) for group in scaled.matrices for p in group["params"]}
    assert 0 < len(hidden) < len(after)
    assert after == {each: scale * (1.0 if each in hidden else 3.0) for each, scale in before.items()}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_by_name_goes_through_a_checkpoint(tmp_path, name):
    tokenizers = build_tokenizers(TokenizerConfig(), [Pair("a b c", "d e f")])
    one = model(vocab=tokenizers.target.vocab_size)
    optimizer = build_optimizer(one, OptimizerConfig(name), learning_rate=RATE)
    train(one, optimizer, 3)
    save(tmp_path / "saved", one, tokenizers, optimizer=optimizer_state(optimizer, one))
    two = load(tmp_path / "saved").model
    resumed = build_optimizer(two, OptimizerConfig(name), learning_rate=RATE)
    load_optimizer_state(resumed, two, load_optimizer(tmp_path / "saved"))
    for network, its_optimizer in ((one, optimizer), (two, resumed)):
        torch.manual_seed(7)
        train(network, its_optimizer, 3)
    assert_same(weights(one), weights(two))
    states = [optimizer_state(each, network) for each, network in ((optimizer, one), (resumed, two))]
    assert states[0].keys() == dict(one.named_parameters()).keys()
    for name, slots in states[0].items():
        assert_same(slots, states[1][name])


def test_state_of_another_model_is_refused():
    one, other = model(), model(d_ff=10)
    optimizer = built(one)
    train(one, optimizer, 1)
    state = optimizer_state(optimizer, one)
    with pytest.raises(CheckpointError, match=r"exp_avg of .*feed_forward.* parameter, \(10, 8\); it has \(12, 8\)"):
        load_optimizer_state(built(other), other, state)
    del state["encoder.norm.weight"]
    with pytest.raises(CheckpointError, match=r"only one of the two has encoder\.norm\.weight\. Resume"):
        load_optimizer_state(built(one), one, state)


def test_no_state_is_good_of_an_optimizer_that_made_no_update():
    network = model()
    for empty in ({}, {name: {} for name, _ in network.named_parameters()}):
        load_optimizer_state(built(network), network, empty, unused=True)
        with pytest.raises(CheckpointError, match="saved optimizer must"):
            load_optimizer_state(built(network), network, empty)


def test_every_optimizer_has_its_settings():
    assert sorted(OPTIMIZERS) == sorted(NAMES)


def test_state_of_another_optimizer_is_refused():
    network = model()
    optimizer = built(network)
    train(network, optimizer, 1)
    other = build_optimizer(network, OptimizerConfig("adafactor"), learning_rate=RATE)
    with pytest.raises(CheckpointError, match="exp_avg, exp_avg_sq, step, but Adafactor keeps "):
        load_optimizer_state(other, network, optimizer_state(optimizer, network))


# --- The average of the weights: its closed form, that it leaves no trace, and that it is what is scored and kept


MEMORY = 0.7


def stepped(average: Average, network, steps: int) -> list[dict[str, torch.Tensor]]:
    """Random weights after each step, taken in."""
    seen = []
    for step in range(steps):
        torch.manual_seed(step)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.normal_()
        average.update()
        seen.append(weights(network))
    return seen


@pytest.mark.parametrize("steps", [1, 2, 9])
def test_closed_form(steps):
    """sum_i memory^(n - i) weights_i / sum_i memory^(n - i)."""
    network = model()
    average = Average(network, MEMORY)
    seen = stepped(average, network, steps)
    shares = [MEMORY ** (steps - i) for i in range(1, steps + 1)]
    expected = {
        name: sum(share * each[name] for share, each in zip(shares, seen, strict=True)) / sum(shares)
        for name in seen[0]
    }
    with average.in_place(steps):
        assert_close(weights(network), expected)
    assert_same(weights(network), seen[-1])


def test_own_weights_come_back_after_an_error_too():
    network = model()
    average = Average(network, MEMORY)
    (own,) = stepped(average, network, 1)
    stepped(average, network, 0)
    with pytest.raises(RuntimeError, match="in between"), average.in_place(1):
        raise RuntimeError("in between")
    assert_same(weights(network), own)


def test_before_the_first_step_the_model_keeps_its_own():
    network = model()
    before = weights(network)
    with Average(network, MEMORY).in_place(0):
        assert_same(weights(network), before)


def test_averaging_changes_no_step(tmp_path):
    plain, averaged = (start(recipe(optimizer__average=memory), tmp_path / str(memory)) for memory in (0.0, MEMORY))
    follow(plain)
    follow(averaged)
    assert_same(weights(plain.model), weights(averaged.model))
    kept = load(step_folder(averaged.run, averaged.step))
    with averaged.average.in_place(averaged.step):
        assert_same(weights(kept.model), weights(averaged.model))
    assert not torch.equal(*(each.head.weight for each in (kept.model, plain.model)))


def test_the_average_is_what_is_scored(tmp_path, monkeypatch):
    session = start(recipe(optimizer__average=MEMORY), tmp_path / "run")
    scored, evaluate = [], evaluate_module.evaluate_model

    def seen(scoring, *arguments):
        network = scoring.model
        with session.average.in_place(session.step):
            average = weights(network)
        scored.append(all(torch.equal(each, average[name]) for name, each in weights(network).items()))
        return evaluate(scoring, *arguments)

    monkeypatch.setattr(evaluate_module, "evaluate_model", seen)
    follow(session)
    assert scored == [True, True, True]


def test_checkpoint_without_an_average_is_refused(tmp_path):
    session = start(recipe(), tmp_path / "run")
    follow(session)
    saved = load_optimizer(step_folder(session.run, session.step))
    with pytest.raises(CheckpointError, match="needs the average in its checkpoint"):
        Average(session.model, MEMORY).restore(saved)


# --- The optimizers as torch has them, to the bit, and without its compiler


@pytest.mark.parametrize(("ours", "theirs", "settings"), [
    (AdamW, torch.optim.AdamW, {"lr": 0.1, "weight_decay": 0.3, "betas": (0.8, 0.9), "fused": True}),
    (Adafactor, torch.optim.Adafactor, {"lr": 0.1, "weight_decay": 0.3}),
], ids=["AdamW", "Adafactor"])  # fmt: skip
def test_every_bit_is_torchs(ours, theirs, settings):
    def trained(kind):
        torch.manual_seed(1)
        layer = nn.Linear(3, 4)
        optimizer = kind([{"params": [layer.weight]}, {"params": [layer.bias], "weight_decay": 0.0}], **settings)
        for _ in range(5):
            optimizer.zero_grad(set_to_none=True)
            layer(torch.randn(2, 3)).square().sum().backward()
            optimizer.step()
        assert all(each.requires_grad for each in layer.parameters())
        return [each.detach() for each in layer.parameters()]

    assert all(torch.equal(a, b) for a, b in zip(trained(ours), trained(theirs), strict=True))


TRAINING = """
import sys
from glassformer.cli.main import main
code = main(["train", "lm", "--out", "run", "--training.steps=1", "--training.samples=0", "--training.evaluate_every=0",
             "--optimizer.name=" + sys.argv[1], "--model.d-model=8", "--model.n-heads=1", "--model.n-layers=1",
             "--data.text=text.txt", "--training.precision=float32"])
code = code or main(["generate", "run", "--prompt", "a", "--max-new-tokens", "1"])
sys.exit("torch's compiler was imported" if "torch._dynamo" in sys.modules else code)
"""


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_and_generating_do_without_torchs_compiler(tmp_path, name):
    (tmp_path / "text.txt").write_text("a line of text\n" * 100, "utf-8")
    printed("-c", TRAINING, name, cwd=tmp_path)


def test_a_step_keeps_no_graph_and_leaves_gradients_on():
    weight = nn.Parameter(torch.ones(2))
    optimizer = AdamW([weight], lr=0.1)
    weight.sum().backward()
    optimizer.step()
    assert torch.is_grad_enabled()
    assert weight.grad_fn is None
