"""`glassformer export`: a run as a folder of Hugging Face, or one line that says why not."""

import re

import pytest

from glassformer.cli.main import main
from glassformer.train.run.beginning import import_run
from store.pretrained_examples import pretrained


@pytest.fixture
def lm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretrained(tmp_path / "gpt2")
    import_run(tmp_path / "gpt2", tmp_path / "runs" / "lm")
    return "runs/lm"


def test_it_says_what_it_wrote_and_what_can_be_done_with_it(lm, tmp_path, capsys):
    assert main(["export", lm, "out"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpt2: 8,800 parameters, 271 tokens",
        "Folder: out",
        "Load it in Python: transformers.AutoModelForCausalLM.from_pretrained('out')",
        "Make a run of it again: glassformer import out",
    ]
    assert main(["import", "out"]) == 0
    one, other = (tmp_path / "runs" / each / "checkpoints" / "step-000000000" for each in ("lm", "out"))
    for name in ("model.safetensors", "config.json", "tokenizer.json"):
        assert (one / name).read_bytes() == (other / name).read_bytes()


MISTAKES = {
    "nothing": ([], r"`glassformer export` needs a run folder. Usage: glassformer export RUN FOLDER \[flags\]"),
    "one": (["runs/lm"], "needs a run and the folder to write. Try: glassformer export runs/lm exported"),
    "no run": (["away", "out"], "away is not a run folder: it does not exist"),
    "theirs": (["gpt2", "out"], "gpt2 is not a run folder: .* make a run of it: glassformer import gpt2"),
    "in use": (["runs/lm", "gpt2"], "gpt2 exists and is not empty. Choose another name, or delete it"),
    "itself": (["runs/lm", "runs/lm"], "runs/lm exists and is not empty"),
    "too many": (["runs/lm", "out", "more"], "takes no further argument; got 'more'"),
    "average": (["runs/lm", "out", "--average", "2"], "Averaging 2 checkpoints needs 2 complete ones"),
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_told_in_a_line(lm, tmp_path, refused, words, message):
    assert re.search(message, refused("export", *words))
    assert not (tmp_path / "out").exists()
