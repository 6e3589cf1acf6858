"""Configs refuse what cannot be, name the field and the way out, and load neither torch nor numpy."""

import pytest

from fresh import printed
from glassformer.base.errors import ConfigError
from glassformer.data import batch, config
from glassformer.data.config import DataConfig, TokenizerConfig, kind_of
from glassformer.data.dataset import Tokenizers, encode_pairs
from glassformer.data.kinds import KINDS, LABELLED, LAYOUTS, OBJECTIVES, TEXT, TEXT_LAYOUTS, TEXTS, unused
from glassformer.data.pairs import Pair
from glassformer.data.synthetic import TASKS
from glassformer.data.tokenizer import ByteTokenizer, Labels


def test_a_switch_that_is_off_asks_for_nothing():
    """Recipes of runs say header = false, whatever the task."""
    assert DataConfig(task="copy", header=False).header is False


DATA_ERRORS = {
    "unknown task, with the nearest": (
        {"task": "revers"},
        ["data.task='revers'", "'pairs'", "Did you mean 'reverse'?"],
    ),
    "unknown layout": (
        {"layout": "encoder-decodr"},
        ["data.layout='encoder-decodr'", "Did you mean 'encoder-decoder'?"],
    ),
    "a file for a synthetic task": (
        {"task": "copy", "dev": "x.tsv"},
        ["'copy'", "data.dev is set", "data.task = 'pairs'"],
    ),
    "two places for one split": (
        {"train": "x.tsv", "train_source": "x", "train_target": "y"},
        ["train pairs", "data.train and data.train_source and data.train_target"],
    ),
    "labels without their layout": (
        {"task": "labelled"},
        ["data.task='labelled'", "data.layout='encoder-decoder'", "Set both"],
    ),
    "the layout without labels": ({"task": "copy", "layout": "label"}, ["data.task='copy'", "data.layout='label'"]),
    "labelled text in two files": (
        {"task": "labelled", "layout": "label", "train_source": "x", "train_target": "y"},
        ["one file per split", "data.train_source is set", "Set data.train instead"],
    ),
    "an empty path": ({"train": ""}, ["data.train must name a file; got ''. Give a name, or remove data.train."]),
    "an empty path of one side": ({"dev_source": "x", "dev_target": ""}, ["data.dev_target must name a file; got ''"]),
    "an empty column": (
        {"task": "labelled", "layout": "label", "label_column": ""},
        ["data.label_column must name a column; got ''"],
    ),
    "half of a parallel pair": ({"test_source": "x"}, ["data.test_source is set, data.test_target is not"]),
    "the other half": ({"test_target": "x"}, ["data.test_target is set, data.test_source is not"]),
    "no dev pairs": ({"task": "copy", "dev_size": 0}, ["data.dev_size must be at least 1; got 0"]),
    "no train pairs": ({"task": "copy", "train_size": -1}, ["data.train_size must be at least 1; got -1"]),
    "no test pairs": ({"task": "copy", "test_size": 0}, ["data.test_size must be at least 1; got 0"]),
    "empty sources": ({"task": "copy", "min_length": 0}, ["data.min_length must be at least 1; got 0"]),
    "one symbol": ({"task": "copy", "symbols": 1}, ["data.symbols must be at least 2", "got 1"]),
    "lengths crossed": (
        {"task": "copy", "min_length": 9},
        ["data.max_length (8)", "data.min_length (9)", "at least 9"],
    ),
    **{
        f"{name} beyond all reach": ({"task": "copy", name: 10**12}, [f"data.{name} must be at most", f"got {10**12}"])
        for name in ("symbols", "min_length", "max_length", "train_size", "dev_size", "test_size")
    },
    "long sources, and many": (
        {"task": "sort", "max_length": 10_000, "train_size": 20_000},
        ["data.train_size (20000) times data.max_length (10000)", "at most 100000000", "Try train_size=10000"],
    ),
    **{
        f"{name} without use": ({"task": task, name: value}, [f"data.{name} belongs to {whose}", f"data.task={task!r}"])
        for task, name, value, whose in (
            ("pairs", "dev_size", 9, "the tasks that make their own pairs"),
            ("pairs", "train_size", 9, "the tasks that make their own pairs"),
            ("pairs", "symbols", 9, "the tasks copy, reverse, sort"),
            ("spell", "max_length", 9, "the tasks copy, reverse, sort"),
            ("pairs", "label_column", "3", "data.task='labelled'"),
            ("copy", "header", True, "the tasks that read pairs, labels, tags or numbers from files"),
            ("copy", "json", True, "the tasks that read texts, pairs, labels, tags or numbers from files"),
            ("reverse", "source_field", "a", "data.task='pairs'"),
            ("copy", "skip_empty", True, "the tasks that read texts, pairs, labels, tags or numbers from files"),
            ("pairs", "text", "x.txt", "data.task='text'"),
            ("copy", "window", 9, "data.task='text'"),
        )
    },
    "a layout of running text": ({"task": "copy", "layout": "decoder"}, ["data.layout='decoder'", "data.task='text'"]),
    **{
        f"text: {name}": ({"task": "text", "layout": "decoder", **given}, message)
        for name, given, message in (
            ("an empty path", {"dev_text": ""}, ["data.dev_text must name a file; got ''"]),
            ("an empty field", {"field": ""}, ["data.field must name a field; got ''"]),
            ("pairs beside it", {"dev": "x.tsv"}, ["data.dev is set", "data.dev_text"]),
            ("unknown order", {"order": "randm"}, ["data.order='randm'", "Did you mean 'random'?"]),
            ("unknown objective", {"objective": "mask"}, ["data.objective='mask'", "'masked'"]),
            ("no window", {"window": 1}, ["data.window must be at least 2; got 1"]),
            ("no stride", {"stride": 0}, ["data.stride must be at least 1; got 0"]),
            ("tokens between windows", {"stride": 257}, ["data.window (256)", "got 257", "Try stride=256"]),
            ("nothing held out", {"dev_share": 0.0}, ["data.dev_share", "above 0 and below 1; got 0.0"]),
            ("all held out", {"dev_share": 1.0}, ["data.dev_share", "got 1.0"]),
            ("a mask of no documents", {"document_mask": True, "documents": False}, ["documents=True"]),
            ("masks without use", {"mask_share": 0.3}, ["belongs to the objectives masked, spans, noise"]),
            ("an order without use", {"permute_sentences": True}, ["to the objective noise", "Remove data.permute"]),
            ("words without use", {"whole_words": True}, ["belongs to the objective masked", "Remove data.whole"]),
        )
    },
    "text: a mask of documents between two stacks": (
        {"task": "text", "objective": "noise", "document_mask": True},
        ["data.document_mask", "data.layout='encoder-decoder'"],
    ),
    "text: spans longer than the window": (
        {"task": "text", "objective": "spans", "mean_span": 300.0},
        ["data.mean_span", "data.window (256) tokens; got 300.0", "Try mean_span=3."],
    ),
    "text: a window shorter than the spans of the default": (
        {"task": "text", "objective": "noise", "window": 2},
        ["data.mean_span", "data.window (2) tokens; got 3.0", "Try mean_span=2."],
    ),
}


