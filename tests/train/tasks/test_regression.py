"""Numbers out: reading rows and texts, the scale of numbers, figures computed by hand, and runs."""

import io
import json

import numpy as np
import pytest
import torch

from glassformer.base.errors import ConfigError, DataError
from glassformer.cli.main import main
from glassformer.data.config import DataConfig
from glassformer.data.pairs import Pair
from glassformer.data.regression import Chosen, Scale, batch_of, make_numbers, read_numbers, values_of
from glassformer.data.rows import Columns
from glassformer.data.tokenizer import tokenizer_from_json
from glassformer.lens.roles.diagnosis import readable
from glassformer.lens.trace.make import trace
from glassformer.proof.doctor import probes_for
from glassformer.proof.doctor.case import case_of
from glassformer.proof.doctor.finding import FAILURE, examine
from glassformer.store.checkpoint import load
from glassformer.train.finished.use import answer_lines, evaluate
from glassformer.train.loss import loss_of
from glassformer.train.objective import regress
from glassformer.train.recipe import load_recipe, override
from glassformer.train.run.beginning import begin, new_model, prepare, prepare_split
from glassformer.train.run.session import start
from glassformer.train.tasks import task_of
from glassformer.train.tasks.regression import number_scores
from train.examples import OF_FILES, SMALL, assert_resumed_to_the_same_bits
from train.tasks.test_tags import write

LAYOUTS = ["feature-numbers", "text-numbers"]


def small(layout="feature-numbers", **changes):
    changes = {name.replace("__", "."): each for name, each in changes.items()}
    return override(load_recipe("regression"), SMALL | {"data.layout": layout} | changes)


# --- files


def test_csv_tabs_and_json_say_the_same(tmp_path):
    table = "rooms,area,price\n3,62.5,410\n 4 ,1e2,500.25\n"
    rows = [{"rooms": 3, "area": 62.5, "price": 410}, {"rooms": 4, "area": 100.0, "price": 500.25}]
    wanted = [
        Pair('{"rooms": 3, "area": 62.5}', '{"price": 410}'),
        Pair('{"rooms": 4, "area": 100}', '{"price": 500.25}'),
    ]
    files = {
        "a.csv": table,
        "a.tsv": table.replace(",", "\t"),
        "a.jsonl": "".join(json.dumps(row) + "\n" for row in rows),
        "a.json": json.dumps(rows),
    }
    for name, text in files.items():
        path, named = write(tmp_path / name, text), Columns(None, "price")
        assert read_numbers(path, named, as_text=False).pairs == wanted, name
    loaded = read_numbers(str(tmp_path / "a.csv"), Columns(), as_text=False)
    assert [loaded.origin.place(row, "source") for row in (0, 1)] == [f"{tmp_path}/a.csv:{line}" for line in (2, 3)]


def test_columns_are_chosen_by_name_or_number(tmp_path):
    path = write(tmp_path / "a.csv", 'id,text,price,"area, m2"\n1,"four, large",9,70\n')
    texts = read_numbers(path, Columns("text", 'price,"area, m2"'), as_text=True)
    assert texts.pairs == [Pair("four, large", '{"price": 9, "area, m2": 70}')]
    assert read_numbers(path, Columns("2", "4"), as_text=True).pairs == [Pair("four, large", '{"area, m2": 70}')]
    assert read_numbers(path, Columns("1,3"), as_text=False).pairs[0].source == '{"id": 1, "price": 9}'


def test_later_files_have_the_columns_of_training_in_any_order(tmp_path):
    known = Chosen(["rooms", "area"], ["price"])
    turned = write(tmp_path / "a.csv", "price,area,rooms\n9,70,2\n")
    (pair,) = read_numbers(turned, Columns(), as_text=False, known=known).pairs
    assert pair == Pair('{"rooms": 2, "area": 70}', '{"price": 9}')
    other = write(tmp_path / "b.csv", "rooms,age,price\n2,70,9\n")
    with pytest.raises(DataError, match=r":1: names .* features in training; got them without area and with age"):
        read_numbers(other, Columns(), as_text=False, known=known)


