"""Runs to serve: a language model, and a model that answers sources."""

import json
from pathlib import Path

import pytest

from glassformer.train.recipe import override
from glassformer.train.run.session import start
from serve.process import Process
from serve.wire import KEY, Wire, writer_of
from train.examples import follow, recipe

QUICK = {"training.steps": 1, "training.warmup": 0, "training.evaluate_every": 0, "model.dropout": 0.0}


@pytest.fixture(scope="session")
def text_run(tmp_path_factory) -> Path:
    """A language model of characters on documents, so that its texts end."""
    return text_run_of(tmp_path_factory.mktemp("served"), "character")


@pytest.fixture(scope="session")
def words_run(tmp_path_factory) -> Path:
    """The same, of words."""
    return text_run_of(tmp_path_factory.mktemp("words"), "word")


def text_run_of(folder: Path, kind: str) -> Path:
    texts = ["abc abd " * 40, "bca é " * 60, "dab " * 60]
    (folder / "texts.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    data = {"task": "text", "layout": "decoder", "text": str(folder / "texts.jsonl"), "window": 24}
    more = {"tokenizer.kind": kind, "training.batch_tokens": 64, "decode.max_new_tokens": None}
    follow(start(override(recipe(), {f"data.{k}": v for k, v in data.items()} | more | QUICK), folder / "tiny"))
    return folder / "tiny"


@pytest.fixture(scope="session")
def pairs_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("served")
    follow(start(override(recipe(), QUICK), folder / "pairs"))
    return folder / "pairs"


@pytest.fixture(scope="session")
def writer(text_run):
    return writer_of(text_run)


@pytest.fixture(scope="module")
def wire(writer):
    with Wire(writer, max_new_tokens=40, max_body=4096, max_prompt=20, rows=8, queue=8) as made:
        yield made


@pytest.fixture(scope="session")
def answerer(pairs_run):
    return writer_of(pairs_run)


@pytest.fixture(scope="session")
def server(text_run, tmp_path_factory):
    """A server in a process of its own."""
    key = tmp_path_factory.mktemp("key") / "key"
    key.write_text(KEY + "\n")
    with Process(text_run, "--key-file", str(key), "--patience", "1", "--max-body", "65536") as made:
        yield made