@pytest.mark.parametrize("objective", ["next_token", "prefix", "masked"])
def test_a_short_window_is_for_what_has_no_spans(objective):
    """The default of mean_span is longer than that window, and such an objective does not read it."""
    layout = "masked" if objective == "masked" else "decoder"
    assert DataConfig(task="text", objective=objective, layout=layout, window=2).window == 2


TOKENIZER_ERRORS = {
    "unknown kind": ({"kind": "charcter"}, ["tokenizer.kind='charcter'", "Did you mean 'character'?"]),
    "unknown source kind": ({"source_kind": "wrd", "shared": False}, ["tokenizer.source_kind='wrd'", "'word'?"]),
    "shared, of two kinds": ({"source_kind": "byte"}, ["'byte'", "'word'", "tokenizer.shared = false"]),
    "rare bytes": ({"kind": "byte", "min_count": 2}, ["tokenizer.min_count (2)", "'byte'", "min_count=1"]),
    "no word at all": ({"min_count": 0}, ["tokenizer.min_count must be at least 1; got 0"]),
    **{
        f"{name} beyond all reach": ({"kind": kind, name: 10**12}, [f"tokenizer.{name} must be at most"])
        for kind, name in (("bpe", "vocab_size"), ("word", "vocab_size"), ("word", "min_count"))
    },
    "too small for bytes": ({"kind": "bpe", "vocab_size": 261}, ["261", "at least 262", "'byte'"]),
    "too small for bytes within words": ({"kind": "wordpiece", "vocab_size": 516}, ["516", "at least 517"]),
    "too small on the source side": (
        {"kind": "word", "source_kind": "bpe", "shared": False, "vocab_size": 10},
        ["10", "at least 262"],
    ),
}


