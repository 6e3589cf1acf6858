"""What is typed after a verb: how it is read, and what is said of mistakes in it."""

from pathlib import Path

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import (
    ELSEWHERE,
    as_typed,
    asks_for_help,
    converted,
    flags_of,
    kind_of,
    read_arguments,
    whole_number,
)
from glassformer.cli.constraints import unescaped
from glassformer.cli.verbs import SECTIONS, VERBS


def read(*words: str, verb: str = "train"):
    return read_arguments(verb, VERBS[verb], words)


@pytest.mark.parametrize(("words", "changes"), [
    (["--model.n-layers", "4"], {"model.n_layers": 4}),
    (["--model.n_layers", "4"], {"model.n_layers": 4}),
    (["--model.n-layers=4"], {"model.n_layers": 4}),
    (["--training.learning-rate", "1"], {"training.learning_rate": 1.0}),
    (["--model.max-len", "none"], {"model.max_len": None}),
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
    (["--data.skip-empty=false"], {"data.skip_empty": False}),
    (["--data.header", "false"], {"data.header": False}),
    (["--data.no-header"], {"data.header": False}),
    (["--data.header", "none"], {"data.header": None}),
    (["--model.d-ff", "8", "--model.d-ff", "9"], {"model.d_ff": 9}),
    (["--training.seed", "123456789012345678901234567890"], {"training.seed": 123456789012345678901234567890}),
])  # fmt: skip
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


@pytest.mark.parametrize(("verb", "words", "facts"), [
    ("train", ["--model.n-layrs", "4"], ["--model.n-layrs", "Did you mean '--model.n-layers'?"]),
    ("train", ["--training.d-model", "4"], ["--training.d-model", "Did you mean '--model.d-model'?"]),
    ("train", ["--model.zzz", "4"], ["--model.zzz", "Known: 'activation'"]),
    ("train", ["--modle.d-model", "4"], ["no section 'modle'", "Did you mean 'model'?"]),
    ("train", ["--model.n-layers", "four"], ["--model.n-layers takes a whole number; got 'four'"]),
    ("train", ["--data.skip-empty="], ["--data.skip-empty takes", "got ''"]),
    ("train", ["--model.max-len", "x"], ["--model.max-len takes a whole number or none; got 'x'"]),
    ("train", ["--model.dropout", "much"], ["--model.dropout takes a number; got 'much'"]),
    ("train", ["--data.skip-empty=perhaps"], ["--data.skip-empty takes true or false; got 'perhaps'"]),
    ("train", ["--model.n-layers"], ["--model.n-layers needs a value"]),
    ("train", ["--data.train", "--model.d-ff", "8"], ["--data.train needs a value", "--data.train=VALUE"]),
    ("train", ["--out"], ["--out needs a value"]),
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
])  # fmt: skip
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


@pytest.mark.parametrize(("verb", "words", "requested"), [
    ("train", ["-h"], True),
    ("train", ["reverse", "--data.skip-empty", "-h"], True),
    ("train", ["reverse", "--out=x", "-h"], True),
    ("train", ["reverse", "--model.no-such-setting", "-h"], True),
    ("train", ["reverse", "--out", "--help"], True),
    ("train", ["reverse", "--out", "-h"], False),
    ("train", ["reverse", "--data.train", "-h"], False),
    ("train", ["reverse", "--data.train_source", "-h", "-h"], True),
    ("generate", ["run", "--prompt", "-h"], False),
    ("generate", ["run", "--prompt=-h"], False),
])  # fmt: skip
def test_a_value_asks_for_no_help(verb, words, requested):
    assert asks_for_help(VERBS[verb], words) is requested
    if not requested:
        found = read(*words, verb=verb)
        assert "-h" in (*found.options.values(), *found.changes.values(), *found.lists.get("prompt", []))