@pytest.mark.parametrize(("text", "words"), [
    ("1,2\n3,4\n", [":1", "must name the columns", "number 1", "data.header = true"]),
    ("a,b\n1,x\n", [":2: b must be a finite number", "'x'", "choose other columns"]),
    ("a,b\n1,2\nnan,2\n", [":3: a must be a finite number", "'nan'"]),
    ("a,b\n1,inf\n", [":2: b", "'inf'"]),
    ("a,b\n1,1e300\n", [":2: b", "'1e300'"]),
    ("a,b\n1,\n", [":2: b", "''"]),
    ("a,b\n1,2,3\n", [":2", "2 columns", "has 3"]),
    ("a,b\n1,2\n\n3,4\n", [":3", "blank or null", "data.skip_empty = true"]),
    ("a,b\n", ["no sample"]),
    ("", ["the file is empty"]),
    ("a,a\n1,2\n", [":1", "'a' twice"]),
    ("a,\n1,2\n", [":1", "a name of its own"]),
    ("a\n1\n", [":1", "different columns"]),
    ('a,b\n"1,2\n', [":2", "no row of CSV"]),
])  # fmt: skip
def test_rows_of_another_shape_are_refused(tmp_path, text, words):
    with pytest.raises((DataError, ConfigError)) as caught:
        read_numbers(write(tmp_path / "a.csv", text), Columns(), as_text=False)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(("rows", "words"), [
    (['{"a": 1, "label": "2"}'], [":1: label", '"2"']),
    (['{"a": true, "label": 2}'], [":1: a", "true"]),
    (['{"a": null, "label": 2}'], [":1: a", "null"]),
    (['{"a": NaN, "label": 2}'], [":1"]),
    (['{"a": 1, "label": 2}', '{"b": 1, "label": 2}'], [":2", "without a and with b"]),
    (['{"a": 1, "label": 2}', '{"a": 1}'], [":2", "without label"]),
    (['{"a": 1, "price": 2}'], [":1", "no column 'label'", "data.label_column"]),
    (['{"a": 1, "label": 2}', "", '{"a": 1, "label": 2}'], [":2", "blank", "data.skip_empty = true"]),
    (['{"a": 1, "label": 2}', "null"], [":2", "null", "data.skip_empty = true"]),
])  # fmt: skip
def test_objects_of_another_shape_are_refused(tmp_path, rows, words):
    with pytest.raises(DataError) as caught:
        read_numbers(write(tmp_path / "a.jsonl", "\n".join(rows) + "\n"), Columns(), as_text=False)
    assert all(word in str(caught.value) for word in words), caught.value


@pytest.mark.parametrize(("columns", "as_text", "error"), [
    (Columns(None, "prize"), False, "Did you mean 'price'"),
    (Columns("area", "area"), False, "different columns"),
    (Columns(None, "price,price"), False, "each column once"),
    (Columns("area,rooms", "price"), True, "one column"),
    (Columns(None, None, header=False), False, "must name the columns"),
    (Columns(None, "9"), False, "no column '9'"),
])  # fmt: skip
def test_columns_that_are_not_there_are_refused(tmp_path, columns, as_text, error):
    with pytest.raises((DataError, ConfigError), match=error):
        read_numbers(write(tmp_path / "a.csv", "rooms,area,price\n1,2,3\n"), columns, as_text=as_text)


def test_an_empty_text_is_refused(tmp_path):
    with pytest.raises(DataError, match=r":3: the text \(text\) is empty"):
        read_numbers(write(tmp_path / "a.csv", "text,n\na,1\n ,2\n"), Columns(), as_text=True)


@pytest.mark.parametrize("as_text", [False, True])
def test_what_is_blank_empty_or_null_is_skipped_and_counted(tmp_path, as_text):
    """In a table an empty cell is what null is in JSON; line numbers stay those of the file."""
    rows = ['{"text": 1, "label": 2}', "", "null", '{"text": null, "label": 2}', '{"text": 3, "label": null}']
    files = {
        "a.jsonl": "\n".join([*rows, '{"text": 5, "label": 6}']) + "\n",
        "a.json": f"[null, {', '.join(row for row in rows if row)}, " + '{"text": 5, "label": 6}]',
        "a.csv": "text,label\n1,2\n\n,\n,2\n3,\n5,6\n",
        "a.tsv": "text\tlabel\n1\t2\n\n\t\n\t2\n3\t\n5\t6\n",
    }
    for name, text in files.items():
        path = write(tmp_path / name, text)
        loaded = read_numbers(path, Columns(None, "label"), as_text=as_text, skip_empty=True)
        assert [pair.target for pair in loaded.pairs] == ['{"label": 2}', '{"label": 6}'], name
        assert loaded.skipped == 4
        place = {"a.jsonl": ":6", "a.json": "[6]"}.get(name, ":7")
        assert loaded.origin.place(1, "source") == f"{path}{place}"
        with pytest.raises(DataError, match=r"data\.skip_empty = true"):
            read_numbers(path, Columns(None, "label"), as_text=as_text)


