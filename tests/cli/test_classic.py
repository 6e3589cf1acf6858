"""`--classic`: the settings that a run then has, and where it is refused."""

from glassformer.cli.main import main
from glassformer.train.recipe import load_recipe
from study.examples import TINY


def test_a_run_is_trained_with_classic_settings_but_for_those_given(tmp_path):
    out = tmp_path / "run"
    assert main(["train", "reverse", *TINY, "--classic", "--model.positions", "rotary", "--out", str(out)]) == 0
    recipe = load_recipe(out / "recipe.toml")
    assert (recipe.optimizer.name, recipe.model.positions) == ("adamw", "rotary")
    assert (recipe.training.schedule, load_recipe("reverse").training.schedule) == ("inverse_square_root", "cosine")


def test_a_run_that_starts_from_another_is_not_classic(refused):
    for verb in (("train",), ("ablate", "--change", "model.d_ff=16")):
        message = refused(verb[0], "lm", "--classic", "--training.start-from", "runs/x", *verb[1:])
        assert "--classic" in message
        assert "Remove one of the two" in message
