"""Golden losses: a refactor changes none of them."""

import os
from math import nextafter
from pathlib import Path

import pytest

from glassformer.fast.training import SWITCH
from train.golden import FED, STEPS, TOLERANCE, arithmetic, conditions, data_of, differing, losses, recipes

RECORDED, *LINES = Path(__file__).with_name("golden.txt").read_text("utf-8").splitlines()
LARGE = ("denoise", "lm", "mlm", "spell", "sort")
GOLDEN = {name: [float.fromhex(loss) for loss in line] for name, *line in map(str.split, LINES)}


def test_every_recipe_that_can_be_fed_has_its_losses():
    assert [*GOLDEN] == recipes()
    assert {*FED} < {*GOLDEN}
    assert {len(line) for line in GOLDEN.values()} == {STEPS}


def cases() -> list[object]:
    """Each recipe; of the large ones the first steps in the push tier."""
    few = [pytest.param(name, 6 if name in LARGE else STEPS, id=name) for name in recipes()]
    return few + [pytest.param(name, STEPS, marks=pytest.mark.slow, id=f"{name}-whole") for name in LARGE]


@pytest.mark.parametrize(("name", "steps"), cases())
def test_losses_are_golden(name, steps):
    if os.environ.get(SWITCH) == "0" and name in ("classify", "decision", "regression", "seq2seq"):
        pytest.skip("it has dropout, for which plain torch draws other random numbers")
    here = conditions()
    how = (
        "bit for bit" if here == RECORDED else f"to {TOLERANCE}, as golden.txt is of {RECORDED!r} and this is {here!r}"
    )
    print(f"compared {how}")
    found = losses(name, steps)
    wrong = differing(found, GOLDEN[name][:steps], exact=here == RECORDED)
    assert not wrong, (
        f"{name}, compared {how}: another loss at step {wrong[0]} ({found[wrong[0] - 1 : wrong[0]]}); the model, its "
        "first weights, its data, their order or its training changed; if that is meant, see golden.py"
    )


@pytest.mark.promise
def test_losses_are_the_same_each_time():
    """As is the digest of the arithmetic, by which it is known where bits can be compared."""
    assert losses("classify") == losses("classify")
    assert len({arithmetic() for _ in range(3)}) == 1


def test_the_last_bit_counts_where_it_can():
    golden = GOLDEN["copy"]
    off = [*golden[:4], nextafter(golden[4], 9.0), *golden[5:]]
    assert differing(golden, golden, exact=True) == []
    assert differing(off, golden, exact=True) == [5]
    assert differing(off, golden, exact=False) == []
    assert differing([each * (1 + 3 * TOLERANCE) for each in golden], golden, exact=False) == [*range(1, STEPS + 1)]
    assert differing(golden[:-1], golden, exact=False) == [STEPS]


@pytest.mark.parametrize("name", FED)
def test_files_are_written_alike_each_time(name, tmp_path):
    texts = []
    for place in (tmp_path / "one", tmp_path / "other"):
        place.mkdir()
        texts.append([Path(path).read_text("utf-8") for path in data_of(name, place).values()])
    assert texts[0] == texts[1]
    assert len(texts[0]) == 2