@pytest.mark.parametrize("as_text", [False, True])
def test_made_houses_depend_on_their_split_and_seed_only(as_text):
    config = DataConfig(task="regression", layout=LAYOUTS[as_text], train_size=50, dev_size=50)
    train, again, dev = (make_numbers(config, split, 1, as_text=as_text) for split in ("train", "train", "dev"))
    assert train == again != make_numbers(config, "train", 2, as_text=as_text)
    assert not {pair.source for pair in train} & {pair.source for pair in dev}


# --- the scale


def test_a_scale_is_of_mean_0_and_deviation_1_and_comes_back_from_its_file():
    rows = np.random.default_rng(0).normal(size=(50, 3)) * [1e-3, 1, 1e6] + [5, 0, -1e7]
    rows[:, 1] = 4.0
    scale = Scale.fit(["a", "b", "c"], rows)
    found = scale.standardised(rows)
    assert np.abs(found.mean(0)).max() < 1e-12
    assert found.std(0) == pytest.approx([1, 0, 1], abs=1e-12)
    assert scale.spreads[1] == 1.0
    assert scale.in_units(found[7].tolist()) == pytest.approx(rows[7].tolist(), rel=1e-6)
    again = tokenizer_from_json(scale.to_json())
    assert (again.entries, again.means, again.spreads) == (scale.entries, scale.means, scale.spreads)


@pytest.mark.parametrize("change", [{"means": [1.0]}, {"spreads": [1.0, 0.0]}, {"means": [1.0, "x"]}, {"entries": []}])
def test_a_file_that_holds_no_scale_is_refused(change):
    record = json.loads(Scale(["a", "b"], [0.0, 1.0], [1.0, 2.0]).to_json()) | change
    with pytest.raises(DataError, match="means and spreads above 0"):
        tokenizer_from_json(json.dumps(record))


def test_a_line_is_a_row_of_csv_or_an_object():
    scale = Scale(["a", "b"], [0.0, 0.0], [1.0, 1.0])
    assert scale.row("1, 2.5") == scale.row('{"b": 2.5, "a": 1}') == [1.0, 2.5]
    assert scale.encode("1,2") == [6, 7]
    for line, words in {
        "1": "2 columns, a, b",
        "a,c": "a must be a finite number",
        "a, b": r"has their names: 'a, b'\. Leave it out",
        "1,nan": "b must be a finite number",
        '1,"2': "^this is no row of CSV",
        '{"a": 1}': "without b",
        '{"a": 1, "b": 2, "c": 3}': "with c",
        '{"a": 1, "b": "2"}': "b must be a finite number",
    }.items():
        with pytest.raises(DataError, match=words):
            scale.row(line)


def test_each_feature_has_its_own_place_and_its_own_numbers():
    batch = batch_of([[6, 7, 8], [8]], [[0.5], [1.5]], [[0.25, -1.0, 2.0], [3.0]], 3)
    assert batch.tokens[0].tolist() == [[0.25, 0, 0, 1, 0, 0], [0, -1, 0, 0, 1, 0], [0, 0, 2, 0, 0, 1]]
    assert batch.tokens[1].tolist() == [[0, 0, 3, 0, 0, 1], [0] * 6, [0] * 6]
    assert batch.keep.tolist() == [[True] * 3, [True, False, False]]
    assert batch.labels.tolist() == [[0.5], [1.5]]


# --- figures, computed by hand


def test_scores_as_written_out():
    draw = np.random.default_rng(3)
    wanted, given = draw.normal(size=(40, 2)) * [1, 50], draw.normal(size=(40, 2)) * [1, 50]
    metrics, tables = number_scores(given, wanted, ["a", "b"])
    for k, name in enumerate(["a", "b"]):
        y, p = wanted[:, k].tolist(), given[:, k].tolist()
        mean = sum(y) / len(y)
        squares = sum((one - other) ** 2 for one, other in zip(y, p, strict=True))
        row = {
            "mse": squares / len(y),
            "mae": sum(abs(one - other) for one, other in zip(y, p, strict=True)) / len(y),
            "r2": 1 - squares / sum((one - mean) ** 2 for one in y),
        }
        assert tables["numbers"][name] == pytest.approx(row, rel=1e-12)
    for name in ("mse", "mae", "r2"):
        assert metrics[name] == pytest.approx(sum(row[name] for row in tables["numbers"].values()) / 2, rel=1e-12)


