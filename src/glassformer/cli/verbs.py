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
    """What stands after the verb: RECIPE, RUN, RUN|PRESET, FILE or list|show|fetch; none: nothing does."""
    about: str
    options: tuple[Option, ...] = ()
    sections: tuple[str, ...] = ()
    """Sections of a recipe whose settings may be given as `--section.key value`."""
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
GREEDY = Option("greedy", None, "Take the likeliest token each time; nothing is drawn.")
SEED = Option("seed", "N", "Fixes what is drawn: the same text at every repetition (default: the recipe's, else 1).")
STOP = Option("stop", "TEXT", "End a text where this would come, and leave it out; repeatable.", repeats=True)
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
PICTURE = Option("out", "FILE", "Picture to write: .png, .svg or .pdf (default: curves.png).")
METRIC = Option("metric", "NAME", "A figure to draw, as loss or grad_norm; several with commas (default: loss, score).")
LOG = Option("log", None, "Logarithmic axes.")
PLOT = Option("plot", "FILE", "Draw where they are, in place of the list: .png, .svg or .pdf.")

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
        "bleu, chrf: of text from files. any_match: where sources have several targets, the share of sources that got "
        "one of theirs. Of a classifier: accuracy, macro F1, and figures for each label.",
        (SPLIT, AVERAGE, BY_LENGTH, JSON),
        ("data", "decode"),
    ),
    "generate": Verb(
        "write texts",
        "RUN",
        "Go on from a prompt, or answer it where the model has an encoder, and write to standard output as the text "
        "comes. All of standard input is one prompt, but for a line end behind it. Tokens are drawn; a text hangs on "
        "(seed, its number) and on nothing beside it. Several texts stand one after the other with a line --- between "
        "two. A text longer than the model reads goes on from its end: where it is full, the first quarter leaves.",
        (
            PROMPT,
            PROMPTS,
            TEXTS,
            NEW_TOKENS,
            TEMPERATURE,
            TOP_K,
            TOP_P,
            MIN_P,
            TYPICAL_P,
            REPETITION,
            NGRAM,
            GREEDY,
            SEED,
            STOP,
            CROP,
            NO_PROMPT,
            JSON_TEXTS,
        ),
        ("decode",),
    ),
    "translate": Verb(
        "answer line by line",
        "RUN",
        "Read lines on standard input, write one answer for each on standard output. A blank line stays blank.",
        (BEAM, AVERAGE, BATCH_SIZE),
        ("decode",),
    ),
    "serve": Verb(
        "answer over HTTP, as OpenAI's API",
        "RUN",
        "Serve the best checkpoint of a run: POST /v1/completions (or /v1/translate, of an encoder-decoder), "
        "GET /v1/models and /health. All clients are written for together, and each gets what it would get alone. "
        "Only this machine can ask unless --host says otherwise, which asks for a key. Ctrl-C or SIGTERM: answers "
        "that were begun end first. Needs the extra: pip install 'glassformer[serve]'.",
        (
            Option("host", "ADDRESS", "Where to listen (default: 127.0.0.1, this machine alone). Others need a key."),
            Option("port", "N", "Port to listen at; 0 takes one that is free (default: 8000)."),
            Option("key-file", "FILE", "A file with the key that clients must show; or GLASSFORMER_KEY has it."),
            Option("name", "HOST", "A further name that clients reach this server by, as in http://HOST:8000."),
            Option("rows", "N", "Texts written together (default: 32)."),
            Option("room", "N", "Tokens kept in all, rows times the longest (default: 65536)."),
            Option("queue", "N", "Requests that wait for room; one more is told to come later (default: 64)."),
            Option("max-prompt", "N", "Longest prompt, in tokens (default: 4096)."),
            Option("max-new-tokens", "N", "Longest text that may be asked for, in tokens (default: 2048)."),
            Option("max-body", "N", "Longest request, in bytes (default: 1048576)."),
            Option("seconds", "S", "Time for a whole answer, waiting included (default: 120)."),
            Option("patience", "S", "Time for a client to send its request, or to read what it got (default: 10)."),
            Option("connections", "N", "Connections open at a time (default: 768)."),
            Option("drain", "S", "Time for answers to end after SIGTERM or Ctrl-C (default: 30)."),
        ),
    ),
    "classify": Verb(
        "label line by line",
        "RUN",
        "Read lines on standard input, write the label of each on standard output. A blank line stays blank; no line "
        "is cut.",
        (PROBABILITIES, JSON_LINES, AVERAGE, BATCH_SIZE),
    ),
    "explore": Verb(
        "look into a run in the browser",
        "RUN",
        "Show the best checkpoint of a run as a page: what it answers, what each head reads, the chances of each "
        "token, parameters and curves; a text of your own, and the model without some heads. The page is served on "
        "this machine alone, with a token that is new at each start, and asks nothing of any network; Ctrl-C ends it. "
        "With --export it is one file that works from disk. What the heads do is found out once, and kept in "
        "RUN/heads.json.",
        (PORT, NO_OPEN, EXPORT),
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
        (PLOT, JSON),
    ),
    "heads": Verb(
        "see what each attention head does, and what is lost without it",
        "RUN",
        "Name the role of every head of a run's best checkpoint by what it reads, beside chance: previous, current or "
        "next token, the same token elsewhere, what came after it (induction), the source in step (diagonal) or from "
        "its end (reversal), the token to be written (lookup), special tokens (sink). Then silence each head, and all "
        "heads of a role, and see what is lost, with a 95 % interval. x.1.3 is head 3 of layer 1 of cross-attention, e "
        "the encoder's, d the decoder's, all from 0. The data are of the run's own task and held out.",
        (CHECKPOINTS, PRUNE, PRUNED, JSON),
    ),
    "plot": Verb(
        "draw the learning curves of runs",
        "RUN",
        "Draw the figures in metrics.jsonl of one run or several: those of each step pale and smoothed, those of the "
        "dev split as marks, the best checkpoint ringed. Needs matplotlib.",
        (PICTURE, METRIC, LOG),
        many=True,
    ),
    "data": Verb(
        "public data sets by name: what there is, whose it is, fetch it",
        "list|show|fetch",
        "list: the data sets, and which are there. show NAME: licence, citation, files with addresses and hashes, and "
        "the lines that train with it. fetch NAME: get the files that are not there, by https; an interrupted one goes "
        "on, and none is kept whose SHA-256 is another. Nothing is unpacked; what is there, plain or as .gz, is used.",
        (DATA_FOLDER, JSON),
        second="NAME",
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
