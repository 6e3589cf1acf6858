"""A run that writes: what it reads around a prompt, what it never writes, and where it stops reading."""

import json
from pathlib import Path

import pytest
import torch

from glassformer.base.errors import ConfigError, DataError, RowError
from glassformer.data.tokens.vocabulary import BOS, SPECIALS
from glassformer.decode.stream import Piece
from glassformer.fast import put_on_decoding
from glassformer.train.finished import loading
from glassformer.train.finished.writing import USUAL_TOKENS, Guessing, Writer
from glassformer.train.recipe import Recipe, load_recipe, override
from glassformer.train.run.session import start
from specimens import native_cpp
from train.examples import follow, recipe

WINDOW = 8


def text_run(folder: Path, documents: bool) -> Path:
    """A language model of characters after two steps, on one running text or on documents."""
    texts = ["abc abd " * 40, "bca " * 60, "dab " * 60]
    if documents:
        data = folder / "texts.jsonl"
        data.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    else:
        data = folder / "text.txt"
        data.write_text("".join(texts))
    made = override(
        recipe(),
        {
            "data.task": "text",
            "data.layout": "decoder",
            "data.text": str(data),
            "data.window": WINDOW,
            "tokenizer.kind": "character",
            "training.steps": 2,
            "training.warmup": 1,
            "training.batch_tokens": 64,
            "training.evaluate_every": 0,
            "training.learning_rate": 1e-9,
            "decode.max_new_tokens": None,
            "model.dropout": 0.0,
        },
    )
    follow(start(made, folder / "run"))
    return folder / "run"


@pytest.fixture(scope="module", params=[True, False], ids=["documents", "running text"])
def run(request, tmp_path_factory) -> Path:
    return text_run(tmp_path_factory.mktemp("writing"), request.param)


def of_run(run: Path, **decode: object) -> Recipe:
    decode = {"temperature": 1.0, **decode}
    return override(load_recipe(run / "recipe.toml"), {f"decode.{name}": value for name, value in decode.items()})


def texts(pieces: list[Piece]) -> list[str]:
    found: dict[int, str] = {}
    for piece in pieces:
        found[piece.row] = found.get(piece.row, "") + piece.text
    return [found[row] for row in sorted(found)]


def read_by(writer: Writer) -> list[list[int]]:
    """What the model is given to read, first the prompts."""
    seen: list[list[int]] = []
    writer.model.decoder.embedding.register_forward_hook(lambda module, given, _: seen.append(given[0][0].tolist()))
    return seen


def test_a_document_begins_and_ends_and_a_running_text_does_not(run):
    documents = load_recipe(run / "recipe.toml").data.documents
    writer = Writer(run, of_run(run, max_new_tokens=40))
    assert writer.continues
    ids = writer.tokenizers.target.encode("ab")
    seen = read_by(writer)
    pieces = list(writer.write(["ab"], n=60))
    assert seen[0] == ([BOS, *ids] if documents else ids)
    assert ("eos" in {piece.end for piece in pieces}) == documents
    assert not any(special in text for text in texts(pieces) for special in SPECIALS)
    if documents:
        assert len(texts(list(writer.write([""])))) == 1
    else:
        with pytest.raises(DataError, match=r"data\.documents is false; prompt 2 is empty"):
            list(writer.write(["a", ""]))


def test_a_stop_text_that_the_vocabulary_cannot_write_is_noted(run):
    writer = Writer(run, of_run(run))
    assert writer.unwritable(["ab", " d"]) == []
    assert writer.unwritable(["ab", "a\t", "Z"]) == [
        "the vocabulary cannot write 'a\\t', so no text ends there",
        "the vocabulary cannot write 'Z', so no text ends there",
    ]


def test_a_draft_has_the_threads_of_the_run_that_writes(run, monkeypatch):
    seen: list[int] = []

    def load_run(*given):
        seen.append(torch.get_num_threads())
        return loading.load_run(*given)

    monkeypatch.setattr("glassformer.train.finished.writing.load_run", load_run)
    own = override(of_run(run, max_new_tokens=5), {"decode.threads": 2})
    assert texts([*Writer(run, own, Guessing(run)).write(["ab"])])
    assert seen == [2]


