"""A session that trains nothing: what the command line asks of it is written down, what it answers is made up."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

from glassformer.base.errors import DataError
from glassformer.cli.main import main
from glassformer.decode.answer import CONTEXTS
from glassformer.decode.constraints import NO_CONSTRAINTS, Constraints
from glassformer.decode.stream import Piece
from glassformer.nn.presets import PRESETS
from glassformer.nn.transformer import Transformer
from glassformer.train.finished.use import Requested, Translated
from glassformer.train.recipe import Recipe, dumps_recipe, override
from glassformer.train.records import Evaluated, Event, Finished, Progress, Sample, Saved, Started, Stopped
from glassformer.train.sample_lengths import Untrained
from glassformer.train.tasks.labels import Classified

TINY = (
    *("--model.d-model", "16", "--model.n-heads", "2", "--model.n-layers", "1", "--model.d-ff", "16"),
    *("--training.threads", "1", "--training.device", "cpu", "--training.precision", "float32"),
    *("--training.steps", "8", "--training.batch-tokens", "256", "--training.evaluate-every", "4"),
    *("--training.samples", "1", "--training.warmup", "2", "--checkpoint.every", "3", "--checkpoint.keep", "9"),
)
TASK = ("--data.train-size", "64", "--data.dev-size", "5", "--data.test-size", "6", "--data.max-length", "9")
STEPS = 6


class FakeSession:
    """Six steps, evaluated after 3 and 6 of them; `at` maps a step to something to do just before it."""

    def __init__(self, run: Path, first: int, at: dict[int, Callable[[], None]]) -> None:
        self.run, self.first, self.at = run, first, at
        self.model = self.prepared = None
        self.interrupted = False

    def interrupt(self) -> None:
        self.interrupted = True

    def train(self) -> Iterator[Event]:
        yield Started(self.first, STEPS, ["device: none, this is a test"])
        for step in range(self.first + 1, STEPS + 1):
            self.at.get(step, lambda: None)()
            yield Progress(step, STEPS, 0, 1.0 / step, 1e-3, 0.5, 1000.0, 0.0, 0.1 * step)
            if step % 3 == 0:
                yield self.evaluation(step)
            if self.interrupted:
                yield Saved(step, self.run / "checkpoints" / f"step-{step:09d}")
                yield Stopped(step, "interrupted")
                return
        yield Finished(STEPS, 0.6, STEPS, {"exact_match": 1.0})

    def evaluation(self, step: int) -> Evaluated:
        samples = [Sample("a b", "b a", "b a" if step == STEPS else f"a {step}")]
        return Evaluated(step, {"exact_match": step / STEPS, "n": 500}, samples, is_best=True)


class Session(ModuleType):
    """In place of `glassformer.train.run.session` and `glassformer.train.finished.use`."""

    def __init__(self) -> None:
        super().__init__("session")
        self.Requested, self.Translated = Requested, Translated
        self.calls: list[tuple[object, ...]] = []
        self.at: dict[int, Callable[[], None]] = {}
        self.failure: BaseException | None = None
        self.metrics: dict[str, float | int | str] = {"exact_match": 0.5, "loss": 0.25, "n": 1000, "signature": "13a"}

    def fail(self) -> None:
        if self.failure is not None:
            raise self.failure

    def start(self, recipe: Recipe, out: Path, ranks: object = None, speed: object = None) -> FakeSession:
        assert not out.exists() or not list(out.iterdir())
        self.calls.append(("start", recipe, out))
        out.mkdir(parents=True, exist_ok=True)
        (out / "recipe.toml").write_text(dumps_recipe(recipe), "utf-8")
        self.fail()
        return FakeSession(out, 0, self.at)

    def resume(self, run: Path, *changes: object, ranks: object = None, speed: object = None) -> FakeSession:
        self.calls.append(("resume", run, *filter(None, changes)))
        self.fail()
        return FakeSession(run, 3, self.at)

    def evaluate(
        self,
        run: Path,
        recipe: Recipe,
        split: str = "test",
        *,
        by_length: bool = False,
        average: int | None = None,
        others: Sequence[Path] = (),
        ready: Callable[[], None],
    ) -> dict[str, float | int | str]:
        self.calls.append(("evaluate", run, recipe, split, *filter(None, [average, others])))
        self.fail()
        ready()
        return self.metrics

    def translate(
        self,
        run: Path,
        lines: Iterator[tuple[int, str]],
        batch_size: int,
        recipe: Recipe | None = None,
        average: int | None = None,
        requested: Requested | None = None,
        constraints: Constraints = NO_CONSTRAINTS,
        others: Sequence[Path] = (),
    ) -> Iterator[Translated]:
        self.calls.append(("translate", run, batch_size, *filter(None, [average, requested, others])))
        self.recipe, self.constraints = recipe, constraints
        batch: list[Translated] = []
        for number, line in lines:
            self.fail()
            if line == "far too long":
                yield from batch
                raise DataError(f"line {number} is too long")
            cut = None if len(line) < 9 else "decode.max_new_tokens=4" if len(line) < 12 else "model.max_len=9"
            batch.append(Translated(line.upper(), cut, ["?"] * line.count("?"), untrained=new_to_it(line)))
            if len(batch) == batch_size:
                yield from batch
                batch = []
        yield from batch

    def answer_lines(
        self,
        run: Path,
        lines: Iterator[tuple[int, str]],
        batch_size: int,
        average: int | None = None,
        others: Sequence[Path] = (),
    ) -> Iterator[Classified]:
        self.calls.append(("classify", run, batch_size, *filter(None, [average, others])))
        batch: list[Classified] = []
        for number, line in lines:
            self.fail()
            label = f"{number}:{len(line)}"
            batch.append(Classified(label, {label: 0.75, "é": 0.25}, ["?"] * line.count("?"), new_to_it(line)))
            if len(batch) == batch_size:
                yield from batch
                batch = []
        yield from batch

    def best_model(self, run: Path) -> Transformer:
        self.calls.append(("best_model", run))
        return Transformer(PRESETS["notebook-001"])


def new_to_it(line: str) -> Untrained | None:
    """The lines that the model was trained on have up to 30 characters."""
    return Untrained(len(line), 1, 30, "source") if len(line) > 30 else None


@pytest.fixture(autouse=True)
def outside(tmp_path, monkeypatch) -> None:
    """Work in an empty folder, with no switch set from outside."""
    monkeypatch.chdir(tmp_path)
    for name in ("GLASSFORMER_DEBUG", "NO_COLOR", "FORCE_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session(monkeypatch) -> Session:
    fake = Session()
    monkeypatch.setitem(sys.modules, "glassformer.train.run.session", fake)
    monkeypatch.setitem(sys.modules, "glassformer.train.finished.use", fake)
    first = Evaluated(0, {}, [Sample("a b", "b a", "a 0")])
    monkeypatch.setattr("glassformer.cli.demo.untrained", lambda model, prepared: first)
    monkeypatch.setattr("glassformer.cli.demo.gaze", lambda model, prepared: "Where it looks: nowhere.\n")
    monkeypatch.setattr("glassformer.cli.demo.explorer", lambda out: f"open {out}/explorer.html\n")
    return fake


class Answer:
    """What a command returned and wrote."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def run(capsys, monkeypatch) -> Callable[..., Answer]:
    """Run the command line in this process, with these bytes on standard input."""

    def command(*words: str, stdin: bytes | None = None) -> Answer:
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", Input(stdin))
        code = main(words)
        out, err = capsys.readouterr()
        return Answer(code, out, err)

    return command


