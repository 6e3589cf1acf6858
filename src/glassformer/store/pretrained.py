"""Reading a model that another library saved: a Hugging Face folder, with config, weights and tokenizer."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from glassformer.base.errors import CheckpointError, ConfigError, DataError, GlassformerError
from glassformer.data.tokenizer import Tokenizer
from glassformer.data.tokens.exported import Adopted, adopt, returned
from glassformer.data.tokens.sentencepiece import NEVER, SentencePieceTokenizer
from glassformer.data.tokens.vocabulary import BOS, EOS, PAD, SPECIALS, UNK
from glassformer.nn.transformer import Transformer
from glassformer.store.families import FAMILIES
from glassformer.store.family import Family, Values, renamed
from glassformer.store.files import followed, parse_json, read_json, read_text, readable, refuse_unnamable
from glassformer.store.folders import MANIFEST
from glassformer.store.weights import outline, read_tensors, rebuild, refuse_difference, reordered, unique_weights

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
TOKENIZER_CONFIG, GENERATION = "tokenizer_config.json", "generation_config.json"
SHARDS = f"{WEIGHTS}.index.json"
PICKLE = "pytorch_model.bin"
ENDS = {PAD: "pad_token_id", BOS: "bos_token_id", EOS: "eos_token_id", UNK: "unk_token_id"}
"""The settings of config.json that say which of their ids our special tokens are."""


class Pretrained(NamedTuple):
    """A model of another library, as ours: in evaluation mode, in float32, with our ids."""

    model: Transformer
    tokenizer: Tokenizer
    family: str
    notes: list[str]
    """What a user should know about differences between the two."""
    documents: bool
    """Whether it knows the token that ends a text."""


def read_pretrained(folder: Path) -> Pretrained:
    """Read a Hugging Face folder: config.json, model.safetensors (or shards of it) and tokenizer.json.

    Errors: `CheckpointError` naming the file, for a model of another family, one that computes what ours cannot,
    weights that do not fit the config, and a tokenizer that ours cannot replace.
    """
    refuse_other_folder(folder)
    values = Values(object_in(folder / CONFIG), folder / CONFIG)
    name, family = family_of(values)
    assert family.shape is not None
    with naming(folder / CONFIG, ConfigError):
        config = family.shape.read(values)
    with naming(folder / TOKENIZER, DataError):
        text = read_text(followed(folder / TOKENIZER))
        own = returned(text)
        ends = ends_in(values, folder, text) if own is None else Ends({}, [], begins=True, notes=[])
        adopted = (
            adopt(text, *ends[:2], begins=ends.begins)
            if own is None
            else Adopted(own[0], [*range(own[0].vocab_size)], [])
        )
    if not (isinstance(adopted.tokenizer, SentencePieceTokenizer) and adopted.tokenizer.form.front != NEVER):
        path = folder / TOKENIZER_CONFIG
        if path.exists() and object_in(path).get("add_prefix_space"):
            raise CheckpointError(
                f"{path}: a text is read as it is here, but add_prefix_space puts a space before it. If the model was "
                "trained without, set it to false; otherwise import another model."
            )
    found = weights_in(folder, family, tied=config.tie_embeddings)
    skeleton = outline(config.to_dict(), found, folder / CONFIG)
    ours = unique_weights(skeleton)
    n_heads = config.stack.n_heads
    refuse_difference(folder / WEIGHTS, family.export(ours, n_heads), found)
    size = skeleton.config.vocab_size or 0
    largest = max(row for row in adopted.rows if row is not None)
    if largest >= size:
        raise CheckpointError(
            f"{folder}: the tokenizer has the id {largest}, but the model has {size} tokens, from 0. Use the "
            "tokenizer.json that was saved with these weights."
        )
    found = {name: finite(each.float(), name, folder) for name, each in found.items()}
    weights = family.load(found, ours, n_heads)
    if own is None:  # otherwise the ids are ours, and each token is predicted as it was here
        config, weights = reordered(config, weights, adopted.rows)
    model = rebuild(config.to_dict(), weights, folder, torch.device("cpu"))
    if own is not None:
        return Pretrained(model, own[0], name, [], own[1])
    notes = [*adoption_notes(adopted, skeleton.config.vocab_size or 0), *ends.notes]
    return Pretrained(model, adopted.tokenizer, name, notes, adopted.rows[EOS] is not None)


@contextmanager
def naming(path: Path, kind: type[GlassformerError]) -> Generator[None]:
    """Turn an error of this kind about the contents of a file into a `CheckpointError` that names the file."""
    try:
        yield
    except kind as error:
        raise CheckpointError(f"{path}: {error}") from None


def adoption_notes(adopted: Adopted, size: int) -> list[str]:
    """The tokens of a vocabulary of this size that the imported model can no longer write, if there are any."""
    notes: list[str] = []
    if left := size - len({row for row in adopted.rows if row is not None}):
        such = f", such as {adopted.left_out[0]}" if adopted.left_out else ""
        notes.append(f"left out: {left} tokens that no text has{such}")
    if adopted.rows[BOS] is None:
        notes.append("no beginning: the tokenizer has no special token that begins a text, so none comes first")
    if adopted.rows[EOS] is None:
        notes.append("no end: the tokenizer has no special token that ends a text, so every text fills its length")
    if adopted.rows[BOS] is not None and not adopted.tokenizer.begins:
        notes.append("begins with the text itself: the tokenizer puts no token before it, so none comes first")
    if adopted.tokenizer.ends:
        notes.append(f"ends: {', '.join(adopted.tokenizer.tokens(adopted.tokenizer.ends))} count as <eos>, too")
    if lacking := sorted(getattr(adopted.tokenizer, "lacking", ())):
        named = ", ".join(f"0x{byte:02X}" for byte in lacking)
        notes.append(f"the vocabulary lacks {len(lacking)} bytes of UTF-8, which become <unk>: {named}")
    own = [SPECIALS[id] for id in (PAD, BOS, UNK) if adopted.rows[id] not in (None, adopted.rows[EOS])]
    return [*notes, f"never written, as everywhere here: {', '.join(own)}"] if own else notes


def refuse_other_folder(folder: Path) -> None:
    """Refuse what is no Hugging Face folder, saying what it is instead. Errors: `CheckpointError`."""
    refuse_unnamable(folder)
    if (folder / MANIFEST).exists() or (folder / "recipe.toml").exists():
        raise CheckpointError(f"{folder} is glassformer's own. Use it as it is: glassformer generate {folder}")
    if (folder / CONFIG).exists():
        if not (folder / TOKENIZER).exists():
            raise CheckpointError(
                f"{folder} has no {TOKENIZER}. Save the tokenizer with transformers, which writes it: "
                f"AutoTokenizer.from_pretrained({str(folder)!r}).save_pretrained({str(folder)!r})"
            )
        return
    what = "has no config.json" if folder.is_dir() else "is a file" if folder.exists() else "does not exist"
    raise CheckpointError(
        f"An import reads a folder that transformers saved, with config.json, model.safetensors and tokenizer.json; "
        f"{folder} {what}. To download one: hf download openai-community/gpt2 --local-dir gpt2"
    )


def object_in(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Errors: `CheckpointError`."""
    value = read_json(followed(path))
    if not isinstance(value, dict):
        raise CheckpointError(f"{path} must hold an object of settings; got {type(value).__name__}.")
    return value


