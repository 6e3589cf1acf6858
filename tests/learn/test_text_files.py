"""From two text files to translations, by the commands a user types, until the model knows every sentence."""

import gzip
import io
import json
import re
import signal
import sys
from pathlib import Path

import pytest

from glassformer.cli.main import main
from glassformer.store.folders import newest, step_folder
from glassformer.train.records import Progress, Records

WORDS = {
    "dog": "Hund", "horse": "Pferd", "man": "Mann", "child": "Kind", "runs": "rennt", "sleeps": "schläft",
    "waits": "wartet", "slowly": "langsam", "here": "hier",
}  # fmt: skip
PAIRS = [
    (f"A {who} {does}{how}.", f"Ein {WORDS[who]} {WORDS[does]}{' ' + WORDS[how.strip()] if how else ''}.")
    for who in ("dog", "horse", "man", "child")
    for does in ("runs", "sleeps", "waits")
    for how in ("", " slowly", " here")
]
TINY = (
    *("--model.d-model", "32", "--model.n-heads", "2", "--model.n-layers", "1", "--model.d-ff", "64"),
    *("--model.dropout", "0", "--tokenizer.vocab-size", "330", "--training.batch-tokens", "600"),
    *("--training.threads", "1", "--training.device", "cpu", "--training.precision", "float32"),
    *("--training.steps", "180", "--training.learning-rate", "1e-2", "--training.warmup", "20"),
    *("--training.evaluate-every", "60", "--training.metric", "bleu", "--checkpoint.every", "45"),
)


def write(path: Path, side: int) -> str:
    """One side of the pairs: German compressed, English with the line ends of Windows."""
    text = "".join(f"{pair[side]}\n" for pair in PAIRS)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.replace("\n", "\r\n").encode())
    return str(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> str:
    """A run of the recipe multi30k on 36 sentences, stopped by Ctrl-C and resumed."""
    folder = tmp_path_factory.mktemp("text")
    english, german = write(folder / "all.en", 0), write(folder / "all.de.gz", 1)
    files = [f"--data.{split}-{side}" for split in ("train", "dev", "test") for side in ("source", "target")]
    named = [word for flag, path in zip(files, (english, german) * 3, strict=True) for word in (flag, path)]
    out = str(folder / "run")
    write_step = Records.step

    def interrupted(records: Records, event: Progress) -> None:
        write_step(records, event)
        if event.step == 70:
            signal.raise_signal(signal.SIGINT)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Records, "step", interrupted)
        assert main(["train", "multi30k", *TINY, *named, "--out", out]) == 130
    assert newest(Path(out)).folder == step_folder(Path(out), 70)
    assert main(["resume", out]) == 0
    return out


def test_scores(run, capsys):
    assert main(["evaluate", run, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["exact_match"], report["token_accuracy"], report["n"], report["cut"]) == (1.0, 1.0, 36, 0)
    assert report["bleu"] == pytest.approx(100.0)
    assert report["chrf"] == pytest.approx(100.0)
    assert "tok:13a" in report["bleu_signature"]
    assert report["loss"] < 0.5  # not nothing, as labels are smoothed


def test_lines_come_back_translated_and_in_order(run, capsys, monkeypatch):
    sources = [PAIRS[row][0] for row in (35, 0, 17, 3)]
    text = "\r\n".join([sources[0], "", *sources[1:]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    assert main(["translate", run, "--batch-size", "3"]) == 0
    output = capsys.readouterr()
    assert output.out.splitlines() == [PAIRS[35][1], "", *(PAIRS[row][1] for row in (0, 17, 3))]
    assert re.fullmatch(r"decoding: [^\n]*\n", output.err)
