"""Which checkpoint is newest, which is best, and which may be deleted."""

import hashlib
import json
import os
import random
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from glassformer.base.errors import CheckpointError, ConfigError
from glassformer.store import folders
from glassformer.store.folders import (
    CONFIG,
    MANIFEST,
    MODEL,
    PLAIN,
    STATE,
    Entry,
    best_or_newest,
    check,
    checkpoints,
    manifest_text,
    newest,
    read_manifest,
    read_state,
    rotate,
    step_folder,
    step_number,
)
from store.examples import contents, names, plain_step, rewrite_manifest, tiny_step

EDGES = [0, 1, 8, 9, 10, 11, 99, 100, 9_999, 10_000, 10_001, 999_999_999, 1_000_000_000, 1_000_000_001]


def damage(folder: Path) -> None:
    with (folder / "config.json").open("ab") as file:
        file.write(b"x")


def state_step(run: Path, step: int, **state: object) -> Path:
    folder = tiny_step(run, step)
    (folder / STATE).write_text(json.dumps({"format": 1, "state": state}))
    rewrite_manifest(folder)
    return folder


def test_names_of_steps():
    assert step_folder(Path("runs/x"), 1234) == Path("runs/x/checkpoints/step-000001234")
    assert [step_number(step_folder(Path(), step)) for step in EDGES] == EDGES
    others = ["step-5", "step-0000000005", "step-000000005 ", "step-00000000x", "xstep-000000005", "step-٠٠٠٠٠٠٠٠٥"]
    assert [step_number(Path(name)) for name in others] == [None] * len(others)


def test_order_is_that_of_numbers(tmp_path):
    for step in reversed(EDGES):
        plain_step(tmp_path, step)
    assert list(checkpoints(tmp_path)) == EDGES
    assert newest(tmp_path).folder == step_folder(tmp_path, EDGES[-1])


def test_clock_does_not_matter(tmp_path):
    for step, time in ((9, 2_000_000_000), (10, 1_000_000_000)):
        folder = tiny_step(tmp_path, step)
        for path in (folder, *folder.iterdir()):
            os.utime(path, (time, time))
    assert newest(tmp_path).folder == step_folder(tmp_path, 10)


def test_nothing_there(tmp_path):
    assert newest(tmp_path / "none") == newest(tmp_path) == (None, ())
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "step-000000001").write_text("a file")
    (tmp_path / "checkpoints" / "step-000000002").symlink_to(tmp_path)
    (tmp_path / "checkpoints" / "step-3").mkdir()
    (tmp_path / "checkpoints" / ".tmp-step-000000004-1").mkdir()
    assert best_or_newest(tmp_path) == (None, ())


def test_damaged_ones_are_passed_over_and_named(tmp_path):
    for step in (5, 10, 15):
        tiny_step(tmp_path, step)
    damage(step_folder(tmp_path, 15))
    (step_folder(tmp_path, 10) / "MANIFEST.json").unlink()
    found = newest(tmp_path)
    assert found.folder == step_folder(tmp_path, 5)
    assert [each.folder for each in found.skipped] == [step_folder(tmp_path, step) for step in (15, 10)]
    assert "config.json is damaged" in found.skipped[0].reason
    assert "MANIFEST.json is missing" in found.skipped[1].reason
    damage(step_folder(tmp_path, 5))
    assert newest(tmp_path).folder is None
    assert len(newest(tmp_path).skipped) == 3


def test_best(tmp_path):
    for step in (5, 10, 15):
        state_step(tmp_path, step, best=10)
    assert best_or_newest(tmp_path) == (step_folder(tmp_path, 10), ())
    state_step(tmp_path, 15, best=None)
    assert best_or_newest(tmp_path) == (step_folder(tmp_path, 15), ())
    state_step(tmp_path, 15)
    assert best_or_newest(tmp_path) == (step_folder(tmp_path, 15), ())