def test_a_number_that_does_not_vary_has_no_r2():
    wanted, given = np.array([[1.0, 5.0], [2.0, 5.0]]), np.array([[1.0, 4.0], [1.0, 6.0]])
    metrics, tables = number_scores(given, wanted, ["a", "b"])
    assert metrics == {"r2": -1.0, "mse": 0.75, "mae": 0.75, "constant": "b"}
    assert tables["numbers"]["b"]["r2"] == "constant"
    metrics, _ = number_scores(given[:, 1:], wanted[:, 1:], ["b"])
    assert "r2" not in metrics
    assert metrics["constant"] == "b"


# --- settings


@pytest.mark.parametrize(("layout", "changes", "error"), [
    ("feature-numbers", {"data__train": "a.csv", "data__train_size": 100_000}, r"data\.train alone"),
    ("feature-numbers", {"data__train": "a.csv", "data__dev": "b.csv"}, "number of samples to make"),
    ("feature-numbers", {"training__metric": "accuracy"}, "gives numbers.*training.metric='loss'"),
    ("feature-numbers", {"tokenizer__kind": "character"}, "Features are numbers and have no tokens"),
    ("feature-numbers", {"training__label_smoothing": 0.1}, "not for numbers"),
    ("feature-numbers", {"model__tie_embeddings": False}, "tie_embeddings"),
    ("label", {}, "only work together"),
])  # fmt: skip
def test_settings_that_do_not_fit_are_refused(layout, changes, error):
    with pytest.raises(ConfigError, match=error):
        small(layout, **changes)


def test_a_number_that_is_the_same_everywhere_teaches_nothing():
    task = task_of(small().data)
    with pytest.raises(DataError, match="b is 5 in all 2 training samples"):
        task.learn(small(), [Pair('{"x": 1}', '{"a": 1, "b": 5}'), Pair('{"x": 2}', '{"a": 2, "b": 5}')], None)


# --- laws of a model


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_scale_is_of_the_training_samples_alone(layout):
    data = prepare(small(layout))
    numbers = data.tokenizers.target
    rows = values_of([pair.target for pair in data.train.pairs], numbers.entries)
    assert list(numbers.means) == pytest.approx(rows.mean(0).tolist(), rel=1e-12)
    assert list(numbers.spreads) == pytest.approx(rows.std(0).tolist(), rel=1e-12)
    dev = values_of([pair.target for pair in data.dev.pairs], numbers.entries)
    assert data.dev.encoded.numbers == pytest.approx((dev - rows.mean(0)) / rows.std(0), rel=1e-9)