@pytest.mark.parametrize(("prompts", "n", "row", "message"), [
    (["a"], 1, 0, "the text"),
    (["a", "b"], 1, 1, "the text of prompt 2"),
    (["a"], 3, 2, "text 3"),
    (["a", "b"], 2, 3, "text 2 of prompt 2"),
])  # fmt: skip
def test_a_text_without_a_next_token_is_named_by_its_prompt(run, monkeypatch, prompts, n, row, message):
    def stuck(*_, numbers, **__):
        assert row in numbers
        yield from ()
        raise RowError("None fits in ", row, ".")

    monkeypatch.setattr("glassformer.train.finished.writing.write", stuck)
    with pytest.raises(ConfigError, match=rf"^None fits in {message}\.$"):
        list(Writer(run, of_run(run)).write(prompts, n=n))


def test_texts_hang_on_seed_and_number_alone(run):
    few = {"max_new_tokens": 2 * WINDOW}
    pieces = {
        (batch, seed): texts([*Writer(run, of_run(run, batch_size=batch, seed=seed, **few)).write(["ab", "c"], n=3)])
        for batch, seed in ((99, 1), (2, 1), (1, 1), (99, 2))
    }
    assert pieces[99, 1] == pieces[2, 1] == pieces[1, 1] != pieces[99, 2]
    assert len({*pieces[99, 1][:3]}) == 3


@native_cpp
@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_texts_are_written_with_the_weights_asked_for(run, precision):
    with put_on_decoding():
        writer = Writer(run, of_run(run, max_new_tokens=5, precision=precision))
    assert len(texts([*writer.write(["ab"], n=2)])) == 2
    maps = {type(each).__name__ for each in writer.model.modules()}
    assert ("Int8Linear" in maps) == (precision == "int8")
    dtypes = {each.dtype for each in vars(writer.model.head.faster).values() if isinstance(each, torch.Tensor)}
    assert ({torch.bfloat16, torch.int8} & dtypes) == {torch.bfloat16 if precision == "bfloat16" else torch.int8}


def test_what_is_read_at_once_is_a_window(run):
    writer = Writer(run, of_run(run, max_new_tokens=30, min_new_tokens=30))
    read = read_by(writer)
    (*_, last) = writer.write(["ab"])
    held: list[int] = []
    for ids in read:
        held.append(len(ids) if len(ids) > 1 or not held else held[-1] + 1)
    assert max(held) == WINDOW
    assert min(held[WINDOW:]) == WINDOW - WINDOW // 4 + 1
    assert (last.tokens, last.end) == (30, "max_new_tokens")


def test_a_prompt_past_the_window_is_refused_or_its_end_read(run):
    documents = load_recipe(run / "recipe.toml").data.documents
    writer = Writer(run, of_run(run, max_new_tokens=1, temperature=0.0))
    fits = "abc abd b"[: WINDOW - bool(documents)]
    long = "dddd" * 9 + "abc abd b"
    assert list(writer.write([fits]))
    with pytest.raises(DataError, match=rf"at most {WINDOW} .* \(data.window\).*prompt 2 has {45 + bool(documents)}"):
        list(writer.write([fits, long]))
    seen = read_by(writer)
    list(writer.write([long], crop=True))
    assert seen == [writer.tokenizers.target.encode(long)[-len(seen[0]) :]]
    assert WINDOW - WINDOW // 4 < len(seen[0]) <= WINDOW


def test_the_usual_length_and_what_is_unknown(run):
    writer = Writer(run, of_run(run, min_new_tokens=10**6))
    (*_, last) = writer.write(["a"])
    assert last.tokens == USUAL_TOKENS
    lacked, read = "the vocabulary lacks a part of it", "the model read <unk> in its place."
    assert writer.unknown(["ab", "aé", [3], "éñ"]) == (
        f"prompt 2, 4: {lacked}, 'é' (U+00E9, 2 times), 'ñ' (U+00F1); {read}"
    )
    assert writer.unknown(["é"] * 6, "text") == f"text 1, 2, 3, 4, 5, ...: {lacked}, 'é' (U+00E9, 6 times); {read}"
    assert writer.unknown(["ab"]) == ""


@pytest.mark.parametrize(("changes", "verb"), [
    ({"data.task": "copy", "data.layout": "encoder"}, "translate"),
    ({"data.task": "labelled", "data.layout": "label", "training.metric": "accuracy"}, "classify"),
    ({"data.task": "text", "data.layout": "masked", "data.objective": "masked", "data.window": 9}, "evaluate"),
], ids=["encoder", "label", "masked"])  # fmt: skip
def test_a_run_that_writes_no_text(tmp_path, changes, verb):
    with pytest.raises(ConfigError, match=f"Use glassformer {verb}"):
        Writer(tmp_path, override(recipe(), changes))