def family_of(values: Values) -> tuple[str, Family]:
    """The family of a model by its config.json. Errors: `CheckpointError` for one that cannot be imported."""
    known = {name: family for name, family in FAMILIES.items() if family.shape is not None}
    name, classes = values.given.get("model_type"), values.given.get("architectures")
    if not isinstance(name, str) or name not in known:
        raise CheckpointError(
            f"{values.path}: models of type {', '.join(known)} can be imported; this one is {name!r:.60}. "
            "Import another model."
        )
    if classes is not None and not isinstance(classes, list):
        raise values.wrong("architectures", "a list of names", classes)
    if classes is not None and known[name].architecture not in classes:
        raise CheckpointError(
            f"{values.path}: of the type {name}, {known[name].architecture} can be imported, whose head predicts "
            f"tokens; this one is {classes!r:.80}. Import the language model that it was made of."
        )
    return name, known[name]


class Ends(NamedTuple):
    """The tokens around a text, by their ids there."""

    ids: Mapping[int, int | None]
    """Of PAD, BOS, EOS and UNK; None for one that is absent."""
    more: Sequence[int]
    """Other tokens that end a text, besides that of EOS."""
    begins: bool
    """Whether the tokenizer puts BOS before a text."""
    notes: list[str]


def ends_in(values: Values, folder: Path, text: str) -> Ends:
    """Read which tokens begin and end a text. `text`: that of tokenizer.json, which decides what comes first.

    As for transformers 5, `add_bos_token` of tokenizer_config.json decides nothing beside it. Of several tokens that
    end a text, in config.json or generation_config.json, the one that the tokenizer names is <eos>. Errors:
    `CheckpointError`.
    """
    record, named = parse_json(text, folder / TOKENIZER), optional(folder / TOKENIZER_CONFIG)
    places = {
        each.get("content"): each.get("id") for each in record.get("added_tokens") or [] if isinstance(each, dict)
    }
    ids = {id: end_of(values, setting) for id, setting in ENDS.items() if id != EOS}
    generation = Values(optional(folder / GENERATION), folder / GENERATION)
    found = [*dict.fromkeys([*ids_of(values, ENDS[EOS]), *ids_of(generation, ENDS[EOS])])]
    end = named.get("eos_token")
    own = places.get(end.get("content") if isinstance(end, dict) else end)
    ids[EOS] = own if own in found else found[0] if found else None
    before, behind = around(record.get("post_processor"))
    if len(before) > 1:
        raise CheckpointError(
            f"{folder / TOKENIZER}: at most one token comes before a text here; its post_processor puts {len(before)}, "
            f"{before!r:.60}. Import another model."
        )
    if before:
        ids[BOS] = places.get(before[0], before[0])
    notes = ["the tokenizer puts a token behind each text; a prompt is continued without it"] if behind else []
    if isinstance(flag := named.get("add_bos_token"), bool) and flag != bool(before):
        puts = "puts one" if before else "puts none"
        notes.append(f"{TOKENIZER} decides whether a token comes before a text, and {puts}; add_bos_token is not read")
    special = {
        each["id"] for each in record.get("added_tokens") or [] if isinstance(each, dict) and each.get("special")
    }
    more = [id for id in found if id != ids[EOS]]
    if plain := [id for id in more if id not in special]:
        notes.append(f"no ends, as they are no special tokens: {', '.join(map(str, plain))}")
    return Ends(ids, [id for id in more if id in special], bool(before), notes)


