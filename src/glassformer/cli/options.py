"""The flags of the command line as data, for the verbs in `verbs.py`."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.settings import meaning_of
from glassformer.decode.settings import Sampling
from glassformer.serve.settings import ServeConfig


@dataclass(frozen=True)
class Option:
    """One flag of a verb. `value` names the value it takes; None makes it a switch."""

    name: str
    value: str | None
    help: str
    repeats: bool = False
    """Whether it may be given several times."""


@dataclass(frozen=True)
class Verb:
    """One verb of the command line."""

    summary: str
    target: str | None
    """What follows the verb: RECIPE, RUN, RUN|PRESET, FILE or list|show|fetch; None if nothing does."""
    about: str
    options: tuple[Option, ...] = ()
    sections: tuple[str, ...] = ()
    """The recipe sections whose settings may be given as `--section.key value`."""
    taken: tuple[str, ...] = ()
    """The settings of those sections that the verb takes, if it does not take them all."""
    second: str | None = None
    """What may follow the target; None if nothing may."""
    needs_second: bool = False
    """Whether it must."""
    many: bool = False
    """Whether several targets may be given."""
    optional: bool = False
    """Whether the target may be left out."""


def setting_of(kind: type, name: str, value: str, default: object = None) -> Option:
    """The flag for a setting, with its sentence and default."""
    usual = getattr(kind, name) if default is None else default
    shown = "" if usual is None else f" (default: {usual:g})" if isinstance(usual, float) else f" (default: {usual})"
    return Option(name.replace("_", "-"), value, f"{meaning_of(kind, name).removesuffix('.')}{shown}.")


OUT = Option("out", "FOLDER", "Run folder to create (default: runs/NAME).")
OVERWRITE = Option("overwrite", None, "Delete an existing run folder and start over.")
CLASSIC = Option(
    "classic",
    None,
    "In place of RECIPE's own model, optimizer and learning rate take the classic ones of Vaswani et al. 2017, with "
    "the norm before the branch; sizes, dropout, data and steps stay.",
)
BREAK = Option("break", "NAME", "Make a classic mistake on purpose, to see its symptom; several with commas.")
ALLOW = Option(
    "allow-change",
    "SETTING",
    "Let this setting, or the file it names, differ from the run so far; repeatable.",
    repeats=True,
)
JSON = Option("json", None, "Print one JSON object, for programs.")
FIND_RATE = Option(
    "find-learning-rate",
    None,
    "Learning rate range test: train 100 steps at rising rates, print losses and a recommendation, and plot them to "
    "NAME-rate.png if matplotlib is installed; make no run.",
)
NOISE = Option(
    "gradient-noise",
    None,
    "Train 100 steps and print the gradient noise scale, the batch size worth its cost, at steps 0, 20 and 100; make "
    "no run.",
)
LOOK_AHEAD_JSON = Option(
    "json", None, "With --dry-run, --find-learning-rate or --gradient-noise: print one JSON object, for programs."
)
SPLIT = Option("split", "SPLIT", "Split to score: test or dev (default: test).")
AVERAGE = Option(
    "average", "N", "Use the mean weights of the N newest checkpoints (see checkpoint.keep), not the best one."
)
BY_LENGTH = Option("by-length", None, "Also report exact match for each source length, in tokens.")
VARY = Option("vary", "SETTING=V1,V2,...", "A setting and its values; several --vary make a grid.", repeats=True)
CHANGE = Option(
    "change",
    "SETTING=V,...",
    "A change of RECIPE that is tried by itself: a setting, or several with commas; repeatable, in place of --vary.",
    repeats=True,
)
SEEDS = Option("seeds", "N", "Runs of each combination, with training.seed and the seeds after it (default: 3).")
ALSO = Option(
    "test", "SETTING=VALUE", "Also score on other data, by a setting of data or decode; repeatable.", repeats=True
)
STUDY = Option("out", "FOLDER", "Folder of the study (default: runs/ablate-NAME).")
JOBS = Option("jobs", "N", "Runs in parallel (default: the free processors, divided by training.threads).")
DRY_RUN = Option("dry-run", None, "List the runs and the progress of each; train nothing.")
LOOK_AHEAD = Option(
    "dry-run", None, "Report parameters, memory, disk, time and data of the run, after a few real steps; make no run."
)
DEVICE = Option("device", "DEVICE", "Where to compute: cpu, cuda or mps (default: cpu).")
DTYPE = Option("dtype", "DTYPE", "Floating-point type: float64 or float32 (default: float64).")
NOTEBOOKS = Option(
    "notebooks",
    "FOLDER",
    "Folder with the tutorial notebooks (.ipynb, .txt or .py), to compare their code with the library's.",
)
ONLY = Option("only", "NAME", "Test only this property, function or class; several with commas.")
STRICT = Option("strict", None, "Exit code 3, too, if a function or class of the file was not looked at.")
LIMIT = Option("limit", "SECONDS", "Time limit for all of the file's code (default: 60).")
BATCH_SIZE = Option("batch-size", "N", "Lines processed together (default: the recipe's).")
N_BEST = Option(
    "n-best",
    "N",
    "Beam search: the N best answers to each line, one per line, each after the number of its input line; fewer than N "
    "where the search finds no more that differ, and one empty answer to a blank line.",
)
SCORES = Option(
    "scores",
    None,
    "After each answer TAB and its score: log-probability divided by the length penalty; of a greedy answer with the "
    "weights as trained, whatever decode.precision and decode.cache are.",
)
ALIGNMENTS = Option(
    "alignments", None, "After each answer TAB and i-j for each token j: i is the source token with the most attention."
)
JSON_ANSWERS = Option("json", None, "One JSON object per line: its number, tokens, and answers with their figures.")
BEAM = Option("beam", "N", "Beam search with N hypotheses (default: the recipe's beam width).")
PROMPT = Option(
    "prompt", "TEXT", "Text to continue, or source to answer (default: standard input; at a terminal an empty text)."
)
FIELD = Option("field", "NAME", "Each line is a JSON object: read this field of it, such as text, or translation.en.")
PLAIN = Option("plain", None, "Lines are plain text, though they look like JSON.")
PROMPTS = Option("file", "FILE", "File with one prompt per line; a blank line is an empty prompt.")
TEXTS = Option(
    "n",
    "N",
    "Texts per prompt (default: 1); more only where they are sampled, or with --beam: the N best, best first, or fewer "
    "where the search finds no more that differ.",
)
SEARCHING = Option(
    "beam", "N", "Beam search with N hypotheses for the most probable texts, whatever beam the recipe has; no sampling."
)
NEW_TOKENS = Option(
    "max-new-tokens",
    "N",
    "Longest text, in tokens (default: the recipe's, else 200, or for an answer twice its source plus 10; with --beam "
    "at most what the prompt leaves of the context).",
)
TEMPERATURE = setting_of(Sampling, "temperature", "T", "the recipe's, else 1")
TOP_K = setting_of(Sampling, "top_k", "K", "the recipe's")
TOP_P = setting_of(Sampling, "top_p", "P", "the recipe's")
MIN_P = setting_of(Sampling, "min_p", "P", "the recipe's")
TYPICAL_P = setting_of(Sampling, "typical_p", "P", "the recipe's")
REPETITION = setting_of(Sampling, "repetition_penalty", "X", "the recipe's")
NGRAM = setting_of(Sampling, "no_repeat_ngram", "N", "the recipe's")
CONTRASTIVE = Option(
    "contrastive-alpha",
    "A",
    "Contrastive search: of the most probable tokens (--top-k, 4) penalise those like the text so far; try 0.6.",
)
DRAFT = Option(
    "draft",
    "RUN",
    "Speculative decoding: this smaller run proposes tokens, RUN checks several at once; faster, same distribution.",
)
LOOKUP = Option("lookup", "N", "Prompt-lookup decoding: propose what followed the last N tokens (or fewer) before.")
GUESSES = Option("guesses", "N", "With --draft or --lookup: tokens proposed at a time (default: 4).")
GREEDY = Option("greedy", None, "Greedy decoding: always the most probable token, no sampling.")
SEED = Option(
    "seed",
    "N",
    "Random seed; the same text for the same seed, prompt, run and settings (default: the recipe's, else 1).",
)
STOP = Option(
    "stop",
    "TEXT",
    "End a text where this string would come, and leave it out; repeatable; \\n is a line end, as in printf.",
    repeats=True,
)
BAN = Option("ban", "TEXT", "Never write this string, not even inside a word; repeatable.", repeats=True)
FORCE = Option("force", "TEXT", "Beam search: each answer contains this string; repeatable.", repeats=True)
BEGIN = Option("begin", "TEXT", "Begin each generated text with this.")
BIAS = Option(
    "bias", "TEXT=X", "Add X to the logit of the token with this text; -inf bans it; repeatable.", repeats=True
)
REGEX = Option("regex", "EXPRESSION", "Constrained decoding: the whole text matches (needs the extra constrain).")
SCHEMA = Option("json-schema", "FILE", "Constrained decoding: JSON that fits a schema (needs the extra constrain).")
CROP = Option("crop", None, "Cut a prompt that is too long to its end; else it is refused.")
NO_PROMPT = Option("no-prompt", None, "Leave the prompt out of the output.")
JSON_TEXTS = Option(
    "json", None, "One JSON object per text, on a line each: prompt, text, tokens, end; of a beam also its score."
)


DATA_FOLDER = Option(
    "data-dir",
    "FOLDER",
    "Where data sets are stored, each in its own folder (default: GLASSFORMER_DATA, else the user's data folder).",
)
PORT = Option("port", "N", "Port of the page; 0: any that is free (default: 8642, or any that is free).")
NO_OPEN = Option("no-open", None, "Print the address and open no browser.")
EXPORT = Option("export", "FILE", "Write the page, with the run's examples, as one file; serve nothing.")

CHECKPOINTS = Option("checkpoints", None, "The role of each head at every checkpoint that was kept.")
PRUNE = Option(
    "prune",
    "HEADS",
    "Write a run without these heads, e.g. x.1.3,d.0.2; `unneeded`: as many as possible without a visible loss.",
)
PRUNED = Option("out", "FOLDER", "With --prune: run folder to create (default: RUN-pruned).")
ATTRIBUTE = Option(
    "attribute", "TEXT", "Direct contribution of each head to the logit of each token of the answer to TEXT."
)
PATCH = Option(
    "patch",
    "TEXT",
    "With --into: activation patching, to find the heads that, put into the run on that text, restore this one's "
    "answer.",
)
INTO = Option("into", "TEXT", "With --patch: the other text, with as many tokens as the first.")
PICTURE = Option("out", "FILE", "Picture to write: .png, .svg or .pdf (default: curves.png).")
METRIC = Option("metric", "NAME", "Figure to draw, e.g. loss or grad_norm; several with commas (default: loss, score).")
LOG = Option("log", None, "Logarithmic axes.")
PLOT = Option("plot", "FILE", "Plot the parameters instead of listing them: .png, .svg or .pdf.")
BY = Option("by", "component", "Add them up by component instead: embedding, attention, feed-forward, norm, output.")
SHAPES = Option("shapes", None, "List instead what passes through each module: its shapes, parameters and purpose.")
SERVING = (
    setting_of(ServeConfig, "host", "ADDRESS"),
    setting_of(ServeConfig, "port", "N"),
    Option("key-file", "FILE", "File with the API key that clients must send; or set GLASSFORMER_KEY."),
    setting_of(ServeConfig, "name", "HOST"),
    *(
        setting_of(ServeConfig, name, "N")
        for name in ("rows", "room", "queue", "max_prompt", "max_new_tokens", "max_body")
    ),
    *(setting_of(ServeConfig, name, "S") for name in ("seconds", "patience")),
    setting_of(ServeConfig, "connections", "N"),
    setting_of(ServeConfig, "drain", "S"),
)
ACTING = (
    Option("env", "NAME", "Environment: rooms, or the id of one of gymnasium (default: the recipe's)."),
    Option(
        "return",
        "R",
        "Return to ask for; repeatable (default: the lowest, the mean and the highest of the training episodes).",
        repeats=True,
    ),
    Option("episodes", "N", "Episodes for each return (default: 10)."),
    Option("steps", "N", "End an episode after N steps (default: as many as the longest training episode has)."),
    Option("temperature", "T", "Draw numbered actions instead of taking the likeliest; 1: as probable as told."),
    Option("unit-actions", None, "The training actions were from -1 to 1, which stand for the environment's bounds."),
    Option("seed", "N", "Seed of the first episode for each return; the others count up from it (default: 0)."),
    Option("save", "FILE.npz", "Write the episodes to a file, which data.train can name."),
    JSON,
)
GENERATING = (
    PROMPT,
    PROMPTS,
    FIELD,
    PLAIN,
    TEXTS,
    NEW_TOKENS,
    TEMPERATURE,
    TOP_K,
    TOP_P,
    MIN_P,
    TYPICAL_P,
    REPETITION,
    NGRAM,
    CONTRASTIVE,
    DRAFT,
    LOOKUP,
    GUESSES,
    GREEDY,
    SEARCHING,
    SEED,
    STOP,
    BAN,
    FORCE,
    BEGIN,
    BIAS,
    REGEX,
    SCHEMA,
    CROP,
    NO_PROMPT,
    JSON_TEXTS,
)
LEARNING = (
    Option("watch", None, "Check again at each save and name the first mistake; at an exercise, or the first open."),
    Option("check", None, "Check once: an exercise, a chapter, or all."),
    Option("hint", None, "Show the next of an exercise's three hints."),
    Option("solution", None, "Show our solution of an exercise; asks first while it is open."),
    Option("reset", None, "Put the stub of an exercise back, or a fresh notebook of a chapter; the old one is kept."),
    Option("explain", None, "Read a chapter, or the step to an exercise, in the terminal."),
    Option("open", None, "Read a chapter in the browser, from disk."),
    Option("finish", None, "Graduate: proof, training, explorer, diploma; with a FILE, its encoder-decoder."),
    Option("quick", None, "With --finish: the proof and one task only."),
    Option("name", "NAME", "With --finish: the name on the diploma."),
    Option("quiz", None, "Answer 20 questions."),
    Option("report", None, "Print attempts and minutes, to hand in."),
    Option("grade", None, "Grade the FILEs: a row for each, with all exercises."),
    Option("csv", None, "With --grade: comma-separated values."),
    JSON,
    Option("course", "FOLDER", "Another course: a folder with course.toml (default: ours)."),
    Option("test", None, "For authors: whether the course in FOLDER (default: ours) is sound."),
    Option("into", "FOLDER", "The learner's folder (default: this one if a course was begun here, else ./course)."),
    Option("plain", None, "No clearing of the screen and no bars: for screen readers and logs."),
    Option("yes", None, "With --solution: do not ask."),
    LIMIT,
)