def test_the_units_of_the_data_do_not_matter(tmp_path):
    """Metres or feet, price in euros or in thousands: the loss is the same, and answers are in the units given."""
    rows = np.random.default_rng(0).normal(size=(60, 3))
    factors = {"a": (1, 1, 1), "b": (8, 0.25, 1024)}  # powers of 2: exact in floats
    losses, answers = [], []
    for name, units in factors.items():
        lines = ["x,y,z", *(",".join(repr(float(each)) for each in row * np.array(units)) for row in rows)]
        path = write(tmp_path / f"{name}.csv", "\n".join(lines) + "\n")
        recipe = override(load_recipe("regression"), OF_FILES | {"data.train": path, "data.dev": path})
        data = prepare(recipe)
        torch.manual_seed(0)
        model = new_model(recipe, data.tokenizers).double().eval()
        batch = task_of(recipe.data).batch(data.train.encoded, range(60))
        losses.append(loss_of(model, batch, regress).nll.item())
        with torch.no_grad():
            answers.append(data.tokenizers.target.in_units(model(batch.tokens)[5].tolist()))
    assert losses[0] == pytest.approx(losses[1], rel=1e-12)
    assert answers[1][0] == pytest.approx(1024 * answers[0][0], rel=1e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_padding_and_neighbours_change_no_loss(layout):
    recipe = small(layout)
    data, task = prepare(recipe), task_of(recipe.data)
    model = new_model(recipe, data.tokenizers).double().eval()
    ids = [([6, 7], [6]), ([8, 6, 7], [7]), ([9], [6])] if layout == "text-numbers" else [([6, 8], [6]), ([9], [7])]
    together = task.of_ids(ids, data.tokenizers)
    assert together.pad_share > 0
    whole = loss_of(model, together, regress).nll.item()
    alone = sum(loss_of(model, task.of_ids([each], data.tokenizers), regress).nll.item() for each in ids)
    assert whole == pytest.approx(alone, rel=1e-12)


# --- runs


@pytest.fixture(scope="module", params=LAYOUTS)
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("regression") / "run"
    for _ in start(small(request.param), folder).train():
        pass
    return folder


def test_evaluation_and_answers_are_the_same_whatever_the_batches(run):
    recipe = load_recipe(run / "recipe.toml")
    figures = evaluate(run, recipe)
    assert {"r2", "mse", "mae", "loss", "n", "numbers"} <= {*figures}
    split = prepare_split(recipe, load(run).tokenizers, "test")
    lines = [pair.source for pair in split.pairs]
    together = list(answer_lines(run, enumerate(lines, 1), 16))
    alone = [next(answer_lines(run, [(1, line)], 1)) for line in lines[:3]]
    for one, other in zip(alone, together, strict=False):
        assert one.numbers == pytest.approx(other.numbers, rel=1e-5)
    wanted = values_of([pair.target for pair in split.pairs], ["price", "heating"])
    given = np.array([[*each.numbers.values()] for each in together])
    assert [*together[0].numbers] == ["price", "heating"]
    assert figures["mse"] == pytest.approx(((given - wanted) ** 2).mean(), rel=1e-4)
    assert figures["mae"] == pytest.approx(abs(given - wanted).mean(), rel=1e-4)
    assert together[0].text([]).split(",") == [f"{each:.7g}" for each in together[0].numbers.values()]


def test_a_resumed_run_ends_with_the_same_bits(run, tmp_path):
    assert_resumed_to_the_same_bits(load_recipe(run / "recipe.toml"), tmp_path)


def test_the_doctor_finds_a_run_well(run):
    recipe = load_recipe(run / "recipe.toml")
    probes = [each for each in probes_for(task_of(recipe.data)) if each.name != "overfit"]  # which takes long
    found = list(examine(case_of(run, recipe), probes))
    states = {each.probe: each.state for each in found}
    assert FAILURE not in states.values(), found
    assert {states[name] for name in ("data", "labels", "padding-in-loss", "padding", "pooling", "gradient")} == {"ok"}


def test_the_verb_reads_rows_and_objects(run, capsys, monkeypatch):
    if task_of(load_recipe(run / "recipe.toml").data).layout.tokens:
        lines, field = "3 rooms\n\n", ["--field", "says"]
        objects = '{"says": "3 rooms"}\n\n'
    else:
        lines, field = "3,90,20,5\n\n", []
        objects = '{"area": 90, "rooms": 3, "distance": 5, "age": 20}\n\n'
    seen = []
    for text, options in ((lines, []), (objects, field)):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["predict", str(run), "--json", *options]) == 0
        seen.append(capsys.readouterr().out.splitlines())
    assert seen[0] == seen[1]
    assert [*json.loads(seen[0][0])["numbers"]] == ["price", "heating"]
    assert seen[0][1] == "null"


def test_a_bad_line_is_named(run, capsys, monkeypatch):
    if task_of(load_recipe(run / "recipe.toml").data).layout.tokens:
        pytest.skip("any line is a text")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"3,90,20,5\n3,90,x,5\n")))
    assert main(["predict", str(run)]) == 2
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 1
    assert "line 2: age must be a finite number" in shown.err


def test_a_metric_that_the_dev_data_have_not_is_refused(tmp_path):
    lines = "".join(f"{row},{row * row % 7}\n" for row in range(40))
    train, dev = write(tmp_path / "a.csv", f"x,y\n{lines}"), write(tmp_path / "b.csv", "x,y\n1,2\n3,2\n")
    recipe = override(load_recipe("regression"), OF_FILES | {"data.train": train, "data.dev": dev})
    with pytest.raises(ConfigError, match=r"training.metric='r2' .* these dev data have none: they give mse, mae"):
        for _ in start(recipe, tmp_path / "run").train():
            pass


def test_the_explorer_shows_the_numbers_of_a_text_in_their_units(run):
    recipe, loaded = load_recipe(run / "recipe.toml"), load(run)
    if not task_of(recipe.data).layout.tokens:
        with pytest.raises(ConfigError, match=r"reads no tokens. Use glassformer predict"):
            readable(run)
        return
    shown = trace(loaded.model, loaded.tokenizers, "3 rooms").header["labels"]
    (answered,) = answer_lines(run, [(1, "3 rooms")], 1)
    assert {name: pytest.approx(number, rel=1e-5) for name, number in shown} == answered.numbers


def test_a_run_that_starts_from_another_keeps_the_scale_of_what_it_reads(run):
    recipe = load_recipe(run / "recipe.toml")
    other = override(recipe, {"training.start_from": str(run), "training.seed": 9})
    before, now = load(run).tokenizers, begin(other).data.tokenizers
    assert now.source.to_json() == before.source.to_json()
    assert now.target.to_json() != before.target.to_json()