def around(processor: Any) -> tuple[list[Any], bool]:
    """The tokens that a post_processor puts before one text, and whether any come behind."""
    if not isinstance(processor, dict):
        return [], False
    if processor.get("type") == "Sequence":
        parts = [around(each) for each in processor.get("processors") or []]
        return [each for before, _ in parts for each in before], any(behind for _, behind in parts)
    if processor.get("type") in ("BertProcessing", "RobertaProcessing"):
        return [str(processor["cls"][0])], True
    single = processor.get("single") if processor.get("type") == "TemplateProcessing" else []
    names = [each.get("SpecialToken", {}).get("id") for each in single or [] if isinstance(each, dict)]
    text = names.index(None) if None in names else len(names)
    return names[:text], any(names[text:])


def optional(path: Path) -> dict[str, Any]:
    """The settings in a file that a folder need not have. Errors: `CheckpointError`."""
    return object_in(path) if path.exists() else {}


def ids_of(values: Values, setting: str) -> list[int]:
    """The ids in a setting that may be one id, several or none. Errors: `CheckpointError`."""
    value = values.given.get(setting)
    several = value if isinstance(value, list) else [] if value is None else [value]
    if any(type(each) is not int or each < 0 for each in several):
        raise values.wrong(setting, "the id of a token, a list of ids, or null", value)
    return several


def end_of(values: Values, setting: str) -> int | None:
    """The id of a special token; None if it has none, which old files call -1. Errors: `CheckpointError`."""
    value = values.given.get(setting)
    if value is not None and (type(value) is not int or value < -1):
        raise values.wrong(setting, "the id of one token, or null", value)
    return None if value == -1 else value


def weights_in(folder: Path, family: Family, *, tied: bool) -> dict[str, Tensor]:
    """The learned tensors in a folder, by the names that the family gives them in a whole model.

    Errors: `CheckpointError` for missing files, pickles, and a head that is tied by the config but not in the file.
    """
    found: dict[str, Tensor] = {}
    for path in files_in(folder):
        found |= read_tensors(followed(path))
    head, embedding = (renamed(name, family.names) for name in ("head.weight", "decoder.embedding.weight"))
    if not any(name.startswith(family.base) for name in found):
        found = {name if name == head else f"{family.base}{name}": each for name, each in found.items()}
    found = {name: each for name, each in found.items() if not family.is_computed(name)}
    if tied and head in found and embedding in found and not torch.equal(found.pop(head), found[embedding]):
        raise CheckpointError(
            f"{folder / CONFIG} ties the head to the embedding, but in the weights {head} differs from "
            f'{embedding}. Set "tie_word_embeddings" to false, or use the config.json of these weights.'
        )
    return found


def files_in(folder: Path) -> list[Path]:
    """The files with the weights of a folder. Errors: `CheckpointError`."""
    if (folder / WEIGHTS).exists():
        return [folder / WEIGHTS]
    if (folder / SHARDS).exists():
        places: Mapping[str, object] = object_in(folder / SHARDS).get("weight_map", {})
        names = {str(each) for each in places.values()} if isinstance(places, dict) else set[str]()
        if not names or any(Path(name).name != name for name in names):
            raise CheckpointError(f'{folder / SHARDS} must have a "weight_map" from tensors to files beside it.')
        return [folder / name for name in sorted(names)]
    with readable(folder):
        names = [path.name for path in folder.iterdir()]
    pickled = f" {PICKLE} is a pickle, which can run code when it is read and so never is." if PICKLE in names else ""
    raise CheckpointError(
        f"{folder} has no {WEIGHTS}.{pickled} Save the model with transformers, which writes it: "
        f"AutoModelForCausalLM.from_pretrained({str(folder)!r}).save_pretrained('converted')"
    )


def finite(weights: Tensor, name: str, folder: Path) -> Tensor:
    """The same weights. Errors: `CheckpointError` for NaN or infinity, with which every answer would be NaN."""
    if not bool(torch.isfinite(weights).all()):
        raise CheckpointError(
            f"{folder}: weights must be finite numbers in float32; {name} has NaN or infinity. Import another model, "
            "or copy this one again from where it came."
        )
    return weights
