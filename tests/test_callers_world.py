"""Every public function leaves its caller's world as it was: modes, weights, generators, threads, torch's globals.

Each is called here with a model in training mode, one part of which is frozen in evaluation mode. A new public function
needs an entry in `CALLS`.
"""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib import import_module
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import glassformer
from glassformer import (
    Batch,
    Schedule,
    answer,
    diagnose,
    diagnose_run,
    generate,
    heat_map,
    load,
    observe,
    plot_attention,
    plot_positions,
    preset,
    read_trace,
    recompute,
    save,
    sharpest_head,
    silence,
    trace,
    train_steps,
)  # fmt: skip
from glassformer.data.config import TokenizerConfig
from glassformer.data.dataset import Tokenizers, build_tokenizers
from glassformer.data.pairs import Pair
from glassformer.data.tokenizer import TOKENIZERS
from glassformer.data.tokens.vocabulary import Labels
from glassformer.decode.answer import (
    Member,
    answers,
    ensemble_probabilities,
    fill_blanks,
    label_probabilities,
    read_back,
)
from glassformer.decode.beam import beam_search
from glassformer.decode.choose import chooser
from glassformer.decode.contrastive import contrastive
from glassformer.decode.engine import Engine, warm_up
from glassformer.decode.requests import Request
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.decode.speculative import speculative
from glassformer.decode.stream import search_texts, write
from glassformer.lens.ablate import gradient_importance
from glassformer.lens.attribute import attribute
from glassformer.lens.patch import Input, keep, patch, patched
from glassformer.lens.picture import cross_attention_picture
from glassformer.lens.roles.diagnosis import open_run, over_checkpoints, usual_outputs
from glassformer.lens.roles.probe import induction_probe
from glassformer.nn.config import ModelConfig, StackConfig
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.outputs import Classify
from glassformer.nn.transformer import Transformer
from glassformer.train.finished.loading import load_run
from glassformer.train.finished.use import answer_lines, best_model, evaluate, translate
from glassformer.train.finished.writing import Writer
from glassformer.train.objective import next_token
from glassformer.train.recipe import Recipe, load_recipe, override
from glassformer.train.run.outlook import look_ahead
from glassformer.train.run.session import resume, start
from glassformer.train.run.trial import noise_over, search
from lens.learners import backwards, probe_of
from lens.test_roles_of_a_run import SMALL, TINY, untrained_run
from train.test_classifier import classifier_recipe as classifier

LETTERS = TOKENIZERS["character"].train(["abcdefghij"], TokenizerConfig())
PAIRS = Tokenizers(LETTERS, LETTERS)
SOURCE, TOKENS = torch.tensor([[7, 8, 9, 2]]), torch.tensor([[1, 9, 8]])
WEIGHTS = torch.eye(3)
Case = SimpleNamespace


def within(context: object, body: Callable[[], object]) -> None:
    """Run a body inside a context manager; its dropout is the caller's own."""
    with torch.random.fork_rng(), ExitStack() as stack:
        stack.enter_context(context)  # pyright: ignore[reportArgumentType]
        body()


def train(case: Case) -> None:
    """Two updates; the weights move, as they should, so a copy is compared."""
    case.moves = True
    batches = [Batch.pairs([[7, 8]], [[8, 7]])] * 2
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.0)
    for _ in train_steps(case.model, batches, optimizer, Schedule("constant", 0.1, 2)):
        pass


def started(case: Case) -> Path:
    """Start a run, which has no checkpoint yet, and return its folder."""
    start(override(load_recipe("reverse"), SMALL), case.folder / "new")
    return case.folder / "new"


def own(case: Case) -> Recipe:
    """The recipe of the run."""
    return load_recipe(case.run / "recipe.toml")


def few() -> Recipe:
    """A recipe for trials, which train a little."""
    return override(load_recipe("reverse"), {**SMALL, **TINY, "training.threads": 0})


