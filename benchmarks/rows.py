"""The rows of the table of expected results: which recipe with which settings, on which data, scored how."""

from __future__ import annotations

from dataclasses import dataclass

MIXED = ("--data.min-length", "2", "--data.max-length", "16", "--training.steps", "1200")
WORDS = ("--tokenizer.kind", "word", "--decode.max-new-tokens", "64")
EXACT = (  # nothing is dropped: SCAN counts to 48, and there are too few epochs to learn words of CMUdict by heart
    *("--model.dropout", "0", "--training.label-smoothing", "0", "--model.convolution", "1"),
)
SCAN = (*WORDS, *EXACT, "--model.n-layers", "2", "--optimizer.weight-decay", "0")
SIMPLE, OTHER = (*SCAN, "--training.steps", "8000"), (*SCAN, "--training.steps", "5000")
INFLECTION = (*WORDS, "--tokenizer.shared", "true")
SOUNDS = (
    *(*WORDS, *EXACT, "--model.convolution", "2", "--model.d-model", "192", "--model.d-ff", "768"),
    *("--training.steps", "4300", "--training.batch-tokens", "4096"),
)
LONGER = ("--training.steps", "6000", "--decode.beam", "5")  # half an hour
WIDER = (  # half an hour, too, where a processor multiplies bfloat16
    *("--model.d-model", "192", "--model.n-heads", "6", "--model.d-ff", "384"),
    *("--training.steps", "6900", "--training.precision", "bfloat16"),
    *("--decode.beam", "5", "--decode.length-penalty", "1"),
)
TUNED = (
    *("--optimizer.weight-decay", "2", "--model.pooling", "mean"),
    *("--training.steps", "600", "--training.evaluate-every", "0"),  # use the last weights, whatever their score
)
SST2 = ("--tokenizer.kind", "bpe", "--tokenizer.vocab-size", "6000", "--tokenizer.min-count", "1", *TUNED)
MASKED = (
    *("--tokenizer.vocab-size", "12000", "--data.window", "64", "--data.mask-share", "0.3"),
    *("--model.n-layers", "2", "--model.d-ff", "512", "--model.activation", "relu", "--model.init", "normal"),
    *("--model.norm", "layer", "--model.qk-norm", "none"),  # the blocks of the recipe classify, but wider and two
    *("--training.steps", "10000", "--training.warmup", "200"),
    *("--training.evaluate-every", "0", "--training.samples", "0"),
)
ARTICLES = (
    *("--model.dropout", "0.1", "--training.learning-rate", "6e-3", "--training.warmup", "100"),
    *("--training.evaluate-every", "0", "--training.samples", "0"),  # scoring takes a minute for 200,000 words
)


@dataclass(frozen=True)
class Experiment:
    """One row of the table."""

    name: str
    recipe: str
    measures: str
    metric: str = "exact_match"
    scale: float = 100.0
    unit: str = " %"
    settings: tuple[str, ...] = ()
    data: str | None = None
    """The public data set that it reads, by its name in `FILES`; None if the task makes its own data."""
    after: str | None = None
    """The name of the row whose run of the same seed this one starts from (`training.start_from`); None if none."""
    members: int = 1
    """Runs that answer together as an ensemble. Their training seeds are `seeds_of`."""


EXPERIMENTS = (
    Experiment("copy", "copy", "whole answers right; length 8"),
    Experiment("reverse", "reverse", "whole answers right; length 8"),
    Experiment("copy 2-16", "copy", "whole answers right; lengths 2 to 16", settings=MIXED),
    Experiment("reverse 2-16", "reverse", "whole answers right; lengths 2 to 16", settings=MIXED),
    Experiment("sort", "sort", "whole answers right; length 8"),
    Experiment("numbers", "numbers", "whole answers right"),
    Experiment("spell", "spell", "whole answers right; numbers held out of training"),
    Experiment(
        "multi30k",
        "multi30k",
        "BLEU of greedy translations, English to German, test_2016_flickr",
        metric="bleu",
        scale=1.0,
        unit="",
        data="multi30k",
    ),
    Experiment("sst2", "classify", "labels right; SST-2, its dev split", metric="accuracy", settings=SST2, data="sst2"),
    Experiment(
        "sst2 ensemble",
        "classify",
        "labels right; SST-2, its dev split, by nine runs as an ensemble",
        metric="accuracy",
        settings=SST2,
        data="sst2",
        members=9,
    ),
    Experiment("trec", "classify", "labels right; TREC, six kinds of questions", metric="accuracy", data="trec"),
    Experiment("scan", "seq2seq", "whole answers right; SCAN, simple split", settings=SIMPLE, data="scan"),
)
"""The table of docs/results.md, "Results to expect"."""
FURTHER = (
    *(
        Experiment(
            f"multi30k {which}",
            "multi30k",
            f"BLEU without case of a beam of 5, English to {language}, test_2016_flickr",
            metric="bleu_lowercase",
            scale=1.0,
            unit="",
            settings=settings,
            data=f"multi30k {which.replace(' wide', '')}",
        )
        for which, language, settings in (
            ("french", "French", LONGER),
            ("lower", "German, all in lower case", LONGER),
            ("lower french", "French, all in lower case", LONGER),
            ("lower wide", "German, all in lower case", WIDER),
            ("lower wide french", "French, all in lower case", WIDER),
        )
    ),
    Experiment(
        "scan length", "seq2seq", "whole answers right; SCAN, longer than any", settings=OTHER, data="scan length"
    ),
    Experiment("scan jump", "seq2seq", "whole answers right; SCAN, a new verb", settings=OTHER, data="scan jump"),
    *(
        Experiment(each, "seq2seq", f"forms right; {each.title()}, SIGMORPHON 2017", settings=INFLECTION, data=each)
        for each in ("german", "turkish", "finnish")
    ),
    *(
        Experiment(
            name,
            "seq2seq",
            f"words said in one of their ways; CMUdict{by}",
            metric="any_match",
            settings=SOUNDS,
            data="cmudict",
            members=members,
        )
        for name, by, members in (("cmudict", "", 1), ("cmudict ensemble", ", by two runs as an ensemble", 2))
    ),
    Experiment(
        "wikitext-2 words",
        "lm",
        "perplexity of a word; WikiText-2, word by word",
        metric="word_perplexity",
        scale=1.0,
        unit="",
        settings=(*ARTICLES, "--tokenizer.kind", "word", "--training.steps", "1500"),
        data="wikitext-2 lines",
    ),
    Experiment(
        "wikitext-2 bpe",
        "lm",
        "perplexity of a word; WikiText-2, in 4,096 subwords",
        metric="word_perplexity",
        scale=1.0,
        unit="",
        settings=(*ARTICLES, "--tokenizer.kind", "bpe", "--tokenizer.vocab-size", "4096", "--training.steps", "2500"),
        data="wikitext-2 lines",
    ),
    Experiment(
        "wikitext-2 masked",
        "mlm",
        "nats a hidden token; WikiText-2 in lower case",
        metric="loss",
        scale=1.0,
        unit="",
        settings=MASKED,
        data="wikitext-2 reviews",
    ),
    Experiment(
        "sst2 tuned",
        "classify",
        "labels right; SST-2, its dev split, after `wikitext-2 masked`",
        metric="accuracy",
        settings=TUNED,
        data="sst2",
        after="wikitext-2 masked",
    ),
)
"""Rows that run only if named with `--only`."""
ROWS = {each.name: each for each in (*EXPERIMENTS, *FURTHER)}