@pytest.mark.parametrize("given", ["0", "-1", "1.5", "ten", "", "8", "1" * 10])
def test_what_counts_is_a_whole_number(given):
    assert [whole_number("n", each, 7) for each in ("1", "7")] == [1, 7]
    with pytest.raises(ConfigError, match=r"^--n takes a whole number from 1 to 7; got .*\. Try --n 2\.$"):
        whole_number("n", given, 7, 2)


# --- What is suggested for a flag or setting that does not exist, and where nothing is


def suggestion(verb: str, flag: str) -> str:
    """What comes before the way to all flags in the error for a flag, and behind the known names of settings."""
    with pytest.raises(ConfigError) as caught:
        read_arguments(verb, VERBS[verb], ["x", flag, "1"])
    return str(caught.value).partition(" All flags: ")[0].rpartition(". ")[2]


@pytest.mark.parametrize(("verb", "typed", "meant"), [
    ("train", "--training.batch-size", "--training.batch-tokens"),
    ("train", "--lr", "--training.learning-rate"),
    ("train", "--epochs", "--training.steps"),
    ("train", "--model.hidden-size", "--model.d-model"),
    ("train", "--steps", "--training.steps"),
    ("train", "--learning-rte", "--training.learning-rate"),
    ("train", "--training.d-model", "--model.d-model"),
    ("translate", "--temperature", "--decode.temperature"),
    ("translate", "--num-beams", "--beam"),
    ("translate", "--early-stopping", "--decode.early-stop"),
    ("evaluate", "--batch-size", "--decode.batch-size"),
    ("generate", "--max-length", "--max-new-tokens"),
    ("generate", "--topk", "--top-k"),
    ("translate", "--beam-size", "--beam"),
    ("train", "--output-dir", "--out"),
])  # fmt: skip
def test_what_was_meant(verb, typed, meant):
    assert suggestion(verb, typed) == f"Did you mean {meant!r}?"


@pytest.mark.parametrize(("verb", "typed", "meant"), [
    ("generate", "--top", "'--stop', '--top-p' or '--top-k'"),
    ("serve", "--serve.max-prompt", "'--max-prompt'"),
    ("train", "--device", "'--training.device'"),
    ("train", "--gpu", "'--training.device'"),
])  # fmt: skip
def test_the_closest_few(verb, typed, meant):
    assert suggestion(verb, typed) == f"Did you mean {meant}?"


def test_an_unknown_flag_is_not_answered_with_all_that_there_are():
    with pytest.raises(ConfigError) as caught:
        read_arguments("generate", VERBS["generate"], ["runs/lm", "--wurst", "3"])
    assert str(caught.value) == ("`glassformer generate` has no flag --wurst. All flags: glassformer generate --help.")


@pytest.mark.parametrize("typed", ["--device", "--cuda"])
def test_the_device_of_a_run(refused, a_run, typed):
    error = refused("generate", "runs/old", typed, "cuda")
    assert f"has no flag {typed}. A run is used on the device that `training.device` in its recipe.toml names" in error
    assert "It is a flag of verify" in refused("plot", "runs/old", "--dtype", "float32")


def test_a_recipe_where_a_run_is_needed(refused, a_run):
    message = "lm is not a run folder: it does not exist."
    first = "It names a recipe, which must be trained first: `glassformer train lm`."
    assert f"{message} {first}" in refused("generate", "lm")
    a_run.rename("runs/lm")
    assert f"{message} Did you mean 'runs/lm'?" in refused("generate", "lm")


@pytest.mark.parametrize(
    ("verb", "typed", "others"),
    [("translate", "--n", "generate"), ("generate", "--n-best", "translate"), ("serve", "--seed", "generate, rollout")],
)
def test_a_flag_of_another_verb(verb, typed, others):
    """Neither `--ban` for `--n`, nor a setting that the verb refuses."""
    assert suggestion(verb, typed) == f"It is a flag of {others}."


@pytest.mark.parametrize(
    ("verb", "typed"),
    [("train", "--wurst"), ("train", "--n"), ("params", "--seeds-of"), ("evaluate", "--model.d-ff"), ("plot", "--x")],
)
def test_no_suggestion_is_better_than_a_wrong_one(verb, typed):
    assert "mean" not in suggestion(verb, typed)


