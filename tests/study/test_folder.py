"""Whether a run on disk is the arm that is asked for."""

import json
from dataclasses import replace

from glassformer.study.result import Arm, StudyFolder, differences
from glassformer.train.recipe import dumps_recipe, load_recipe
from study.examples import result


def test_what_a_run_found_out_by_its_text_is_no_difference():
    requested = load_recipe("lm")
    kept = replace(requested, data=replace(requested.data, documents=True))
    assert differences(kept, requested) == []
    found = replace(requested, data=replace(requested.data, documents=False))
    assert differences(kept, found) == ["data.documents is True there and False here"]


def test_what_was_left_open_elsewhere_is_a_difference():
    requested = load_recipe("lm")
    kept = replace(requested, training=replace(requested.training, threads=1))
    assert differences(kept, requested) == ["training.threads is 1 there and 0 here"]


def test_a_score_from_before_gets_the_split_of_its_run(tmp_path):
    """A text without a test text was scored on dev, though the score does not say so."""
    recipe, folder = load_recipe("lm"), StudyFolder(tmp_path)
    arm, found = Arm({"model.n_layers": 1}, 1, recipe), result({"model.n_layers": 1}, 1, split="dev")
    folder.run(arm).mkdir(parents=True)
    (folder.run(arm) / "recipe.toml").write_text(dumps_recipe(recipe), "utf-8")
    folder.scores(arm).parent.mkdir()
    before = {name: each for name, each in json.loads(found.as_json()).items() if name != "split"}
    folder.scores(arm).write_text(json.dumps(before), "utf-8")
    assert folder.result(arm, {}) == found
