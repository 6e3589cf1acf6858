"""`glassformer import`: a folder of another library, made a run, or refused in one line."""

import pytest

from glassformer.cli.main import main
from store.pretrained_examples import pretrained


@pytest.fixture
def gpt2(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pretrained(tmp_path / "gpt2")
    return "gpt2"


def test_it_says_what_it_made_and_what_can_be_done_with_it(gpt2, capsys):
    assert main(["import", gpt2]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gpt2: 8,880 parameters, 2 layers, 276 tokens",
        "begins with the text itself: the tokenizer puts no token before it, so none comes first",
        "Run: runs/gpt2",
        "Look inside: glassformer explore runs/gpt2",
        "Generate text: glassformer generate runs/gpt2 --prompt TEXT",
    ]
    assert main(["generate", "runs/gpt2", "--prompt", "The", "--max-new-tokens", "3", "--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("The")


def test_a_folder_above_is_called_by_its_name(gpt2, tmp_path, monkeypatch, capsys):
    (tmp_path / gpt2 / "work").mkdir()
    monkeypatch.chdir(tmp_path / gpt2 / "work")
    assert main(["import", ".."]) == 0
    assert "Run: runs/gpt2" in capsys.readouterr().out


def test_a_run_is_replaced_only_when_asked(gpt2, capsys):
    assert main(["import", gpt2, "--out", "own"]) == 0
    assert main(["import", gpt2, "--out", "own"]) == 2
    assert "own exists. Write another folder (--out own-2), or delete it" in capsys.readouterr().err
    assert main(["import", gpt2, "--out", "own", "--overwrite"]) == 0


def test_a_command_for_runs_names_the_import(gpt2, refused):
    assert "make a run of it: glassformer import gpt2" in refused("generate", gpt2)


def test_what_is_no_model_is_refused_in_a_line_and_leaves_no_run(gpt2, tmp_path, refused):
    (tmp_path / gpt2 / "model.safetensors").unlink()
    assert "gpt2 has no model.safetensors. Save the model with transformers" in refused("import", gpt2)
    assert not (tmp_path / "runs").exists()
    assert "`glassformer import` needs a folder that Hugging Face's transformers saved" in refused("import")