@pytest.fixture
def refused(run) -> Callable[..., str]:
    """Run a command that must fail as a mistake of the user's: exit code 2, nothing but one short message."""

    def command(*words: str, code: int = 2, stdin: bytes | None = None) -> str:
        answer = run(*words, stdin=stdin)
        assert answer.code == code, answer.err
        assert answer.out == ""
        assert answer.err.startswith("glassformer: ")
        assert answer.err.count("\n") == 1
        assert "Traceback" not in answer.err
        assert len(answer.err) < 600
        return answer.err

    return command


@pytest.fixture
def a_run() -> Path:
    path = Path("runs/old")
    path.mkdir(parents=True)
    (path / "recipe.toml").write_text(dumps_recipe(override(Recipe("old"), {"decode.batch_size": 3})))
    return path


class Input:
    """Standard input with these bytes in it."""

    def __init__(self, data: bytes, terminal: bool = False) -> None:
        self.buffer = io.BytesIO(data)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


@pytest.fixture(scope="session")
def trained(tmp_path_factory) -> Path:
    """A finished run of the recipe `reverse`, made smaller."""
    out = tmp_path_factory.mktemp("trained") / "run"
    assert main(["train", "reverse", *TINY, *TASK, "--out", str(out)]) == 0
    return out


ENDINGS = {0: "eos", 1: "max_new_tokens", 2: "stop"}