def test_another_tools_name_for_a_flag_of_another_verb():
    assert suggestion("serve", "--num-beams") == "--beam is a flag of generate, translate."


def test_a_flag_is_given_once():
    words = ["x", "--prompt", "one", "--greedy", "--greedy", "--prompt=two"]
    with pytest.raises(ConfigError, match=r"--prompt takes one value; got 'one' and 'two'\. Give one of them\."):
        read_arguments("generate", VERBS["generate"], words)
    assert read_arguments("generate", VERBS["generate"], words[:-1]).options == {"prompt": "one", "greedy": ""}


def test_other_tools_names_stand_for_something():
    """Each for a setting or flag that exists, and none for itself."""
    known = {*flags_of(SECTIONS), *(option.name for verb in VERBS.values() for option in verb.options)}
    for name, places in ELSEWHERE.items():
        assert {*places} <= known, name
        assert name not in {place.partition(".")[2] for place in flags_of(SECTIONS)} or len(places) > 1, name


# --- Texts that flags take: escapes as in printf


@pytest.mark.parametrize(("typed", "meant"), [
    ("a b", "a b"),
    (r"\n", "\n"),
    (r"a\tb\r\n", "a\tb\r\n"),
    (r"\\n", r"\n"),
    (r"\\\n", "\\\n"),
    (r"\x41\u00e9\U0001F600\101", "A\u00e9\U0001f600A"),
    (r"\q and \ ", r"\q and \ "),
    ("\\", "\\"),
])  # fmt: skip
def test_escapes_are_those_of_printf(typed, meant):
    assert unescaped(typed) == meant


@pytest.mark.parametrize("typed", [r"\ud800", r"\UFFFFFFFF"])
def test_numbers_that_are_no_character_are_refused(typed):
    with pytest.raises(ConfigError, match="must be the number of a character; got"):
        unescaped(typed)


# --- Errors name flags as they were typed, where the library names settings


CASES = [
    ("generate", "--top-k 0", "decode.top_k must be 1. Try decode.top_k=50.", "--top-k must be 1. Try --top-k 50."),
    ("generate", "", "decode.top_k=3 is too few.", "--top-k 3 is too few."),
    ("generate", "--decode.top_k=0", "decode.top_k is 0.", "--decode.top-k is 0."),
    ("generate", "--top-k x", "--decode.top-k takes a number.", "--top-k takes a number."),
    ("generate", "--top-k 1 --decode.top-k 2", "--top-k and --decode.top-k", "--top-k and --decode.top-k"),
    ("generate", "", "Set decode.beam=4, or model.max_len=9.", "Set --beam 4, or model.max_len=9."),
    ("translate", "", "Set decode.temperature=0.0, or decode.beam=1.", "Set --decode.temperature 0.0, or --beam 1."),
    ("translate", "", "Set beam=1.", "Set --beam 1."),
    ("translate", "", "with a beam of 3", "with a beam of 3"),
    ("train", "", "Try optimizer.name='adamw'.", "Try --optimizer.name adamw."),
    ("train", "", "Set data.task = 'pairs'.", "Set --data.task pairs."),
    ("train", "", "Try data.text='a b.txt'.", "Try --data.text 'a b.txt'."),
    ("train", "", "Set data.skip_empty=True.", "Set --data.skip-empty."),
    ("train", "", "Set distributed.shard=False.", "Set --distributed.no-shard."),
    ("train", "", "Set model.max_len=None, now.", "Set --model.max-len none, now."),
    ("train", "", "d_model (6) and n_heads=4", "--model.d-model (6) and --model.n-heads 4"),
    ("train", "", "seed=3 or batch_size", "seed=3 or --decode.batch-size"),
    ("train", "--training.seed 3", "seed=3", "--training.seed 3"),
    ("train", "", "'decode.top_k=3' came; x.decode.top_k", "'decode.top_k=3' came; x.decode.top_k"),
    ("resume", "", "Add --allow-change training.steps.", "Add --allow-change training.steps."),
    ("ablate", "", "--vary model.x=1: Set model.bias=false.", "--vary model.x=1: Set model.bias=false."),
    ("ablate", "--vary model.n_heads=3", "n_heads (3) of model.n_heads=3", "n_heads (3) of model.n_heads=3"),
    ("ablate", "--model.n-heads 3", "n_heads (3) of model.n_heads", "--model.n-heads (3) of --model.n-heads"),
    ("train", "", "They have the same `data.layout`.", "They have the same `data.layout`."),
    ("params", "", "Try model.n_heads=3.", "Try model.n_heads=3."),
    ("evaluate", "lm --data.text batch_size", "batch_size: no such file.", "batch_size: no such file."),
    ("generate", "max_new_tokens", "max_new_tokens is no run.", "max_new_tokens is no run."),
    ("generate", "x", "runs/max_new_tokens is no run.", "runs/max_new_tokens is no run."),
    ("generate", "--top-p -1", "top_p: got -1.0.", "--top-p: got -1."),
    ("train", "--training.dropout=1e-5 -x", "got -2.0, got 1e-05; 1e-05", "got -2.0, got 1e-5; 1e-05"),
    ("generate", "--top-p -01", "got top_p=-1.0; from top_p=-1.0", "got --top-p -01; from --top-p -1.0"),
    ("rollout", "--temperature inf", "got inf, not infinity", "got inf, not infinity"),
    ("serve", "", "Set decode.cache='exact', not decode.seed=1.", "Set --decode.cache exact, not decode.seed=1."),
]


