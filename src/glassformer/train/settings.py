"""The settings of training, checkpoints and decoding: frozen values, checked when made. Imports no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glassformer.base.bounds import at_least, at_most
from glassformer.base.errors import ConfigError
from glassformer.base.openmp import MOST_THREADS
from glassformer.base.registry import lookup
from glassformer.base.typed import check_types
from glassformer.data.growth import Growth
from glassformer.decode.beam_settings import BeamSettings
from glassformer.decode.choose.sampling import Sampling
from glassformer.train.breaks.table import break_names
from glassformer.train.optim.schedule import SCHEDULES, USES, Schedule

PRECISIONS = ("auto", "bfloat16", "float16", "float32")
DECODE_CACHES = ("exact", "int8")
DECODE_PRECISIONS = ("auto", "bfloat16", "float32", "int8")
"""The precisions of fast/decoding.py, repeated here because that module imports torch."""
TRACKERS = ("tensorboard",)
TEXT_METRICS = ("bleu", "chrf")
LABEL_METRICS = ("accuracy", "macro_f1")
ANSWER_METRICS = (*TEXT_METRICS, "exact_match", "token_accuracy")
METRICS = (*ANSWER_METRICS, *LABEL_METRICS, "loss")
"""The metrics that can choose the best checkpoint; a smaller loss is better, for the others a larger value."""

MOST = 2**31 - 1
"""The upper bound of all counts: no run lasts longer, and no list is as long."""
MOST_WARMUP = 1_000_000
"""Most steps of a batch or length warm-up. Each step is planned ahead: that takes seconds, and some 100 MB."""


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of `[training]`: how the weights are found."""

    steps: int = 2000
    """Weight updates in the whole run."""
    batch_tokens: int = 4096
    """Tokens per batch, source plus target, padding included."""
    pool: int | None = None
    """Random samples that are sorted by length together to form batches; unset: all. Fewer: batches mix more and pad
    more."""
    accumulate: int = 1
    """Gradient accumulation: pieces each batch is split into to save memory. Exact without dropout, whose masks it
    changes."""
    recompute: int = 0
    """Activation checkpointing in groups of this many blocks: saves memory for one more forward pass; 0: off."""
    seed: int = 1
    """Random seed of the initial weights, the data, its order and dropout."""
    learning_rate: float = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    schedule: str = "inverse_square_root"
    """Decay after the warm-up: inverse_square_root, cosine, linear, constant, or wsd (warm-up, stable, decay)."""
    warmup: int = 200
    """Steps in which the learning rate rises linearly from 0."""
    batch_warmup: int = 0
    """Steps in which the batch grows from `batch_start` to the whole of batch_tokens, always 1/n of it; 0: off."""
    batch_start: float = 0.125
    """Fraction of a batch that the batch warm-up begins with."""
    length_warmup: int = 0
    """Steps in which the longest sequence grows from `length_start`; longer samples come later in the epoch; 0: off."""
    length_start: int = 8
    """Longest sequence at the start of the length warm-up, in tokens, special ones included."""
    min_learning_rate: float = 0.0
    """Rate that cosine, linear and wsd reach after the last update, and lower bound of inverse_square_root."""
    cooldown: int | None = None
    """Steps of decay at the end of the schedule wsd; unset: a fifth of the run."""
    clip: float = 1.0
    """Gradient clipping: largest norm of the gradient; 0: off."""
    label_smoothing: float = 0.0
    """Share of the target probability spread over the whole vocabulary, or over all labels."""
    precision: str = "auto"
    """Arithmetic: auto (bfloat16 if it is measured to be 1.15 times as fast), float32, bfloat16 or float16."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
    threads: int = 0
    """Processor threads; 0: OMP_NUM_THREADS, else those available, up to 8. Recorded: a resumed run has as many."""
    evaluate_every: int = 500
    """Steps between evaluations on the dev split; 0: only at the end."""
    patience: int = 0
    """Early stopping, after this many evaluations without improvement; 0: off."""
    metric: str = "exact_match"
    """Metric that selects the best checkpoint: exact_match, token_accuracy, bleu, chrf; of labels accuracy, macro_f1;
    or loss."""
    samples: int = 3
    """Sample outputs shown at each evaluation."""
    skip_nonfinite: int = 0
    """Updates that may be skipped in the run because loss or gradient is NaN or infinite; 0: stop at the first."""
    start_from: str | None = None
    """Fine-tuning: run whose tokenizer, model settings and best weights to start from, where they fit; unset: from
    scratch."""
    track: str | None = None
    """Also write the curves to RUN/tensorboard: tensorboard (needs the extra track)."""
    broken: str | None = None
    """Classic mistakes made on purpose, separated by commas; see --break."""

    def __post_init__(self) -> None:
        check_types(self, "training")
        at_least(self, "training", 1, "steps", "batch_tokens", "pool", "accumulate")
        at_least(self, "training", 0, "seed", "warmup", "min_learning_rate", "clip", "threads")
        at_least(self, "training", 0, "evaluate_every", "patience", "samples", "skip_nonfinite", "recompute")
        at_least(self, "training", 0, "batch_warmup", "length_warmup")
        at_least(self, "training", 1, "length_start")
        at_most(self, "training", MOST_WARMUP, "batch_warmup", "length_warmup")
        at_most(self, "training", MOST, "steps", "batch_tokens", "accumulate", "warmup", "evaluate_every", "patience")
        at_most(self, "training", MOST, "samples", "pool", "skip_nonfinite", "recompute")
        at_most(self, "training", 2**64 - 1, "seed")
        at_most(self, "training", MOST_THREADS, "threads")
        if not 0.0 < self.learning_rate < math.inf:
            raise ConfigError(
                f"training.learning_rate must be above 0 and finite; got {self.learning_rate}. "
                "Try training.learning_rate=0.001."
            )
        if not 0.0 <= self.label_smoothing < 1.0:
            raise ConfigError(
                f"training.label_smoothing must be at least 0 and below 1; got {self.label_smoothing}. Try 0.1."
            )
        if not 0.001 <= self.batch_start <= 1.0:
            raise ConfigError(
                "training.batch_start, the share of a batch that the batch warm-up begins with, must be from 0.001 to "
                f"1; got {self.batch_start}. Try 0.125."
            )
        if self.min_learning_rate > self.learning_rate:
            raise ConfigError(
                f"training.min_learning_rate ({self.min_learning_rate}) must be at most training.learning_rate "
                f"({self.learning_rate}), from which the schedule decays; lower the first or raise the second."
            )
        lookup(SCHEDULES, self.schedule, "training.schedule")
        self._check_use()
        _ = self.rates  # refuses a cooldown that the schedule does not read or has no room for
        if self.track is not None:
            one_of(TRACKERS, self.track, "training.track")
        one_of(PRECISIONS, self.precision, "training.precision")
        one_of(METRICS, self.metric, "training.metric")
        break_names(self.broken)
        if self.start_from == "":
            raise ConfigError(
                "training.start_from must name a run folder; got ''. Name one, or remove training.start_from."
            )

    def _check_use(self) -> None:
        """Refuse settings that would be ignored: the start of a warm-up that is off, or a final rate never reached."""
        for name, warmup in (("batch_start", "batch_warmup"), ("length_start", "length_warmup")):
            if getattr(self, name) != getattr(type(self), name) and not getattr(self, warmup):
                raise ConfigError(
                    f"training.{name} is where training.{warmup} begins; got {name}={getattr(self, name)} with "
                    f"{warmup}=0, which is off. Remove training.{name}, or try training.{warmup}=100."
                )
        if self.min_learning_rate and self.schedule not in USES["min_learning_rate"]:
            raise ConfigError(
                f"training.min_learning_rate is the rate that a schedule decays to; got {self.min_learning_rate} with "
                f"schedule={self.schedule!r}, which does not decay. Remove training.min_learning_rate, or try "
                "training.schedule='cosine'."
            )

    @property
    def growth(self) -> Growth:
        """How large a batch and how long a sequence may be at every step."""
        return Growth(self.batch_warmup, self.batch_start, self.length_warmup, self.length_start)

    @property
    def rates(self) -> Schedule:
        """The learning rate of every step."""
        return Schedule(
            self.schedule, self.learning_rate, self.steps, self.warmup, self.min_learning_rate, self.cooldown
        )


@dataclass(frozen=True)
class CheckpointConfig:
    """Settings of `[checkpoint]`: what is kept on disk."""

    every: int = 500
    """Steps between checkpoints; 0: only at the end (and when interrupted)."""
    keep: int = 2
    """Newest checkpoints to keep; the best one is kept as well."""
    keep_every: int = 0
    """Also keep every checkpoint whose step is a multiple of this; 0: none."""
    background: bool = True
    """Write checkpoints in the background, from a copy in memory; off: training waits for the disk."""

    def __post_init__(self) -> None:
        check_types(self, "checkpoint")
        at_least(self, "checkpoint", 0, "every", "keep_every")
        at_least(self, "checkpoint", 1, "keep")
        at_most(self, "checkpoint", MOST, "every", "keep", "keep_every")


@dataclass(frozen=True)
class DecodeConfig(BeamSettings, Sampling):
    """Settings of `[decode]`: how answers are written, including those of `Sampling` and `BeamSettings`."""

    section: ClassVar[str] = "decode"

    temperature: float = 0.0
    """Sampling temperature, by which logits are divided; 0: greedy decoding, which takes the most probable token."""
    max_new_tokens: int | None = None
    """Longest answer, in tokens; unset: twice the length of its source plus 10 (text after a prompt: 200)."""
    batch_size: int = 128
    """Sequences decoded together."""
    precision: str = "float32"
    """Weights in decoding: float32 (as trained), bfloat16 or int8 (both rounded and faster), or auto (bfloat16 if the
    hardware has it, else float32); not in losses and greedy scores."""
    compile: bool = False
    """Compile the decoding steps with TorchInductor in place of our C++, for long jobs of models that the C++ does not
    know; takes up to a minute at the start."""
    cache: str = "exact"
    """KV cache: exact, or int8 (rounded, a quarter of the memory; not with compile)."""
    threads: int = 0
    """Processor threads of a finished run, whatever it is loaded for; 0: OMP_NUM_THREADS, else those available, up to
    8. Training, with its evaluations, has training.threads."""

    def __post_init__(self) -> None:
        Sampling.__post_init__(self)
        self.check_beam()
        usual = {"max_new_tokens": "100, or leave it out for the usual length", "batch_size": "32"}
        at_least(self, "decode", 1, "max_new_tokens", "batch_size", advice=usual)
        at_least(self, "decode", 0, "threads")
        at_most(self, "decode", MOST, "max_new_tokens", "batch_size")
        at_most(self, "decode", MOST_THREADS, "threads")
        one_of(DECODE_PRECISIONS, self.precision, "decode.precision")
        one_of(DECODE_CACHES, self.cache, "decode.cache")
        if self.compile and self.cache == "int8":
            raise ConfigError(
                "Compiled steps need an exact KV cache; got decode.compile=true with decode.cache='int8'. Set "
                "decode.compile=false, or decode.cache='exact'."
            )
        if self.beam > 1 and self.contrastive_alpha:
            raise ConfigError(
                f"Beam search and contrastive search cannot be combined; got decode.beam={self.beam} with "
                f"decode.contrastive_alpha={self.contrastive_alpha}. Set decode.beam=1, or "
                "decode.contrastive_alpha=0.0."
            )
        if self.beam > 1 and self.temperature:
            raise ConfigError(
                f"Beam search keeps the likeliest answers and does not sample; got decode.beam={self.beam} with "
                f"decode.temperature={self.temperature}. Set decode.temperature=0.0, or decode.beam=1."
            )


def one_of(known: tuple[str, ...], value: str, what: str) -> None:
    """Refuse an unknown name, suggesting the nearest known one."""
    lookup(dict.fromkeys(known), value, what)
