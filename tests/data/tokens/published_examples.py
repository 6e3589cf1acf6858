"""Tokenizers as the published models have them, learned from one short text."""

import json
from functools import cache
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from glassformer.data.tokens.byte_level import CUTS, IN_NO_TEXT
from glassformer.data.tokens.sentencepiece import FORMS, SPACE

TEXT = "The model reads a text. It reads  the text again:\n\tand a déjà vu, 12 times 😀. 1234 it's IT'S!\n\n    four"
END = "<|end|>"
WHOLE = "zebra"
OWN = ("<unk>", "<s>", "</s>")
FORM_NAMES = {
    "Llama 2": FORMS[0],
    **{
        f"Mistral, {(form.pre_tokenizer or {})['prepend_scheme']}{', words' * form.by_word}": form for form in FORMS[1:]
    },
}


@cache
def of_bytes(name: str, size: int = 400) -> str:
    """The tokenizer.json of byte-level BPE on the words of one of `CUTS`; its special token has the last id.

    Llama 3 takes whole words of its vocabulary first, so it has one that no merges lead to. GPT-NeoX finds runs of
    spaces before all else, and lacks the bytes that no text has.
    """
    made = Tokenizer(models.BPE(ignore_merges=name == "Llama 3"))
    made.pre_tokenizer, made.decoder = CUTS[name].made(), decoders.ByteLevel()
    letters = sorted({*pre_tokenizers.ByteLevel.alphabet()} - (IN_NO_TEXT if CUTS[name].composed else set()))
    learned = trainers.BpeTrainer(vocab_size=size, initial_alphabet=letters, show_progress=False)
    made.train_from_iterator([TEXT] * 3, learned)
    record: dict[str, Any] = json.loads(made.to_str())
    if name == "Llama 3":
        record["model"]["vocab"][WHOLE] = len(record["model"]["vocab"])
    made = Tokenizer.from_str(json.dumps(record))
    if CUTS[name].composed:
        made.normalizer = normalizers.NFC()
        made.add_tokens([" " * length for length in (7, 4, 2)])
    made.add_special_tokens([END])
    return made.to_str()


@cache
def of_sentencepiece(name: str) -> str:
    """The tokenizer.json of SentencePiece's BPE: some characters of the text, all bytes, runs of spaces."""
    form, learned = FORM_NAMES[name], Tokenizer(models.BPE())
    learned.normalizer, learned.pre_tokenizer = normalizers.Replace(" ", SPACE), pre_tokenizers.Metaspace()
    learned.train_from_iterator([TEXT.replace("é", "")] * 3, trainers.BpeTrainer(vocab_size=120, show_progress=False))
    record: dict[str, Any] = json.loads(learned.to_str())
    two, four = SPACE * 2, SPACE * 4
    tokens = [*OWN, *(f"<0x{byte:02X}>" for byte in range(256)), *record["model"]["vocab"], two, four]
    merges = [*record["model"]["merges"], [SPACE, SPACE], [two, two]]
    record |= {"normalizer": form.normalizer, "pre_tokenizer": form.pre_tokenizer, "decoder": form.decoder()}
    record["model"] |= {"vocab": {token: id for id, token in enumerate(tokens)}, "merges": merges}
    record["model"] |= {"unk_token": OWN[0], "fuse_unk": True, "byte_fallback": True}
    made = Tokenizer.from_str(json.dumps(record))
    made.add_special_tokens(list(OWN))
    return made.to_str()


PUBLISHED = {**dict.fromkeys(CUTS, of_bytes), **dict.fromkeys(FORM_NAMES, of_sentencepiece)}


def json_of(name: str) -> str:
    """The tokenizer.json of one of `PUBLISHED`."""
    return PUBLISHED[name](name)