@pytest.mark.parametrize(("verb", "words", "message", "expected"), CASES, ids=[str(i) for i in range(len(CASES))])
def test_settings_become_flags(verb, words, message, expected):
    assert as_typed(message, VERBS[verb], words.split()) == expected


def test_the_setting_that_an_error_is_about_may_be_any_flag():
    message = "rows must be at least 1; got 0. Try rows=1."
    error = as_typed(message, VERBS["serve"], ["--rows", "0"], "rows")
    assert error == "--rows must be at least 1; got 0. Try --rows 1."
    assert as_typed(message, VERBS["train"], [], "rows") == message


def test_on_the_command_line(refused, a_run):
    assert refused("generate", "runs/old", "--top-k", "0") == (
        "glassformer: --top-k must be at least 1; got 0. Try --top-k 50, or leave it out for no limit.\n"
    )
    assert "--rows must be at least 1; got 0. Try --rows 1." in refused("serve", "runs/old", "--rows", "0")
    assert "--temperature must be at least 0 and finite; got -1. Try" in refused(
        "generate", "runs/old", "--top-k=1", "--temperature", "-1"
    )


@pytest.mark.parametrize(("words", "message"), [
    (("--queue", "3"), "--queue must be at least --rows 32, because one request"),
    (("--queue", "3"), "; got 3. Set --queue 32, or --rows 3.\n"),
    (("--rows=5", "--queue=3"), "; got 3. Set --queue 5, or --rows 3.\n"),
    (("--host", "0.0.0.0"), "needs a key; got --host 0.0.0.0 and no key. Put one into"),
    (("--drain", "1e9"), "--drain must be above 0 and at most 86400, a day; got 1e9. Try --drain 30.\n"),
])  # fmt: skip
def test_what_a_server_refuses_is_named_as_it_is_typed(refused, a_run, words, message):
    assert message in refused("serve", "runs/old", *words)


def test_a_mistake_in_a_file_is_named_as_it_stands_there(refused):
    Path("mine.toml").write_text("[decode]\ntop_k = 0\n")
    message = refused("train", "mine.toml", "--decode.seed", "3")
    assert "mine.toml: decode.top_k must be at least 1; got 0. Try decode.top_k=50" in message
