"""The settings of a run, section by section: frozen values, checked when made. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from glassformer.base.contradictions import BEAM, DECODE, OPTIMIZER, TRAINING, refuse
from glassformer.base.errors import ConfigError
from glassformer.base.processors import MOST_THREADS
from glassformer.base.settings import check, like, setting
from glassformer.data.config import DataConfig, TokenizerConfig
from glassformer.data.growth import Growth
from glassformer.decode.settings import BeamSettings, Sampling
from glassformer.nn.recipe import ModelRecipe
from glassformer.train.breaks import break_names
from glassformer.train.schedule import SCHEDULES, Schedule

PRECISIONS = ("auto", "bfloat16", "float16", "float32")
DECODE_CACHES = ("exact", "int8")
DECODE_PRECISIONS = ("auto", "bfloat16", "float32", "int8")
"""The precisions of fast/decoding.py, repeated here because that module imports torch."""
TRACKERS = ("tensorboard",)

MOST = 2**31 - 1
"""The upper bound of all counts: no run lasts longer, and no list is as long."""
MOST_WARMUP = 1_000_000
"""Most steps of a batch or length warm-up. Each step is planned ahead: that takes seconds, and some 100 MB."""


@dataclass(frozen=True)
class Update:
    """How `train_steps` makes each update.

    >>> from glassformer import Update
    >>> Update(accumulate=2, clip=1.0)
    Update(seed=0, accumulate=2, clip=1.0, label_smoothing=0.0, precision='float32', skip_nonfinite=0, recompute=0)
    """

    seed: int = 0
    """Dropout is a function of it, the number of the update, and the piece."""
    accumulate: int = 1
    """Pieces that each batch is cut into; their gradients add up to the whole batch's, token for token."""
    clip: float = setting(0.0, 0)
    """The largest norm of the gradient; 0: any."""
    label_smoothing: float = setting(0.0, 0, below=1, advice="0.1")
    """The share of the target probability that is spread over the whole vocabulary."""
    precision: str = "float32"
    """The arithmetic: float32, bfloat16 or float16, in which updates that overflow are skipped in addition."""
    skip_nonfinite: int = setting(0, 0, MOST)
    """Updates that are skipped, and reported so, if loss or gradient is not finite but the weights are."""
    recompute: int = setting(0, 0, MOST)
    """Activation checkpointing in groups of this many blocks, which changes no bit; 0: none. See `recompute`."""

    def __post_init__(self) -> None:
        check(self)
        if self.accumulate < 1:
            raise ConfigError(
                "accumulate, the number of pieces that each batch is split into, must be at least 1; got "
                f"{self.accumulate}. Try 1, which does not split it."
            )