def test_best_that_is_gone_or_damaged(tmp_path):
    state_step(tmp_path, 5, best=5)
    state_step(tmp_path, 10, best=7)
    found = best_or_newest(tmp_path)
    assert found.folder == step_folder(tmp_path, 10)
    assert "step-000000007, the best checkpoint, is missing" in found.skipped[0].reason
    state_step(tmp_path, 10, best=5)
    damage(step_folder(tmp_path, 5))
    found = best_or_newest(tmp_path)
    assert (found.folder, [each.folder for each in found.skipped]) == (
        step_folder(tmp_path, 10),
        [step_folder(tmp_path, 5)],
    )


def test_best_is_damaged_and_newest(tmp_path):
    """Passed over twice, it is named once."""
    state_step(tmp_path, 5, best=10)
    damage(state_step(tmp_path, 10, best=10))
    found = best_or_newest(tmp_path)
    assert (found.folder, len(found.skipped)) == (step_folder(tmp_path, 5), 1)


@pytest.mark.parametrize("best", ["10", 10.0, True, -1, {"step": 10}, [10]])
def test_best_that_is_no_step(tmp_path, best):
    state_step(tmp_path, 5, best=best)
    with pytest.raises(CheckpointError, match=r'"best" in state\.json must be the number of a step'):
        best_or_newest(tmp_path)


@pytest.mark.parametrize("value", [[], {}, {"format": 1}, {"format": "1", "state": {}}, {"format": 1, "state": []}])
def test_state_that_is_none(tmp_path, value):
    (tmp_path / STATE).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=r'state\.json must hold "format"'):
        read_state(tmp_path)


def test_keep_at_least_one(tmp_path):
    tiny_step(tmp_path, 1)
    for count in (0, -1):
        with pytest.raises(ConfigError, match=f"at least 1; got {count}"):
            rotate(tmp_path, count)
    assert rotate(tmp_path / "none", 1) == []


def rotation(steps: set[int], damaged: set[int], keep: int, best: int | None, every: int = 0) -> None:
    """Deletes what it should, and what is left is byte for byte what it was."""
    with TemporaryDirectory() as name:
        run = Path(name)
        for step in steps:
            plain_step(run, step)
        for step in damaged:
            damage(step_folder(run, step))
        before = {step: contents(folder) for step, folder in checkpoints(run).items()}
        assert rotate(run, keep, best, keep_every=every) == []
        left = {step: contents(folder) for step, folder in checkpoints(run).items()}
        complete = steps - damaged
        known = {step for step in damaged if complete and step > max(complete)}
        counted = sorted(steps - known)[-keep:]
        kept = {*counted, *known, best} & steps if complete else steps
        kept |= {step for step in steps if every and not step % every}
        assert left == {step: before[step] for step in kept}
        assert names(run / "checkpoints") == sorted(step_folder(run, step).name for step in kept)
        assert newest(run).folder == (step_folder(run, max(complete)) if complete else None)


@st.composite
def rotations(draw: st.DrawFn) -> tuple[set[int], set[int], int, int | None, int]:
    """Steps around the places where a digit is added, some damaged; a best one, that may be missing, none or any."""
    every = draw(st.sampled_from([0, 1, 2, 5, 10, 100, 10_000]))
    steps = draw(st.sets(st.sampled_from(EDGES) | st.integers(0, 20_000), min_size=4, max_size=7))
    old = st.sampled_from(sorted(steps)[:-2])
    damaged = draw(st.sets(st.sampled_from(sorted(steps)[1:]), max_size=3))
    best = draw(old | st.none() | st.just(5))
    return steps, damaged, draw(st.sampled_from([1, 2, 3, 9])), best, every


FEW = [
    ({10}, set(), 1, None),
    ({10}, {10}, 1, None),
    ({9, 10}, {9, 10}, 1, 9),
    ({9, 10}, {10}, 1, 10),
    ({9, 10, 11}, set(), 1, 9),
    ({9_999, 10_000, 10_001}, {10_000, 10_001}, 1, None),
    ({8, 9, 10, 11}, {10, 11}, 1, None),
    ({9, 10, 11, 20, 21}, set(), 1, 11, 10),
    ({99, 100, 101}, {101}, 1, None, 100),
]


@pytest.mark.parametrize("case", FEW, ids=str)
def test_rotation_of_few(case):
    rotation(*case)


@settings(max_examples=40)
@given(rotations())
def test_rotation(case):
    rotation(*case)


