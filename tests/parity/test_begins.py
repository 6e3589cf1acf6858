"""Which token begins a text of an imported tokenizer: as transformers has it, whatever `add_bos_token` says."""

import json

import pytest
from tokenizers import Tokenizer, models, processors

from glassformer.data.tokens.vocabulary import BOS
from glassformer.store.pretrained import Values, ends_in

transformers = pytest.importorskip("transformers")
FIRST = {
    "a template": processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", 0)]),
    "a template of the text": processors.TemplateProcessing(single="$A", pair="$A $B", special_tokens=[]),
    "bytes": processors.ByteLevel(),
    "several": processors.Sequence(
        [
            processors.ByteLevel(),
            processors.TemplateProcessing(single="</s> $A", pair="</s> $A $B", special_tokens=[("</s>", 1)]),
        ]
    ),
    "none": None,
}


@pytest.mark.parametrize("flag", [True, False, None])
@pytest.mark.parametrize("kind", ["PreTrainedTokenizerFast", "LlamaTokenizerFast", "GPT2TokenizerFast"])
@pytest.mark.parametrize("first", FIRST)
def test_begins_as_transformers_does(tmp_path, first, kind, flag):
    tokenizer = Tokenizer(models.BPE({"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4}, [], unk_token="<unk>"))
    tokenizer.add_special_tokens(["<s>", "</s>", "<unk>"])
    if FIRST[first] is not None:
        tokenizer.post_processor = FIRST[first]
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    settings = {"tokenizer_class": kind, "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings |= {} if flag is None else {"add_bos_token": flag}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(settings), "utf-8")
    written = (tmp_path / "tokenizer.json").read_text("utf-8")
    ends = ends_in(Values({"bos_token_id": 0, "eos_token_id": 1}, tmp_path), tmp_path, written)
    before = transformers.AutoTokenizer.from_pretrained(tmp_path)("ab")["input_ids"][:-2]
    assert ([ends.ids[BOS]] if ends.begins else []) == before
    assert bool(ends.notes) == (flag is not None and flag != bool(before))