@dataclass(frozen=True)
class TrainingConfig:
    """Settings of `[training]`: how the weights are found."""

    steps: int = setting(2000, 1, MOST)
    """Weight updates in the whole run."""
    batch_tokens: int = setting(4096, 1, MOST)
    """Tokens per batch, source plus target, padding included."""
    pool: int | None = setting(None, 1, MOST)
    """Random samples that are sorted by length together to form batches; unset: all. Fewer: batches mix more and pad
    more."""
    accumulate: int = setting(1, 1, MOST)
    """Gradient accumulation: pieces each batch is split into to save memory. Exact without dropout, whose masks it
    changes."""
    recompute: int = setting(0, 0, MOST)
    """Activation checkpointing in groups of this many blocks: saves memory for one more forward pass; 0: off."""
    seed: int = setting(1, 0, 2**64 - 1)
    """Random seed of the initial weights, the data, its order and dropout."""
    learning_rate: float = setting(1e-3, above=0.0)
    """Peak learning rate, reached at the end of the warm-up."""
    schedule: str = setting("inverse_square_root", known=SCHEDULES)
    """Decay after the warm-up: inverse_square_root, cosine, linear, constant, or wsd (warm-up, stable, decay)."""
    warmup: int = setting(200, 0, MOST)
    """Steps in which the learning rate rises linearly from 0."""
    batch_warmup: int = setting(0, 0, MOST_WARMUP)
    """Steps in which the batch grows from `batch_start` to the whole of batch_tokens, always 1/n of it; 0: off."""
    batch_start: float = setting(0.125, 0.001, 1, why=", the share that it begins with", advice="0.125")
    """Fraction of a batch that the batch warm-up begins with."""
    length_warmup: int = setting(0, 0, MOST_WARMUP)
    """Steps in which the longest sequence grows from `length_start`; longer samples come later in the epoch; 0: off."""
    length_start: int = setting(8, 1)
    """Longest sequence at the start of the length warm-up, in tokens, special ones included."""
    min_learning_rate: float = setting(0.0, 0)
    """Rate that cosine, linear and wsd reach after the last update, and lower bound of inverse_square_root."""
    cooldown: int | None = None
    """Steps of decay at the end of the schedule wsd; unset: a fifth of the run."""
    clip: float = setting(1.0, 0)
    """Gradient clipping: largest norm of the gradient; 0: off."""
    label_smoothing: float = setting(0.0, 0, below=1, advice="0.1")
    """Share of the target probability spread over the whole vocabulary, or over all labels."""
    precision: str = setting("auto", known=PRECISIONS)
    """Arithmetic: auto (bfloat16 if it is measured to be 1.15 times as fast), float32, bfloat16 or float16."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:1, mps."""
    threads: int = setting(0, 0, MOST_THREADS)
    """Processor threads; 0: OMP_NUM_THREADS, else those available, up to 8. Recorded: a resumed run has as many."""
    evaluate_every: int = setting(500, 0, MOST)
    """Steps between evaluations on the dev split; 0: only at the end."""
    patience: int = setting(0, 0, MOST)
    """Early stopping, after this many evaluations without improvement; 0: off."""
    metric: str = "exact_match"
    """Metric that selects the best checkpoint: exact_match, token_accuracy, bleu, chrf; of labels accuracy, macro_f1;
    others as the task gives them; or loss."""
    samples: int = setting(3, 0, MOST)
    """Sample outputs shown at each evaluation."""
    skip_nonfinite: int = setting(0, 0, MOST)
    """Updates that may be skipped in the run because loss or gradient is NaN or infinite; 0: stop at the first."""
    start_from: str | None = None
    """Fine-tuning: run whose tokenizer, model settings and best weights to start from, where they fit; unset: from
    scratch."""
    track: str | None = setting(None, known=TRACKERS)
    """Also write the curves to RUN/tensorboard: tensorboard (needs the extra track)."""
    broken: str | None = None
    """Classic mistakes made on purpose, separated by commas; see --break."""

    def __post_init__(self) -> None:
        check(self, "training")
        refuse(self, TRAINING, "training")
        _ = self.rates  # refuses a cooldown that there is no room for
        break_names(self.broken)

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

    @property
    def update(self) -> Update:
        """How each update is made; in float32 where the arithmetic is left open."""
        precision = "float32" if self.precision == "auto" else self.precision
        return Update(
            self.seed, self.accumulate, self.clip, self.label_smoothing, precision, self.skip_nonfinite, self.recompute
        )


@dataclass(frozen=True)
class CheckpointConfig:
    """Settings of `[checkpoint]`: what is kept on disk."""

    every: int = setting(500, 0, MOST)
    """Steps between checkpoints; 0: only at the end (and when interrupted)."""
    keep: int = setting(2, 1, MOST)
    """Newest checkpoints to keep; the best one is kept as well."""
    keep_every: int = setting(0, 0, MOST)
    """Also keep every checkpoint whose step is a multiple of this; 0: none."""
    background: bool = True
    """Write checkpoints in the background, from a copy in memory; off: training waits for the disk."""

    def __post_init__(self) -> None:
        check(self, "checkpoint")


