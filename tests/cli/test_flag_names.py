"""Errors name flags as they were typed, where the library names settings."""

from pathlib import Path

import pytest

from glassformer.cli.settings import as_typed
from glassformer.cli.verbs import VERBS

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
    told = as_typed(message, VERBS["serve"], ["--rows", "0"], "rows")
    assert told == "--rows must be at least 1; got 0. Try --rows 1."
    assert as_typed(message, VERBS["train"], [], "rows") == message


def test_on_the_command_line(refused, a_run):
    assert refused("generate", "runs/old", "--top-k", "0") == (
        "glassformer: --top-k must be at least 1; got 0. Try --top-k 50, or leave it out for no limit.\n"
    )
    assert "--rows must be at least 1; got 0. Try --rows 1." in refused("serve", "runs/old", "--rows", "0")
    assert "--temperature must be at least 0 and finite; got -1. Try" in refused(
        "generate", "runs/old", "--top-k=1", "--temperature", "-1"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--queue", "3"), "--queue must be at least --rows 32, because one request"),
        (("--queue", "3"), "; got 3. Set --queue 32, or --rows 3.\n"),
        (("--rows=5", "--queue=3"), "; got 3. Set --queue 5, or --rows 3.\n"),
        (("--host", "0.0.0.0"), "needs a key; got --host 0.0.0.0 and no key. Put one into"),
        (("--drain", "1e9"), "--drain must be above 0 and at most 86400, a day; got 1e9. Try --drain 30.\n"),
    ],
)
def test_what_a_server_refuses_is_named_as_it_is_typed(refused, a_run, words, told):
    assert told in refused("serve", "runs/old", *words)


def test_a_mistake_in_a_file_is_named_as_it_stands_there(refused):
    Path("mine.toml").write_text("[decode]\ntop_k = 0\n")
    told = refused("train", "mine.toml", "--decode.seed", "3")
    assert "mine.toml: decode.top_k must be at least 1; got 0. Try decode.top_k=50" in told