@pytest.mark.slow
@settings(max_examples=5_000)
@given(rotations())
def test_rotation_many(case):
    rotation(*case)


def test_growing_run(tmp_path):
    """Saving and rotating as a run does: there is never less than asked for, and the best one stays."""
    for step in range(8, 14):
        tiny_step(tmp_path, step)
        rotate(tmp_path, 2, best=9 if step >= 9 else None)
        assert set(checkpoints(tmp_path)) == {max(8, step - 1), step, min(9, step)}


def test_damaged_ones_are_not_counted(tmp_path):
    """As after a resume that passed over two: the newest two good ones stay, and the damaged ones go in their turn."""
    for step in (8, 9, 10, 11):
        tiny_step(tmp_path, step)
    damaged = {step_folder(tmp_path, 9), step_folder(tmp_path, 10)}
    rotate(tmp_path, 2, complete=step_folder(tmp_path, 11), damaged=damaged)
    assert set(checkpoints(tmp_path)) == {8, 9, 10, 11}
    tiny_step(tmp_path, 12)
    rotate(tmp_path, 2, complete=step_folder(tmp_path, 12), damaged=damaged)
    assert set(checkpoints(tmp_path)) == {11, 12}


def test_the_one_that_was_just_saved_stays(tmp_path):
    """Also where others have higher steps, whose content is not known."""
    for step in (1, 2, 3):
        tiny_step(tmp_path, step)
    rotate(tmp_path, 1, complete=step_folder(tmp_path, 1))
    assert set(checkpoints(tmp_path)) == {1, 3}


def test_delete_that_fails(tmp_path, monkeypatch):
    for step in (1, 2, 3):
        tiny_step(tmp_path, step)
    rename = os.rename

    def fail(source: object, target: object) -> None:
        if "step-000000001" in str(source):
            raise PermissionError(13, "Permission denied")
        rename(source, target)

    monkeypatch.setattr(os, "rename", fail)
    (failed,) = rotate(tmp_path, 1)
    assert failed.startswith(f"{step_folder(tmp_path, 1)} cannot be deleted: Permission denied")
    assert set(checkpoints(tmp_path)) == {1, 3}


def test_delete_that_stops_half_way_leaves_no_half(tmp_path, monkeypatch):
    tiny_step(tmp_path, 1)
    tiny_step(tmp_path, 2)

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(folders.shutil, "rmtree", fail)
        with pytest.raises(KeyboardInterrupt):
            rotate(tmp_path, 1)
    assert list(checkpoints(tmp_path)) == [2]
    tiny_step(tmp_path, 3)
    assert names(tmp_path / "checkpoints") == ["step-000000002", "step-000000003"]


# --- The manifest: every change to a listed file is seen, and it can name nothing outside its folder


@pytest.fixture
def folder(tmp_path):
    return tiny_step(tmp_path, 1)


def test_says_size_and_hash(folder):
    values = json.loads((folder / MANIFEST).read_text())
    data = (folder / CONFIG).read_bytes()
    assert values[CONFIG] == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert values.keys() == contents(folder).keys() - {MANIFEST}
    assert {name: each._asdict() for name, each in check(folder).items()} == values


def change(data: bytes, random: random.Random) -> bytes:
    """One byte flipped, or some cut off, or some added."""
    at = random.randrange(len(data))
    flipped = bytes([data[at] ^ random.randrange(1, 256)])
    return random.choice([data[:at] + flipped + data[at + 1 :], data[:at], data + random.randbytes(1 + at)])


def test_every_change_is_seen(folder):
    chance, whole = random.Random(1), contents(folder)
    for _ in range(250):
        name = chance.choice(sorted(whole))
        (folder / name).write_bytes(change(whole[name], chance))
        with pytest.raises(CheckpointError) as caught:
            check(folder)
        assert str(folder) in str(caught.value)
        (folder / name).write_bytes(whole[name])
    check(folder)


def test_space_in_the_manifest_counts(folder):
    """Between the values, JSON itself does not care; the manifest has no byte that nothing guards."""
    whole = (folder / MANIFEST).read_bytes()
    places = [at for at in range(len(whole)) if whole[at : at + 1].isspace()]
    assert len(places) > 20
    for at in places:
        (folder / MANIFEST).write_bytes(whole[:at] + (b" " if whole[at] == 10 else b"\n") + whole[at + 1 :])
        with pytest.raises(CheckpointError, match="is damaged"):
            read_manifest(folder)


