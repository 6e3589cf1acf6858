"""What is typed after a verb: how it is read, and what is said of mistakes in it."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import asks_for_help, read_arguments, whole_number
from glassformer.cli.settings import converted, kind_of
from glassformer.cli.verbs import SECTIONS, VERBS


def read(*words: str, verb: str = "train"):
    return read_arguments(verb, VERBS[verb], words)


@pytest.mark.parametrize(
    ("words", "changes"),
    [
        (["--model.n-layers", "4"], {"model.n_layers": 4}),
        (["--model.n_layers", "4"], {"model.n_layers": 4}),
        (["--model.n-layers=4"], {"model.n_layers": 4}),
        (["--model.n_layers=4"], {"model.n_layers": 4}),
        (["--training.learning-rate", "1e-3"], {"training.learning_rate": 1e-3}),
        (["--training.learning-rate", "1"], {"training.learning_rate": 1.0}),
        (["--model.max-len", "none"], {"model.max_len": None}),
        (["--model.max-len", "None"], {"model.max_len": None}),
        (["--model.max-len", "9"], {"model.max_len": 9}),
        (["--data.train", "a file.tsv"], {"data.train": "a file.tsv"}),
        (["--data.train=-x"], {"data.train": "-x"}),
        (["--data.train=--x y=z"], {"data.train": "--x y=z"}),
        (["--data.train", "-"], {"data.train": "-"}),
        (["--data.train", "größe.tsv"], {"data.train": "größe.tsv"}),
        (["--data.skip-empty"], {"data.skip_empty": True}),
        (["--data.no-skip-empty"], {"data.skip_empty": False}),
        (["--data.skip-empty", "--model.d-ff", "8"], {"data.skip_empty": True, "model.d_ff": 8}),
        (["--data.skip-empty", "false"], {"data.skip_empty": False}),
        (["--data.skip-empty=True"], {"data.skip_empty": True}),
        (["--data.skip-empty=false"], {"data.skip_empty": False}),
        (["--data.header"], {"data.header": True}),
        (["--data.header", "false"], {"data.header": False}),
        (["--data.no-header"], {"data.header": False}),
        (["--data.header", "none"], {"data.header": None}),
        (["--data.header=None"], {"data.header": None}),
        (["--model.d-ff", "8", "--model.d-ff", "9"], {"model.d_ff": 9}),
        (["--training.seed", "123456789012345678901234567890"], {"training.seed": 123456789012345678901234567890}),
    ],
)
def test_settings(words, changes):
    for found in (read("reverse", *words), read(*words, "reverse")):
        assert found.target == "reverse"
        assert found.options == {}
        assert found.changes == changes
        assert {name: type(value) for name, value in found.changes.items()} == {
            name: type(value) for name, value in changes.items()
        }


def test_flags():
    found = read("--out", "runs/a b", "reverse", "--overwrite", "--debug")
    assert (found.target, found.options) == ("reverse", {"out": "runs/a b", "overwrite": "", "debug": ""})
    assert read("--out=x").options == read("--out", "x").options == {"out": "x"}
    assert read("run", "--batch_size", "3", verb="translate").options == {"batch-size": "3"}


def test_nothing():
    found = read()
    assert (found.target, found.options, found.changes) == (None, {}, {})


@pytest.mark.parametrize(
    ("verb", "words", "facts"),
    [
        ("train", ["--model.n-layrs", "4"], ["--model.n-layrs", "Did you mean '--model.n-layers'?"]),
        ("train", ["--model.no-layers", "4"], ["--model.no-layers", "Did you mean '--model.n-layers'?"]),
        ("train", ["--training.d-model", "4"], ["--training.d-model", "Did you mean '--model.d-model'?"]),
        ("train", ["--model.zzz", "4"], ["--model.zzz", "Known: 'activation'"]),
        ("train", ["--modle.d-model", "4"], ["no section 'modle'", "Did you mean 'model'?"]),
        ("train", ["--model.n-layers", "four"], ["--model.n-layers takes a whole number; got 'four'"]),
        ("train", ["--model.n-layers", "4.5"], ["--model.n-layers takes a whole number; got '4.5'"]),
        ("train", ["--data.skip-empty="], ["--data.skip-empty takes", "got ''"]),
        ("train", ["--model.n-layers="], ["--model.n-layers takes a whole number; got ''"]),
        ("train", ["--model.max-len", "x"], ["--model.max-len takes a whole number or none; got 'x'"]),
        ("train", ["--model.n-layers", "none"], ["--model.n-layers takes a whole number; got 'none'"]),
        ("train", ["--model.dropout", "much"], ["--model.dropout takes a number; got 'much'"]),
        ("train", ["--data.skip-empty=perhaps"], ["--data.skip-empty takes true or false; got 'perhaps'"]),
        ("train", ["--model.n-layers"], ["--model.n-layers needs a value"]),
        ("train", ["--data.train", "--model.d-ff", "8"], ["--data.train needs a value", "--data.train=VALUE"]),
        ("train", ["--out"], ["--out needs a value"]),
        ("train", ["--out", "--overwrite"], ["--out needs a value"]),
        ("train", ["--overwrite=yes"], ["--overwrite takes no value; got 'yes'"]),
        ("train", ["--overwrit"], ["no flag --overwrit", "Did you mean '--overwrite'?"]),
        ("train", ["--steps", "5"], ["no flag --steps"]),
        ("train", ["--"], ["no flag --"]),
        ("train", ["reverse", "copy"], ["takes no further argument; got 'copy'", "Usage: glassformer train RECIPE"]),
        ("train", ["reverse", "-o"], ["has no flag -o.", "Did you mean '--out'?"]),
        ("train", ["lm", "."], ["takes no further argument; got '.'. If it is what to read: --data.text .", "Usage"]),
        ("demo", ["reverse"], ["takes no further argument; got 'reverse'", "Usage: glassformer demo"]),
        ("resume", ["run", "--tokenizer.kind", "bpe"], ["no section 'tokenizer' here"]),
        ("resume", ["run", "--allow-chang", "x"], ["no flag --allow-chang", "Did you mean '--allow-change'?"]),
        ("evaluate", ["run", "--model.d-ff", "8"], ["no section 'model' here", "'data', 'decode'"]),
        ("params", ["run", "--jsn"], ["no flag --jsn", "Did you mean '--json'?"]),
    ],
)
def test_mistakes(verb, words, facts):
    with pytest.raises(ConfigError) as caught:
        read(*words, verb=verb)
    assert all(fact in str(caught.value) for fact in facts), caught.value


def test_value_errors_are_said_in_our_words_only(capsys):
    with pytest.raises(ConfigError):
        converted("model.n_layers", int, "four")
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("switch", ["skip_empty", "shared", "tie_embeddings"])
def test_switches_go_both_ways(switch):
    section = next(
        each for each in SECTIONS if each == {"skip_empty": "data", "shared": "tokenizer"}.get(switch, "model")
    )
    assert kind_of(section, switch, SECTIONS) == (f"{section}.{switch}", bool, True)
    assert kind_of(section, f"no_{switch}", SECTIONS) == (f"{section}.{switch}", bool, False)


@pytest.mark.parametrize(
    ("verb", "words", "asked"),
    [
        ("train", ["-h"], True),
        ("train", ["reverse", "--overwrite", "-h"], True),
        ("train", ["reverse", "--data.skip-empty", "-h"], True),
        ("train", ["reverse", "--out=x", "-h"], True),
        ("train", ["reverse", "--no-such-flag", "-h"], True),
        ("train", ["reverse", "--model.no-such-setting", "-h"], True),
        ("train", ["reverse", "--out", "--help"], True),
        ("train", ["reverse", "--out", "-h"], False),
        ("train", ["reverse", "--data.train", "-h"], False),
        ("train", ["reverse", "--data.train_source", "-h", "-h"], True),
        ("generate", ["run", "--prompt", "-h"], False),
        ("generate", ["run", "--prompt=-h"], False),
    ],
)
def test_a_value_asks_for_no_help(verb, words, asked):
    assert asks_for_help(VERBS[verb], words) is asked
    if not asked:
        found = read(*words, verb=verb)
        assert "-h" in (*found.options.values(), *found.changes.values(), *found.lists.get("prompt", []))


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "ten", "", "8", "1" * 10])
def test_what_counts_is_a_whole_number(given):
    assert [whole_number("n", each, 7) for each in ("1", "7")] == [1, 7]
    with pytest.raises(ConfigError, match=r"^--n takes a whole number from 1 to 7; got .*\. Try --n 2\.$"):
        whole_number("n", given, 7, 2)