@dataclass(frozen=True)
class DecodeConfig(BeamSettings, Sampling):
    """Settings of `[decode]`: how answers are written, including those of `Sampling` and `BeamSettings`."""

    section: ClassVar[str] = "decode"

    temperature: float = like(Sampling, "temperature", 0.0)
    max_new_tokens: int | None = setting(None, 1, MOST, advice="100, or leave it out for the usual length")
    """Longest answer, in tokens; unset: twice the length of its source plus 10 (text after a prompt: 200)."""
    batch_size: int = setting(128, 1, MOST, advice="32")
    """Sequences decoded together."""
    precision: str = setting("float32", known=DECODE_PRECISIONS)
    """Weights in decoding: float32 (as trained), bfloat16 or int8 (both rounded and faster), or auto (bfloat16 if the
    hardware has it, else float32); not in losses and greedy scores."""
    compile: bool = False
    """Compile the decoding steps with TorchInductor in place of our C++, for long jobs of models that the C++ does not
    know; takes up to a minute at the start."""
    cache: str = setting("exact", known=DECODE_CACHES)
    """KV cache: exact, or int8 (rounded, a quarter of the memory; not with compile)."""
    threads: int = setting(0, 0, MOST_THREADS)
    """Processor threads of a finished run, whatever it is loaded for; 0: OMP_NUM_THREADS, else those available, up to
    8. Training, with its evaluations, has training.threads."""

    def __post_init__(self) -> None:
        Sampling.__post_init__(self)
        refuse(self, BEAM, self.section)
        refuse(self, DECODE, self.section)


OPTIMIZERS = ("adamw", "muon", "adafactor")
"""The optimizers by name."""
LEAST_FLOAT32 = 1.1754943508222875e-38


@dataclass(frozen=True)
class OptimizerConfig:
    """Settings of `[optimizer]`: how a gradient becomes a change of the weights."""

    name: str = setting("adamw", known=OPTIMIZERS)
    """adamw; muon (for hidden matrices, of blocks and of a head's dense layer; AdamW for the rest); adafactor (little
    memory)."""
    beta1: float = setting(0.9, 0, below=1, advice="0.9")
    """AdamW, also within muon: decay rate of the mean gradient."""
    beta2: float = setting(0.98, 0, below=1, advice="0.98")
    """AdamW, also within muon: decay rate of the mean squared gradient."""
    epsilon: float = setting(1e-9, LEAST_FLOAT32, why=", as float32 rounds a smaller one to 0", advice="1e-9")
    """AdamW, also within muon: added to the denominator."""
    momentum: float = setting(0.95, 0, below=1, advice="0.95")
    """Muon: momentum, the decay rate of the average gradient."""
    adamw_scale: float = setting(1.0, above=0, most=10**6, advice="1, which gives all weights the same rate")
    """Muon: learning rate of the weights that it leaves to AdamW (embeddings, scores, norms, biases, convolutions), as
    a multiple of training.learning_rate."""
    weight_decay: float = setting(0.0, 0)
    """Decoupled weight decay, of hidden matrices only (of the blocks, and a head's dense layer), times the learning
    rate."""
    layer_decay: float = setting(1.0, above=0, most=1, why=", which gives all layers the same rate", advice="0.8")
    """Layer-wise learning rate decay: rate of a block as a share of the rate of the block above it; the head has the
    full rate."""
    average: float = setting(0.0, 0, below=1, advice="0.99")
    """Exponential moving average (EMA) of the weights, with this decay (try 0.99), evaluated and saved; 0: off."""

    def __post_init__(self) -> None:
        check(self, "optimizer")
        refuse(self, OPTIMIZER, "optimizer")


DAY = 86_400


@dataclass(frozen=True)
class DistributedConfig:
    """Settings of `[distributed]`: how the processes that torchrun starts share the work; one alone needs none."""

    shard: bool = False
    """Shard weights, gradients and optimizer state across the processes (FSDP2); off: each holds all of them (DDP)."""
    timeout: int = setting(600, 1, DAY)
    """Seconds a process waits for the others before it considers one lost and ends the job."""

    def __post_init__(self) -> None:
        check(self, "distributed")


@dataclass(frozen=True)
class Settings:
    """All settings of a run; a `Recipe` is these, with the sections checked against one another."""

    name: str
    """What the run is called; runs/NAME is its folder unless --out says otherwise."""
    description: str = ""
    """One sentence on what is learned."""
    data: DataConfig = field(default_factory=DataConfig)
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    model: ModelRecipe = field(default_factory=ModelRecipe)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    decode: DecodeConfig = field(default_factory=DecodeConfig)
    distributed: DistributedConfig = field(default_factory=DistributedConfig)
