"""The flags of the command line, as data: what each verb of `verbs.py` takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Option:
    """One flag of a verb. `value` names what it takes; none: it is a switch."""

    name: str
    value: str | None
    help: str
    repeats: bool = False
    """Whether it may be given several times."""


@dataclass(frozen=True)
class Verb:
    """One thing that the command does."""

    summary: str
    target: str | None
    """What stands after the verb: RECIPE, RUN, RUN|PRESET, FILE or list|show|fetch; none: nothing does."""
    about: str
    options: tuple[Option, ...] = ()
    sections: tuple[str, ...] = ()
    """Sections of a recipe whose settings may be given as `--section.key value`."""
    taken: tuple[str, ...] = ()
    """The settings of its sections that it takes, where it does not take them all."""
    second: str | None = None
    """What may stand behind the target; none: nothing does."""
    many: bool = False
    """Whether several targets may be given."""


OUT = Option("out", "FOLDER", "Run folder to make (default: runs/NAME).")
OVERWRITE = Option("overwrite", None, "Delete an existing run folder and start over.")
BREAK = Option("break", "NAME", "Make a classic mistake on purpose, to watch its symptom; several with commas.")
ALLOW = Option(
    "allow-change", "SETTING", "Let this setting, or the file it names, differ from the run so far.", repeats=True
)
JSON = Option("json", None, "One JSON object on standard output, for programs.")
FIND_RATE = Option(
    "find-learning-rate",
    None,
    "Try rising learning rates for 100 steps and print losses and a recommendation; write a picture (NAME-rate.png) "
    "if matplotlib is there, and no run.",
)
NOISE = Option(
    "gradient-noise",
    None,
    "Train 100 steps, print how large a batch is worth its cost at steps 0, 20 and 100, and write no run.",
)
LOOK_AHEAD_JSON = Option(
    "json",
    None,
    "With --dry-run, --find-learning-rate or --gradient-noise: one JSON object on standard output, for programs.",
)
SPLIT = Option("split", "SPLIT", "What to score: test or dev (default: test).")
AVERAGE = Option(
    "average", "N", "Take the mean of the weights of the N newest checkpoints (see checkpoint.keep), not the best one."
)
BY_LENGTH = Option("by-length", None, "Also exact match for each length of the source, in tokens.")
VARY = Option("vary", "SETTING=V1,V2,...", "A setting and its values; several --vary make a grid.", repeats=True)
SEEDS = Option("seeds", "N", "Runs of each combination, with training.seed and those that follow it (default: 3).")
ALSO = Option(
    "test", "SETTING=VALUE", "Score on other data too: a setting of data or decode; repeatable.", repeats=True
)
STUDY = Option("out", "FOLDER", "Folder of the study (default: runs/ablate-NAME).")
JOBS = Option("jobs", "N", "Runs at a time (default: the processors, shared out by training.threads).")
DRY_RUN = Option("dry-run", None, "List the runs and how far each has come, and train nothing.")
LOOK_AHEAD = Option(
    "dry-run", None, "Print parameters, memory, disk, time and data of the run, after a few real steps; write no run."
)
DEVICE = Option("device", "DEVICE", "Where to compute: cpu, cuda or mps (default: cpu).")
DTYPE = Option("dtype", "DTYPE", "Numbers to compute in: float64 or float32 (default: float64).")
NOTEBOOKS = Option("notebooks", "FOLDER", "The five tutorial notebooks, whose code is then run beside ours.")
ONLY = Option("only", "NAME", "Probe this property or this function or class alone; several with commas.")
LIMIT = Option("limit", "SECONDS", "Time for all of the file's code (default: 60).")
BATCH_SIZE = Option("batch-size", "N", "Lines read together (default: as the recipe says).")
PROBABILITIES = Option("probabilities", None, "After the label, TAB and label=probability for each label there is.")
JSON_LINES = Option("json", None, "One JSON object a line, with label and probabilities; null for a blank line.")
N_BEST = Option("n-best", "N", "Of a beam: the N best answers to each line, a line each behind the number of theirs.")
SCORES = Option("scores", None, "Behind each answer a tab and its score: log-probability over the length penalty.")
ALIGNMENTS = Option(
    "alignments", None, "Behind each answer a tab and i-j for each token j: the source token i that it read most."
)
JSON_ANSWERS = Option("json", None, "One JSON object a line: its number, tokens, and answers with their figures.")
BEAM = Option("beam", "N", "Beam search: N beginnings of an answer go on together (default: as the recipe says).")
PROMPT = Option("prompt", "TEXT", "What the text goes on from, or the source to answer (default: standard input).")
PROMPTS = Option("file", "FILE", "A file with one prompt a line.")
TEXTS = Option("n", "N", "Texts for each prompt (default: 1).")
NEW_TOKENS = Option("max-new-tokens", "N", "Longest text, in tokens (default: the recipe's, else 200).")
TEMPERATURE = Option("temperature", "T", "Below 1 the likely becomes likelier (default: the recipe's, else 1).")
TOP_K = Option("top-k", "K", "Draw from the K likeliest tokens.")
TOP_P = Option("top-p", "P", "Draw from the fewest likeliest tokens that have this share of the probability.")
MIN_P = Option("min-p", "P", "Draw from tokens at least this share as likely as the likeliest.")
TYPICAL_P = Option("typical-p", "P", "Draw from tokens about as surprising as expected, which have this share.")
REPETITION = Option("repetition-penalty", "X", "Above 1: tokens that were read or written become less likely.")
NGRAM = Option("no-repeat-ngram", "N", "No run of N tokens is written twice.")
CONTRASTIVE = Option(
    "contrastive-alpha",
    "A",
    "Contrastive search: of the likeliest (--top-k, 4) the one least like the text so far; try 0.6.",
)
DRAFT = Option("draft", "RUN", "Let this smaller run guess tokens, which RUN reads together: the same texts, faster.")
LOOKUP = Option(
    "lookup", "N", "Guess that what followed the last N tokens before follows again; fewer, down to one, do."
)
GUESSES = Option("guesses", "N", "With --draft or --lookup: tokens guessed at a time (default: 4).")
GREEDY = Option("greedy", None, "Take the likeliest token each time; nothing is drawn.")
SEED = Option("seed", "N", "Fixes what is drawn: the same text at every repetition (default: the recipe's, else 1).")
STOP = Option("stop", "TEXT", "End a text where this would come, and leave it out; repeatable.", repeats=True)
BAN = Option("ban", "TEXT", "Never write this, inside of a word neither; repeatable.", repeats=True)
FORCE = Option("force", "TEXT", "Of a beam: each answer holds this somewhere; repeatable.", repeats=True)
BEGIN = Option("begin", "TEXT", "Each text that is written begins with this.")
BIAS = Option("bias", "TEXT=X", "Add X to the logit of a token, by its text; -inf: never; repeatable.", repeats=True)
REGEX = Option("regex", "EXPRESSION", "Each text matches this as a whole (needs glassformer[constrain]).")
SCHEMA = Option("json-schema", "FILE", "Each text is JSON that fits the schema in FILE (needs glassformer[constrain]).")
CROP = Option("crop", None, "Read the end of a prompt that is longer than the model reads; else it is refused.")
NO_PROMPT = Option("no-prompt", None, "Leave the prompt out of what is written.")
JSON_TEXTS = Option("json", None, "One JSON object a line for each text: prompt, text, tokens, end.")


DATA_FOLDER = Option(
    "data-dir",
    "FOLDER",
    "Where data sets lie, each in a folder of its own (default: GLASSFORMER_DATA, else the user's).",
)
PORT = Option("port", "N", "Port of the page; 0: any that is free (default: 8642, or any that is free).")
NO_OPEN = Option("no-open", None, "Print the address and open no browser.")
EXPORT = Option("export", "FILE", "Write the page with the run's examples as one file, and serve nothing.")

CHECKPOINTS = Option("checkpoints", None, "The role of each head at each checkpoint that the run has kept.")
PRUNE = Option(
    "prune",
    "HEADS",
    "Write a run without these heads, as x.1.3,d.0.2; `unneeded`: as many as can go without a loss that shows.",
)
PRUNED = Option("out", "FOLDER", "With --prune: run folder to make (default: RUN-pruned).")
ATTRIBUTE = Option("attribute", "TEXT", "What each head adds itself to the logit of each token that answers TEXT.")
PATCH = Option(
    "patch", "TEXT", "With --into: which heads, put into the run with that text, bring this one's answer back."
)
INTO = Option("into", "TEXT", "With --patch: the other text, as long as the first.")
PICTURE = Option("out", "FILE", "Picture to write: .png, .svg or .pdf (default: curves.png).")
METRIC = Option("metric", "NAME", "A figure to draw, as loss or grad_norm; several with commas (default: loss, score).")
LOG = Option("log", None, "Logarithmic axes.")
PLOT = Option("plot", "FILE", "Draw where they are, in place of the list: .png, .svg or .pdf.")
