"""A dev text that takes longer to score than the steps before it is told."""

from glassformer.train.run.beginning import prepare
from train.text_examples import book, text_recipe, words


def test_a_dev_text_that_takes_longer_than_the_steps_is_told(tmp_path):
    """A step reads 6 windows of 8 tokens, and costs as much as to score three times as many."""
    dev = tmp_path / "dev.txt"
    dev.write_text(words(100)[:289], "utf-8")
    few = {"training__steps": 5, "training__evaluate_every": 2}
    read = prepare(text_recipe(book(tmp_path), data__dev_text=str(dev), **few))
    assert read.notes()[2:] == [
        "evaluation: scores 289 dev tokens, which takes about 1.0 times as long as 2 steps; a shorter data.dev_text "
        "takes less"
    ]
    strides = prepare(text_recipe(book(tmp_path), data__dev_text=str(dev), data__stride=2, **few)).notes()[2]
    assert "about 4.0 times as long as 2 steps" in strides
    assert (
        len(
            prepare(
                text_recipe(book(tmp_path), data__dev_text=str(dev), **few | {"training__evaluate_every": 3})
            ).notes()
        )
        == 2
    )
    for never in (0, 9):
        assert len(prepare(text_recipe(book(tmp_path), **few | {"training__evaluate_every": never})).notes()) == 2
    [_, _, result] = prepare(text_recipe(book(tmp_path), training__steps=1, data__dev_share=0.5)).notes()
    assert "dev_share below 0.5 takes less" in result