def searched(case: Case) -> object:
    """Texts of a beam."""
    given = {"sources": TEXT, "prompts": None, "max_new_tokens": [2], "stops": (), "filters": (), "never": ()}
    more = {"forced": None, "numbers": [0], "prefix": False, "poll": int, "behind": [False], "complete": None}
    return [*search_texts(case.model, LETTERS, search=BeamSettings(beam=2), n=1, **given, **more)]


def batched(case: Case) -> object:
    """One text of an engine."""
    engine = Engine(case.decoder)
    warm_up(engine)
    engine.submit(Request(prompt=[7, 8], max_new_tokens=2))
    return [engine.step(), engine.step()]


def one_of_two(case: Case) -> object:
    """A classifier that answers with itself."""
    labels = Tokenizers(LETTERS, Labels(("bad", "good", "so")))
    return ensemble_probabilities([Member(name, case.labels, labels) for name in "ab"], [TEXT * 2])


TEXT, TWO = [[7, 8, 9]], {"sources": [[7, 8, 9]], "max_new_tokens": 2}
ON = {"prompts": TEXT, "max_new_tokens": 2}
DECODING: dict[str, Callable[[Case], object]] = {
    "answer": lambda c: answer(c.model, TEXT, max_new_tokens=2),
    "answer, drawn": lambda c: answer(c.model, TEXT, sampling=Sampling(), max_new_tokens=2),
    "answers": lambda c: answers(c.model, TEXT, search=BeamSettings(beam=2), n_best=2),
    "beam_search": lambda c: beam_search(c.model, BeamSettings(beam=2, coverage_penalty=0.2), **TWO),
    "contrastive": lambda c: [*contrastive(c.decoder, alpha=0.5, **ON)],
    "Engine": batched,
    "Ensemble": lambda c: [*generate(Ensemble([c.decoder, c.decoder]), **ON)],
    "ensemble_probabilities": one_of_two,
    "fill_blanks": lambda c: fill_blanks(c.blanks, TEXT, [2]),
    "generate": lambda c: [*generate(c.model, **TWO)],
    "generate, drawn": lambda c: [*generate(c.decoder, **ON, choose=chooser(Sampling(seed=3)))],
    "label_probabilities": lambda c: label_probabilities(c.labels, TEXT),
    "read_back": lambda c: read_back(c.model, TEXT, answer(c.model, TEXT, max_new_tokens=2)),
    "search_texts": searched,
    "speculative, draft": lambda c: [*speculative(c.decoder, draft=c.decoder, **ON)],
    "speculative, lookup": lambda c: [*speculative(c.decoder, lookup=2, **ON)],
    "write": lambda c: [*write(c.model, LETTERS, **TWO)],
}
CALLS: dict[str, Callable[[Case], object]] = {
    **DECODING,
    "diagnose": lambda c: diagnose(c.model, probe_of("encoder-decoder", backwards, n=12)),
    "diagnose_run": lambda c: diagnose_run(c.run, sequences=6, scored=6),
    "heat_map": lambda c: heat_map(WEIGHTS, "abc", "abc"),
    "load": lambda c: load(save(c.folder / "kept", c.model, PAIRS)),
    "observe": lambda c: within(observe(c.model), lambda: c.model(TOKENS, source=SOURCE)),
    "plot_attention": lambda c: plot_attention(WEIGHTS, ["a", "b$", "c"], file=c.folder / "a.svg"),
    "plot_positions": lambda c: plot_positions(length=4, d_model=4),
    "preset": lambda c: preset("gpt2"),
    "read_trace": lambda c: read_trace(c.traced),
    "recompute": lambda c: within(recompute(c.model), lambda: c.model(TOKENS, source=SOURCE)),
    "save": lambda c: save(c.folder / "kept", c.model, PAIRS),
    "sharpest_head": lambda c: sharpest_head({"x.self_attention": WEIGHTS[None, None]}, "self_attention"),
    "silence": lambda c: within(silence(c.model, [("cross", 0, 1)]), lambda: c.model(TOKENS, source=SOURCE)),
    "trace": lambda c: trace(c.model, LETTERS, "abc"),
    "train_steps": train,
    # what a finished run is used with, and a run before it begins
    "answer_lines": lambda c: [*answer_lines(c.labelled, [(1, "red cat"), (2, "cow")], 1)],
    "evaluate": lambda c: evaluate(c.run, own(c), "dev"),
    "load_run": lambda c: load_run(c.run, own(c)),
    "look_ahead": lambda c: look_ahead(few(), c.folder / "new"),
    "noise_over": lambda c: [*islice(noise_over(few()), 1)],
    "open_run": lambda c: open_run(c.run),
    "over_checkpoints": lambda c: [*over_checkpoints(c.run, sequences=4)],
    "best_model": lambda c: best_model(c.run),
    "search": lambda c: search(few()),
    "translate": lambda c: [*translate(c.run, [(1, "a b c"), (2, "b a c")], 1)],
    "Writer": lambda c: [*Writer(c.run, own(c)).write(["a b c"])],
    # named in the documentation, or for looking inside
    "build_tokenizers": lambda c: build_tokenizers(TokenizerConfig(), [Pair("ab", "ba")]),
    "load_recipe": lambda c: load_recipe("reverse"),
    "induction_probe": lambda c: induction_probe(range(6, 30), lengths=(5,), n=10),
    "start": started,
    "resume": lambda c: resume(started(c)),
    "override": lambda c: override(load_recipe("reverse"), {"training.steps": 3}),
    "attribute": lambda c: attribute(c.model, TOKENS, torch.tensor([9, 8, 2]), SOURCE),
    "cross_attention_picture": lambda c: cross_attention_picture(c.model, PAIRS, "abc"),
    "gradient_importance": lambda c: gradient_importance(c.model, [Batch.pairs([[7, 8]], [[8, 7]])], next_token),
    "keep": lambda c: keep(c.model, Input(TOKENS, SOURCE)),
    "patch": lambda c: patch(c.model, Input(TOKENS, SOURCE), Input(TOKENS, SOURCE.flip(1)), [9, 8, 2]),
    "patched": lambda c: within(
        patched(c.model, keep(c.model, Input(TOKENS, SOURCE)), heads=[("cross", 0, 0)]),
        lambda: c.model(TOKENS, source=SOURCE),
    ),
    "usual_outputs": lambda c: usual_outputs(c.model, probe_of("encoder-decoder", backwards, n=12)),
}
RAISING = {
    "answer": lambda c, stop: answer(c.model, [[7, 8, 9]], poll=stop),
    "diagnose": lambda c, stop: diagnose(c.model, probe_of("encoder-decoder", backwards, n=12), between=stop),
    "patch": lambda c, stop: patch(c.model, Input(TOKENS, SOURCE), Input(TOKENS, SOURCE.flip(1)), [9, 8, 2], poll=stop),
    "trace": lambda c, stop: trace(c.model, LETTERS, "abc", poll=stop),
    "evaluate": lambda c, stop: evaluate(c.run, own(c), "dev", ready=stop),
    "look_ahead": lambda c, stop: look_ahead(few(), c.folder / "new", lambda *given: stop()),
    "noise_over": lambda c, stop: next(noise_over(few(), lambda *given: stop())),
    "over_checkpoints": lambda c, stop: [*over_checkpoints(c.run, sequences=4, between=stop)],
    "search": lambda c, stop: search(few(), lambda *given: stop()),
    "translate": lambda c, stop: next(translate(c.run, (stop() for _ in "a"), 1)),
    "answer_lines": lambda c, stop: next(answer_lines(c.labelled, (stop() for _ in "a"), 1)),
    "Writer": lambda c, stop: [*Writer(c.run, own(c)).write(["a b c"], poll=stop)],
    "observe": lambda c, stop: within(observe(c.model), stop),
    "silence": lambda c, stop: within(silence(c.model, [("cross", 0, 1)]), stop),
    "recompute": lambda c, stop: within(recompute(c.model), stop),
}
LEFT = {
    "translate": lambda c: translate(c.run, [(1, "a b c"), (2, "b a c")], 1),
    "answer_lines": lambda c: answer_lines(c.labelled, [(1, "red cat"), (2, "cow")], 1),
    "Writer": lambda c: Writer(c.run, own(c)).write(["a b c", "b a c"]),
    "noise_over": lambda c: noise_over(few()),
    "over_checkpoints": lambda c: over_checkpoints(c.run, sequences=4),
    "generate": lambda c: generate(c.model, sources=[[7, 8, 9]], max_new_tokens=9),
    "contrastive": lambda c: contrastive(c.decoder, alpha=0.5, prompts=[[7, 8]], max_new_tokens=9),
    "speculative": lambda c: speculative(c.decoder, lookup=1, prompts=[[7, 8]], max_new_tokens=9),
    "train_steps": lambda c: train_steps(
        c.model, [Batch.pairs([[7, 8]], [[8, 7]])] * 9, torch.optim.SGD(c.model.parameters(), lr=0.0),
        Schedule("constant", 0.1, 9),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Case:
    """A run that writes, and one that gives labels; nothing here changes them."""
    folder = tmp_path_factory.mktemp("runs")
    for _ in start(classifier(folder), folder / "labelled").train():
        pass
    return Case(run=untrained_run(folder / "run", "reverse", SMALL), labelled=folder / "labelled")


@pytest.fixture
def case(tmp_path: Path, runs: Case) -> Case:
    """Models with much dropout, in training mode but for one block."""
    torch.manual_seed(3)
    stack = StackConfig(d_model=16, n_heads=2, n_layers=2, d_ff=32, dropout=0.5)
    sides = {"model": {"encoder": stack, "decoder": stack}, "decoder": {"decoder": stack}, "blanks": {"encoder": stack}}
    sides["labels"] = {"encoder": stack, "head": Classify(3)}
    made = {name: Transformer(ModelConfig(LETTERS.vocab_size, **each)).train() for name, each in sides.items()}
    for each in made.values():
        each.reader.blocks[0].eval()
        next(each.reader.blocks[1].parameters()).requires_grad_(False)
    case = Case(**made, models=[*made.values()], folder=tmp_path, moves=False, traced=tmp_path / "a.gft", **vars(runs))
    trace(case.model, LETTERS, "abc").save(case.traced)
    return case


def world(case: Case) -> dict[str, object]:
    """Return all that a function might leave changed, as values that can be compared."""
    models = case.models
    return {
        "modes": [each.training for model in models for each in model.modules()],
        "attributes": [sorted(vars(each)) for model in models for each in model.modules()],
        "hooks": [len(each._forward_hooks) for model in models for each in model.modules()],
        "weights": [] if case.moves else [each.tolist() for model in models for each in model.state_dict().values()],
        "gradients": case.moves or [each.grad is None for model in models for each in model.parameters()],
        "torch's generator": torch.random.get_rng_state().tolist(),
        "numpy's generator": str(np.random.get_state()),
        "parameters to train": [each.requires_grad for model in models for each in model.parameters()],
        "threads": torch.get_num_threads(),
        "gradients recorded": torch.is_grad_enabled(),
        "default dtype": torch.get_default_dtype(),
        "default device": torch.get_default_device(),
        "anomaly mode": torch.is_anomaly_enabled(),
        "fast path": torch.backends.mha.get_fastpath_enabled(),
        "working folder": Path.cwd(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "float32 precision": torch.get_float32_matmul_precision(),
    }


def differences(before: dict[str, object], case: Case) -> list[str]:
    """Return the names of what has changed."""
    now = world(case)
    return [it for it in before if before[it] != now[it] and not (case.moves and it in ("weights", "gradients"))]


@pytest.fixture
def threads() -> Iterator[None]:
    """A number of torch's threads that nobody chooses by himself."""
    before = torch.get_num_threads()
    torch.set_num_threads(2 if before == 1 else before - 1)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("name", CALLS)
def test_a_call_leaves_the_world_as_it_was(case, threads, name):
    before = world(case)
    CALLS[name](case)
    assert differences(before, case) == []


@pytest.mark.parametrize("name", RAISING)
def test_so_does_a_call_that_ends_in_an_error(case, threads, name):
    def stop() -> None:
        raise ZeroDivisionError

    before = world(case)
    with pytest.raises(ZeroDivisionError):
        RAISING[name](case, stop)
    assert differences(before, case) == []


@pytest.mark.parametrize("name", DECODING)
def test_so_does_decoding_that_ends_in_an_error(case, threads, name):
    for each in case.models:
        each.reader.norm.register_forward_hook(lambda *_: 1 / 0)
    before = world(case)
    with pytest.raises(ZeroDivisionError):
        DECODING[name](case)
    assert differences(before, case) == []


@pytest.mark.parametrize("name", LEFT)
def test_so_does_a_generator_that_is_left_early(case, threads, name):
    case.moves = name == "train_steps"
    before = world(case)
    steps = LEFT[name](case)
    next(steps)
    between = {"threads", *(() if case.moves else ("modes", "gradients recorded"))}
    assert not between & {*differences(before, case)}, "between two steps, too"
    steps.close()
    assert differences(before, case) == []


GIVEN_BACK = {
    "base/runtime.py": "`choose_threads` itself, and what gives them back",
    "cli/": "a command has its process for itself",
    "learn/judge.py": "a process of its own",
    "proof/check/examine.py": "a process of its own",
    "train/run/session.py: _runtime": "`start` and `resume`, which call it, give them back",
}
"""Where torch's threads may be set for good, and why."""


def test_threads_are_set_only_where_they_are_given_back():
    """Within a function or a `with` of `threads_kept`."""
    root = Path(glassformer.__file__).parent
    found = [
        f"{path.relative_to(root).as_posix()}: {function}"
        for path in sorted(root.rglob("*.py"))
        for function in setting_threads(ast.parse(path.read_text("utf-8")), "", kept=False)
    ]
    assert [each for each in found if not each.startswith((*GIVEN_BACK,))] == []
    assert all(any(each.startswith(place) for each in found) for place in GIVEN_BACK)


def setting_threads(node: ast.AST, function: str, *, kept: bool) -> Iterator[str]:
    """Yield the function around each call that sets torch's threads and does not give them back."""
    if isinstance(node, ast.FunctionDef):
        function = node.name
        kept = any("threads_kept" in ast.unparse(each) for each in node.decorator_list)
    kept = kept or (isinstance(node, ast.With) and any("threads_kept" in ast.unparse(each) for each in node.items))
    if (
        isinstance(node, ast.Call)
        and re.search(r"\b(choose_threads|set_num_threads)$", ast.unparse(node.func))
        and not kept
    ):
        yield function
    for each in ast.iter_child_nodes(node):
        yield from setting_threads(each, function, kept=kept)


def test_nothing_draws_from_pythons_own_generator():
    """Read from the source, as checks of types while tests run draw from it, too."""
    for path in Path(glassformer.__file__).parent.rglob("*.py"):
        code = path.read_text("utf-8")
        assert not re.search(r"^from random import (?!Random$)", code, re.MULTILINE), path
        if re.search(r"^import random$", code, re.MULTILINE):
            assert {*re.findall(r"(?<![\w.])random\.(\w+)", code)} == {"Random"}, path


def functions_in_docs() -> set[str]:
    """Return the functions of the package that code in README and docs imports."""
    root = Path(__file__).parents[1]
    found: set[str] = set()
    for page in (root / "README.md", *sorted((root / "docs").rglob("*.md"))):
        for code in re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            found |= {name for of, name in imports(code) if inspect.isfunction(getattr(import_module(of), name, None))}
    return found


def imports(code: str) -> list[tuple[str, str]]:
    """Return what a snippet imports from the package; none from one that is not whole code."""
    try:
        tree = ast.parse(code)
    except SyntaxError:
        return []
    return [
        (each.module, name.name)
        for each in ast.walk(tree)
        if isinstance(each, ast.ImportFrom) and each.module and each.module.split(".")[0] == "glassformer"
        for name in each.names
    ]


def test_every_public_function_is_called_here():
    public = {name for name in glassformer.__all__ if inspect.isfunction(getattr(glassformer, name))}
    assert sorted((public | functions_in_docs()) - {*CALLS}) == []
    assert {"trace", "generate", "train_steps"} <= public