@pytest.mark.parametrize("name", [MODEL, CONFIG, STATE, MANIFEST])
def test_missing_file(folder, name):
    (folder / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        check(folder)


def test_file_that_is_not_listed_is_no_part(folder):
    """Whatever else lies there (a note, .DS_Store) is not read, so it does no harm."""
    (folder / "note.txt").write_text("x")
    (folder / "optimizer.safetensors").write_text("x")
    assert check(folder).keys() == contents(folder).keys() - {MANIFEST, "note.txt", "optimizer.safetensors"}


def test_manifest_that_lists_too_little(folder):
    (folder / STATE).rename(folder.parent / "elsewhere")
    rewrite_manifest(folder)
    (folder.parent / "elsewhere").rename(folder / STATE)
    with pytest.raises(CheckpointError, match=r"does not list state\.json, so the checkpoint is incomplete"):
        check(folder)


HASH = "0" * 64
NO_ENTRIES = [None, 1, [], {}, {"size": 1}, {"size": -1, "sha256": HASH}, {"size": "1", "sha256": HASH}]
NO_ENTRIES += [{"size": 1.0, "sha256": HASH}]
NO_ENTRIES += [{"size": 1, "sha256": digest} for digest in (HASH[1:], "g" * 64, "A" * 64, HASH + "\n", None)]


@pytest.mark.parametrize(("value", "message"), [
    *((each, "must be a JSON object") for each in ([], 3, "x", None)),
    *(({"config.json": each}, r"'config\.json' needs a size in bytes and a sha256") for each in NO_ENTRIES),
])  # fmt: skip
def test_manifest_of_another_form(folder, value, message):
    (folder / MANIFEST).write_text(json.dumps(value))
    with pytest.raises(CheckpointError, match=message):
        read_manifest(folder)


OUTSIDE = ["", ".", "..", "../x", "a/../../x", "/etc/passwd", "a/b", "a\\b", "C:x", "C:\\x", "\\\\server\\x"]
OUTSIDE += ["x\0", "a" * 101, "a" * 4000, "a\n", " a", ".hidden", "~", "~root", "..\uff0fx", "\u2024\u2024", "-rf"]
OUTSIDE += [MANIFEST, "%2e%2e/x"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_names_that_are_not_plain(folder, name):
    refused(folder, name)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=200)
@given(st.text(alphabet="./\\:~%ab\0\u2024\uff0f", min_size=1, max_size=12) | st.text(max_size=20))
def test_generated_names(folder, name):
    if not PLAIN.fullmatch(name):
        refused(folder, name)
    else:
        assert os.path.basename(name) == name  # noqa: PTH119 (the name itself is asked about)
        assert (folder / name).parent == folder


def refused(folder, name):
    """Before anything of that name is looked at: the message is that of the name, not of a missing file."""
    (folder / MANIFEST).write_text(manifest_text({name: Entry(4, HASH)}))
    with pytest.raises(CheckpointError, match="which is not a plain file name"):
        check(folder)


def test_links_in_the_place_of_files(folder, tmp_path):
    """The manifest is right about what the link points to; the link is refused all the same."""
    (tmp_path / "secret").write_bytes((folder / CONFIG).read_bytes())
    (folder / CONFIG).unlink()
    (folder / CONFIG).symlink_to(tmp_path / "secret")
    with pytest.raises(CheckpointError, match=r"config\.json must be a regular file"):
        check(folder)


def test_only_what_will_be_read_is_checked(folder):
    path = folder / MODEL
    path.write_bytes(bytes(path.stat().st_size))
    check(folder, read=(CONFIG, STATE))
    check(folder, hashed=False)
    with pytest.raises(CheckpointError, match="SHA-256"):
        check(folder, read=(MODEL,))
    with pytest.raises(CheckpointError, match="SHA-256"):
        check(folder)
    path.unlink()
    check(folder, read=(CONFIG, STATE))
    with pytest.raises(CheckpointError, match=r"model\.safetensors is missing"):
        check(folder, hashed=False)
