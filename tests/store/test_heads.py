"""A model of any head, reading tokens or features, comes back from its files; and what does not fit is refused."""

import json

import pytest
import torch

from glassformer import ModelConfig, StackConfig, Transformer
from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.data.dataset import Tokenizers
from glassformer.data.tokenizer import Labels
from glassformer.nn.outputs import Classify, Lm, Regress, Tag, output_from_dict
from glassformer.store.checkpoint import load, save
from glassformer.store.weights import outline
from store import examples

HEADS = [
    *[Lm(), Classify(3), Classify(3, "attention", 0.1), Classify(3, "first"), Tag(4, 0.2)],
    *[Regress(2, "attention"), Lm(transform="gelu")],
]
STACK = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=12)
FEATURES = StackConfig(d_model=8, n_heads=2, n_layers=1, d_ff=12, n_features=5)
LABELS = Tokenizers(Labels(["a", "b", "c"]), Labels(["a", "b", "c"]))


def made(head, stack) -> Transformer:
    size = None if stack is FEATURES and not isinstance(head, Lm) else examples.tokenizers().target.vocab_size
    return examples.model(encoder=stack, decoder=None, head=head, tie_embeddings=False, vocab_size=size)


@pytest.mark.parametrize("head", HEADS, ids=str)
@pytest.mark.parametrize("stack", [STACK, FEATURES], ids=["tokens", "features"])
def test_saved_and_loaded(tmp_path, head, stack):
    model = made(head, stack)
    n = getattr(head, "n_labels", 0)
    known = Labels([str(label) for label in range(n)])
    pair = examples.tokenizers() if isinstance(head, Lm | Regress) else Tokenizers(known, known)
    if stack is STACK:
        pair = pair._replace(source=examples.tokenizers().source)
    loaded = load(save(tmp_path / "x", model, pair))
    assert loaded.model.config == model.config
    examples.same_weights(loaded.model, model)
    assert loaded.tokenizers.target.to_json() == pair.target.to_json()
    assert ModelConfig.from_dict(json.loads(json.dumps(model.config.to_dict()))) == model.config


def test_names_of_the_weights_are_public():
    names = {kind: {*made(head, FEATURES).state_dict()} for kind, head in (("c", HEADS[2]), ("t", HEADS[4]))}
    inputs = {"encoder.embedding.weight", "encoder.embedding.bias"}
    assert {*inputs, "head.weight", "head.bias", "head.pooling.query"} <= names["c"]
    assert {name for name in names["t"] if name.startswith("head.")} == {"head.weight", "head.bias"}
    assert {name for name in made(HEADS[1], STACK).state_dict() if "embedding" in name} == {"encoder.embedding.weight"}


def test_a_config_without_a_head_is_that_of_a_language_model():
    """As config.json was written before there were heads."""
    values = made(Lm(), STACK).config.to_dict()
    del values["head"], values["encoder"]["n_features"], values["encoder"]["token_dropout"]
    assert ModelConfig.from_dict(values) == made(Lm(), STACK).config


def test_another_label_set_is_refused(tmp_path):
    pair = LABELS._replace(target=Labels(["a", "b"]), source=examples.tokenizers().source)
    with pytest.raises(CheckpointError, match="label set has 2 labels, but the head scores 3"):
        save(tmp_path / "x", made(Classify(3), STACK), pair)


@pytest.mark.parametrize(("values", "message"), [
    ({"kind": "clasify", "n_labels": 2}, "head.kind='clasify' is not known.*Did you mean 'classify'"),
    ({"n_labels": 2}, "head.kind='None'"),
    ({"kind": "tag", "n_labels": 2, "pooling": "mean"}, "head.pooling is not a setting. Known: 'dropout', 'n_labels'"),
    ({"kind": "classify", "n_labels": 1}, "n_labels must be at least 2"),
])  # fmt: skip
def test_a_head_that_is_none_is_refused(values, message):
    with pytest.raises(ConfigError, match=message):
        output_from_dict(values)


def test_an_implausible_head_is_refused_before_it_is_built(tmp_path):
    pair = LABELS._replace(source=examples.tokenizers().source)
    folder = save(tmp_path / "x", made(Classify(3), STACK), pair)
    config = json.loads((folder / "config.json").read_text())
    config["head"]["n_labels"] = 10**12
    (folder / "config.json").write_text(json.dumps(config))
    examples.rewrite_manifest(folder)
    with pytest.raises(CheckpointError, match=r"n_labels=1e\+12"):
        load(folder)
    torch.manual_seed(0)


@pytest.mark.parametrize("config", [
    {"vocab_size": 8000, "encoder": FEATURES, "decoder": None, "head": Classify(3), "tie_embeddings": False},
    {"vocab_size": 8000, "encoder": None, "decoder": FEATURES, "head": Regress(2), "tie_embeddings": False},
    {"source_vocab_size": 9000, "encoder": FEATURES, "decoder": STACK},
    {"vocab_size": 8000, "source_vocab_size": 9000, "encoder": FEATURES, "decoder": FEATURES}
    | {"head": Tag(3), "tie_embeddings": False},
], ids=["encoder", "decoder", "source", "both"])  # fmt: skip
def test_a_vocabulary_that_nothing_uses_may_have_any_size(tmp_path, config):
    model = examples.model(**config)
    n = getattr(model.config.head, "n_labels", None)
    pair = LABELS if n else examples.tokenizers()
    assert load(save(tmp_path / "x", model, pair)).model.config == model.config


FROM_TOKENS = {"encoder": STACK, "decoder": FEATURES, "head": Regress(2), "tie_embeddings": False}


@pytest.mark.parametrize(("wrong", "config"), [
    ("vocab_size", FROM_TOKENS),
    ("source_vocab_size", FROM_TOKENS),
    ("vocab_size", {"encoder": FEATURES, "decoder": FEATURES, "tie_embeddings": False}),
    ("vocab_size", {"encoder": FEATURES, "decoder": STACK}),
], ids=["read by the encoder", "its own", "written", "read by the decoder"])  # fmt: skip
def test_a_vocabulary_that_something_uses_has_a_plausible_size(tmp_path, wrong, config):
    made = examples.model(**config)
    with pytest.raises(CheckpointError, match=f"says {wrong}=1e"):
        outline(made.config.to_dict() | {wrong: 10**20}, made.state_dict(), tmp_path / "config.json")
