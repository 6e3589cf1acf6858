"""Small models that learn a task in a second or two, and the probes to diagnose them with."""

import random
from collections.abc import Callable, Iterator, Sequence

import torch

from glassformer import Batch, ModelConfig, StackConfig, Transformer
from glassformer.data.batch import pad
from glassformer.data.tokens.vocabulary import BOS, EOS, SEP, SPECIALS
from glassformer.lens.roles.probe import Pairs, Probe, only, pairs_probe
from glassformer.train.loop import train_steps
from glassformer.train.objective import Objective, Targets, masked_token, next_token
from glassformer.train.optimizer import build_optimizer
from glassformer.train.schedule import Schedule
from glassformer.train.settings import OptimizerConfig

SYMBOLS = 10
IDS = range(len(SPECIALS), len(SPECIALS) + SYMBOLS)
VOCAB = IDS.stop
LENGTHS = (4, 5, 6)


def decoder_rows(pairs: Pairs) -> Batch:
    """Return rows <bos> source <sep> target <eos> for a decoder alone. `next_of_answer` asks for the target."""
    return Batch(*pad([[BOS, *source, SEP, *target, EOS] for source, target in pairs]))


def next_of_answer(batch: Batch) -> Targets:
    """Ask for the next token from the first <sep> of each row on."""
    requested = next_token(batch)
    return only(requested, (requested.inputs == SEP).cumsum(1) > 0)


LAYOUTS: dict[str, tuple[Callable[[Pairs], Batch], Objective]] = {
    "encoder-decoder": (lambda pairs: Batch.pairs(*zip(*pairs, strict=True)), next_token),
    "encoder": (lambda pairs: Batch.blanks(*zip(*pairs, strict=True)), masked_token),
    "decoder": (decoder_rows, next_of_answer),
}


def untrained(shape: str, *, n_layers: int = 2, d_model: int = 32, n_heads: int = 2, **settings: object) -> Transformer:
    torch.manual_seed(0)
    sides = {side: StackConfig(d_model=d_model, n_heads=n_heads, n_layers=n_layers, d_ff=2 * d_model, dropout=0.0,
                               causal=side == "decoder", **settings)
             for side in shape.split("-")}  # fmt: skip
    return Transformer(ModelConfig(VOCAB, **sides))


def some_pairs(draw: random.Random, n: int, answer: Callable[[list[int]], list[int]], *, repeats: bool) -> Pairs:
    def source() -> list[int]:
        length = draw.choice(LENGTHS)
        return draw.choices(IDS, k=length) if repeats else draw.sample(IDS, length)

    return [(each, answer(each)) for each in (source() for _ in range(n))]


def backwards(source: list[int]) -> list[int]:
    return source[::-1]


def unchanged(source: list[int]) -> list[int]:
    return source


def probe_of(shape: str, answer: Callable[[list[int]], list[int]], n: int = 60) -> Probe:
    draw = random.Random(7)
    collate, objective = LAYOUTS[shape]
    own, control, scored = (some_pairs(draw, n, answer, repeats=repeats) for repeats in (False, True, True))
    control = [pair for pair in control if len({*pair[0]}) < len(pair[0]) and pair[0] != pair[0][::-1]]
    return pairs_probe("test", own, control, scored, collate, objective, IDS)


def learn(model: Transformer, batches: Iterator[Batch], steps: int, rate: float, objective: Objective) -> Transformer:
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"), learning_rate=rate)
    for _ in train_steps(model, batches, optimizer, Schedule("linear", rate, steps, 20), objective=objective):
        pass
    return model.eval()


def repeated(draw: random.Random, n: int, lengths: Sequence[int]) -> Batch:
    """Rows <bos> s s: what comes after a token is known from where it came before."""
    halves = [draw.sample(IDS, draw.choice(lengths)) for _ in range(n)]
    return Batch(*pad([[BOS, *half, *half] for half in halves]))


def learned(
    shape: str, answer: Callable[[list[int]], list[int]], steps: int, rate: float = 1e-2, **settings
) -> Transformer:
    collate, objective = LAYOUTS[shape]
    draw = random.Random(1)

    def batches() -> Iterator[Batch]:
        while True:
            yield collate(some_pairs(draw, 64, answer, repeats=True))

    return learn(untrained(shape, **settings), batches(), steps, rate, objective)
