"""What a run cannot start from is told before anything is moved or read."""

from __future__ import annotations

from glassformer.cli.main import main


def test_a_run_does_not_start_from_the_run_that_it_replaces(tmp_path, capsys):
    run = tmp_path / "run"
    run.mkdir()
    (run / "recipe.toml").write_text("")
    asked = ["train", "lm", "--out", str(run), "--overwrite", "--training.start-from", str(run)]
    assert main(asked) == 2
    assert "A run cannot start from the run that it replaces" in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