@pytest.mark.parametrize(("kind", "fields", "message"), [
    *((DataConfig, *each) for each in DATA_ERRORS.values()),
    *((TokenizerConfig, *each) for each in TOKENIZER_ERRORS.values()),
], ids=[*DATA_ERRORS, *TOKENIZER_ERRORS])  # fmt: skip
def test_a_config_says_what_is_wrong(kind, fields, message):
    with pytest.raises(ConfigError) as error:
        kind(**fields)
    for words in message:
        assert words in str(error.value)


def test_two_kinds_are_fine_when_not_shared_and_bpe_may_have_no_merge():
    assert TokenizerConfig(source_kind="character", shared=False).source_kind == "character"
    assert TokenizerConfig(kind="bpe", vocab_size=262).vocab_size == 262


@pytest.mark.parametrize("task", sorted({*TASKS, *KINDS}))
def test_every_setting_belongs_to_some_task_and_none_is_said_to_have_no_use_where_it_has(task):
    """What a task does not use are just those fields that another task does."""
    names = {name for name, _ in DataConfig.__dataclass_fields__.items()}
    assert {*unused(kind_of(task))} < names
    everywhere = {"task", "layout"} | {f"{name}{side}" for name in config.SPLITS for side in ("", "_source", "_target")}
    assert {name for each in [*TASKS, *KINDS] for name in names - {*unused(kind_of(each))}} == names
    assert not everywhere & {*unused(kind_of(task))}


def test_text_is_named_by_its_own_settings():
    named = DataConfig(task=TEXT, layout="decoder", text="a.txt", test_text="c.txt")
    assert [named.text_file(split) for split in TEXTS] == ["a.txt", None, "c.txt"]
    assert [named.named_files(split) for split in TEXTS] == [["a.txt"], [], ["c.txt"]]
    with pytest.raises(ConfigError, match="Did you mean 'test'"):
        named.text_file("tests")


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_an_objective_goes_with_its_layout_and_no_other(objective):
    for layout in LAYOUTS:
        if layout == OBJECTIVES[objective]:
            assert DataConfig(task=TEXT, objective=objective, layout=layout).layout == layout
        else:
            with pytest.raises(ConfigError, match=r"data\.layout"):
                DataConfig(task=TEXT, objective=objective, layout=layout)


def test_files_of_a_split():
    parallel = DataConfig(train="a.tsv", dev_source="b", dev_target="c")
    assert parallel.files("train") == ("a.tsv", None, None)
    assert parallel.files("dev") == (None, "b", "c")
    assert parallel.files("test") == (None, None, None)
    with pytest.raises(ConfigError, match="Did you mean 'train'"):
        parallel.files("trian")


def test_every_layout_of_the_config_has_a_batch_and_lengths():
    encoded = encode_pairs([Pair("ab", "c")], _bytes())
    own = {layout for name, kind in KINDS.items() if name != LABELLED for layout in kind.layouts}
    for layout in [each for each in LAYOUTS if each not in (*TEXT_LAYOUTS, *own)]:  # which have no pairs
        if layout == "label":
            encoded = encode_pairs([Pair("ab", "c")], Tokenizers(ByteTokenizer(), Labels(["b", "c"])))
        source, target = encoded.lengths(layout)
        made = batch.collate(encoded, [0], layout)
        assert made.tokens.shape[1] == target[0]
        assert (0 if made.source is None else made.source.shape[1]) == source[0]


def test_configs_load_no_heavy_library():
    """`--help` shows these fields, and must not wait for torch."""
    program = (
        "import sys; from glassformer.data.config import DataConfig, TokenizerConfig; "
        "DataConfig(task='copy'); TokenizerConfig(kind='bpe'); "
        "print([name for name in ('torch', 'numpy', 'tokenizers') if name in sys.modules])"
    )
    assert printed("-c", program).strip() == "[]"


def _bytes():
    return Tokenizers(ByteTokenizer(), ByteTokenizer())