class Writing(ModuleType):
    """In place of `glassformer.train.finished.writing`: each text says its prompt backwards, a letter a piece."""

    def __init__(self) -> None:
        super().__init__("writing")
        self.recipe: Recipe | None = None
        self.requested: tuple[object, ...] = ()
        self.continues = True
        self.fails: BaseException | None = None
        self.after = 99
        self.not_found: set[int] = set()
        self.full: set[int] = set()
        """Texts that end because the context is full."""
        self.Writer = self

    def __call__(self, run: Path, recipe: Recipe, guessing: object, others: list[Path]) -> Writing:
        assert (guessing, others) == (None, [])
        self.recipe = recipe
        return self

    def unwritable(self, stops: list[str]) -> list[str]:
        return []

    def untrained(self, prompts: list[str]) -> dict[int, Untrained]:
        return {i: new for i, each in enumerate(prompts, 1) if (new := new_to_it(each))}

    def note_of(self, found: dict[int, Untrained], called: str) -> str:
        return f"{called} {[*found]} untrained" if found else ""

    def unknown(self, prompts: list[str]) -> str:
        return "lacked" if any("?" in each for each in prompts) else ""

    def write(
        self, prompts: list[str], n: int, stops: list[str], *, crop: bool, constraints: Constraints
    ) -> Iterator[Piece]:
        self.requested, self.crop, self.constraints = (prompts, n, stops), crop, constraints
        texts = [f"{text[::-1]}{k or ''}" for text in prompts for k in range(n)]
        if self.recipe.decode.beam > 1:  # whole texts, in order
            found = [row for row in range(len(texts)) if row not in self.not_found]
            for row in found:
                limit = CONTEXTS if row in self.full else ""
                yield Piece(row, texts[row], len(texts[row]) + 1, ENDINGS[row % 3], limit=limit)
            return
        for place in range(max(map(len, texts)) + 1):
            for row in range(len(texts)):
                text = texts[row][place : place + 1]
                if place <= len(texts[row]):
                    self.after -= 1
                    if not self.after and self.fails is not None:
                        raise self.fails
                    yield Piece(row, text, place + 1, "" if place < len(texts[row]) else ENDINGS[row % 3])


@pytest.fixture
def writing(monkeypatch) -> Writing:
    fake = Writing()
    monkeypatch.setitem(sys.modules, "glassformer.train.finished.writing", fake)
    return fake


def decoding_as(settings: dict[str, object]) -> Recipe:
    """A recipe with these settings of decoding."""
    return override(Recipe("one"), {f"decode.{name}": value for name, value in settings.items()})


@pytest.fixture
def writes_as(run, writing) -> Callable[[dict[str, object], Sequence[str], dict[str, object]], None]:
    """Asserts that a run whose recipe decodes as `of_run` writes as `expected`, after these words."""

    def check(of_run: dict[str, object], words: Sequence[str], expected: dict[str, object]) -> None:
        Path("runs/one").mkdir(parents=True)
        Path("runs/one/recipe.toml").write_text(dumps_recipe(decoding_as(of_run)))
        assert run("generate", "runs/one", "--prompt", "a", *words).code == 0
        assert writing.recipe == decoding_as(expected)

    return check
