"""The whole surface of the command line, as data: `--help` is rendered from it, arguments are read by it."""

from __future__ import annotations

from dataclasses import dataclass

SECTIONS = ("data", "tokenizer", "model", "training", "optimizer", "checkpoint", "decode", "distributed")


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
    """What stands after the verb: RECIPE, RUN, RUN|PRESET or FILE; none: nothing does."""
    about: str
    options: tuple[Option, ...] = ()
    sections: tuple[str, ...] = ()
    """Sections of a recipe whose settings may be given as `--section.key value`."""


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
    "Train 100 steps, print how large a batch is worth its cost before and after them, and write nothing.",
)
LOOK_AHEAD_JSON = Option("json", None, "With --dry-run: one JSON object on standard output, for programs.")
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
    "dry-run", None, "Print parameters, memory, disk, time and data of the run, after a few real steps; write nothing."
)
DEVICE = Option("device", "DEVICE", "Where to compute: cpu, cuda or mps (default: cpu).")
DTYPE = Option("dtype", "DTYPE", "Numbers to compute in: float64 or float32 (default: float64).")
NOTEBOOKS = Option("notebooks", "FOLDER", "The five tutorial notebooks, whose code is then run beside ours.")
ONLY = Option("only", "NAME", "Probe this property or this function or class alone; several with commas.")
LIMIT = Option("limit", "SECONDS", "Time for all of the file's code (default: 60).")
BATCH_SIZE = Option("batch-size", "N", "Lines read together (default: as the recipe says).")
PROBABILITIES = Option("probabilities", None, "After the label, TAB and label=probability for each label there is.")
JSON_LINES = Option("json", None, "One JSON object a line, with label and probabilities; null for a blank line.")

COMMON = (
    Option("help", None, "Show this help."),
    Option("debug", None, "Show the traceback of an error; GLASSFORMER_DEBUG=1 does the same."),
)

VERBS: dict[str, Verb] = {
    "train": Verb(
        "learn from a recipe",
        "RECIPE",
        "Train a model in a new run folder. RECIPE is a name or a .toml file.",
        (OUT, OVERWRITE, BREAK, LOOK_AHEAD, LOOK_AHEAD_JSON, FIND_RATE, NOISE),
        SECTIONS,
    ),
    "resume": Verb(
        "go on with a run",
        "RUN",
        "Continue an interrupted run from its newest intact checkpoint, to the same end as if nothing had happened. "
        "Settings and data must be those of the run so far, unless --allow-change names what is meant to be another.",
        (ALLOW,),
        tuple(name for name in SECTIONS if name != "tokenizer"),
    ),
    "evaluate": Verb(
        "score a run on the test split",
        "RUN",
        "Score the best checkpoint of a run: it answers every source by itself, and the answers are compared. "
        "exact_match: the share of answers that are right as a whole. token_accuracy: the share of right tokens. loss: "
        "nats a target token. n: pairs. cut: answers that reached a limit (decode.max_new_tokens, model.max_len) "
        "before their end; raise it where there are many. unknown: tokens of the sources that the vocabulary lacks. "
        "bleu, chrf: of text from files. Of a classifier: accuracy, macro F1, and figures for each label.",
        (SPLIT, AVERAGE, BY_LENGTH, JSON),
        ("data", "decode"),
    ),
    "translate": Verb(
        "answer line by line",
        "RUN",
        "Read lines on standard input, write one answer for each on standard output. A blank line stays blank.",
        (AVERAGE, BATCH_SIZE),
    ),
    "classify": Verb(
        "label line by line",
        "RUN",
        "Read lines on standard input, write the label of each on standard output. A blank line stays blank; no line "
        "is cut.",
        (PROBABILITIES, JSON_LINES, AVERAGE, BATCH_SIZE),
    ),
    "ablate": Verb(
        "compare settings over several seeds",
        "RECIPE",
        "Train RECIPE with each combination of the values of --vary, for several seeds; runs of one seed see the same "
        "data in the same order. Each run is an ordinary run folder in a process of its own, with one thread unless "
        "training.threads says otherwise. The same command again goes on: what is finished stays, what was interrupted "
        "is resumed, new values are added. At the end: a table, table.md, results.jsonl and pictures of the first "
        "--vary (across) and the others. Exit code 1 if a run failed; the others go on.",
        (VARY, SEEDS, ALSO, STUDY, JOBS, DRY_RUN),
        SECTIONS,
    ),
    "params": Verb(
        "show where the parameters are",
        "RUN|PRESET",
        "List every tensor of a run's model, or of a published one's shape (gpt2, bert-base, t5-small, llama-3-8b, "
        "notebook-004, ...), which takes no memory.",
        (JSON,),
    ),
    "doctor": Verb(
        "find out what is wrong with a run",
        "RUN",
        "Probe the data, the checkpoints and the model of a run, as it begins and as it was trained: what is found is "
        "named with figures, a likely cause and a remedy. Exit code 3 if a probe fails; a warning is no failure.",
        (JSON,),
    ),
    "verify": Verb(
        "prove the library right on this machine",
        None,
        "Compare values and gradients with torch.nn, with tiny Hugging Face models (where transformers is installed) "
        "and with the equations written out; try padding, causality and the cache. Exit code 3 if a law is broken.",
        (DEVICE, DTYPE, NOTEBOOKS, JSON),
    ),
    "demo": Verb(
        "see a model learn, in about a minute",
        None,
        "Train the recipe `reverse` in runs/reverse and show what it writes before, during and after. "
        "Nothing is overwritten: if the folder exists, the next free name is taken (runs/reverse-2).",
        (OUT,),
    ),
    "check": Verb(
        "find out which property your own code breaks",
        "FILE",
        "Import a Python file and test the functions and classes in it that have a documented name, property by "
        "property: what fails is named, with figures, a likely cause and a hint. The file is run as code of yours, "
        "with your rights, in a process of its own that is stopped after a time limit. Exit codes: 0 all holds, 3 a "
        "property fails, 2 the file could not be checked.",
        (ONLY, LIMIT, JSON),
    ),
}
