"""What a run cannot start from is told before anything is moved or read."""

from glassformer.cli.main import main


def test_a_run_does_not_start_from_the_run_that_it_replaces(tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    assert main(["train", "lm", "--out", str(run), "--overwrite", "--training.start-from", str(run)]) == 2
    assert "A run cannot start from the run that it replaces" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


def test_what_is_asked_for_is_not_overruled_by_the_run_before(tmp_path, run, refused):
    (tmp_path / "book.txt").write_text("the cat sat on the mat\n" * 60, "utf-8")
    few = (*("--training.steps", "1", "--training.batch-tokens", "64", "--data.window", "16"), "--training.threads=1")
    train = ("train", "lm", "--data.text", str(tmp_path / "book.txt"), *few, "--training.evaluate-every", "0")
    assert run(*train, "--out", str(tmp_path / "first"), "--model.d-model", "16", "--model.d-ff", "16").code == 0
    second = (*train, "--out", str(tmp_path / "second"), "--training.start-from", str(tmp_path / "first"))
    assert "has --tokenizer.kind character, and 'bpe' is asked for" in refused(*second, "--tokenizer.kind", "bpe")
    message = refused(*second, "--model.d-model", "64")
    assert "first" in message
    assert "has --model.d-model 16, and 64 is asked for. Remove --model.d-model" in message
    study = ("ablate", *second[1:], "--seeds", "1")
    assert "and 64 is asked for" in refused(*study, "--vary", "model.d_model=16,64")
    assert "and 'bpe' is asked for" in refused(*study, "--change", "tokenizer.kind=bpe")
    assert not (tmp_path / "second").exists()
    assert run(*second, "--model.d-model", "16", "--model.dropout", "0.1").code == 0  # the same, and one of its own
