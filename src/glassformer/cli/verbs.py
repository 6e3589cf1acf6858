"""The whole surface of the command line, as data: `--help` is rendered from it, arguments are read by it."""

from __future__ import annotations

from glassformer.cli.options import (
    ALIGNMENTS,
    ALLOW,
    ALSO,
    ATTRIBUTE,
    AVERAGE,
    BAN,
    BATCH_SIZE,
    BEAM,
    BEGIN,
    BIAS,
    BREAK,
    BY_LENGTH,
    CHECKPOINTS,
    CONTRASTIVE,
    CROP,
    DATA_FOLDER,
    DEVICE,
    DRAFT,
    DRY_RUN,
    DTYPE,
    EXPORT,
    FIND_RATE,
    FORCE,
    GREEDY,
    GUESSES,
    INTO,
    JOBS,
    JSON,
    JSON_ANSWERS,
    JSON_LINES,
    JSON_TEXTS,
    LIMIT,
    LOG,
    LOOK_AHEAD,
    LOOK_AHEAD_JSON,
    LOOKUP,
    METRIC,
    MIN_P,
    N_BEST,
    NEW_TOKENS,
    NGRAM,
    NO_OPEN,
    NO_PROMPT,
    NOISE,
    NOTEBOOKS,
    ONLY,
    OUT,
    OVERWRITE,
    PATCH,
    PICTURE,
    PLOT,
    PORT,
    PROBABILITIES,
    PROMPT,
    PROMPTS,
    PRUNE,
    PRUNED,
    REGEX,
    REPETITION,
    SCHEMA,
    SCORES,
    SEED,
    SEEDS,
    SPLIT,
    STOP,
    STUDY,
    TEMPERATURE,
    TEXTS,
    TOP_K,
    TOP_P,
    TYPICAL_P,
    VARY,
    Option,
    Verb,
)

SECTIONS = ("data", "tokenizer", "model", "training", "optimizer", "checkpoint", "decode", "distributed")


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
        "score a run, or a committee, on the test split",
        "RUN",
        "Score the best checkpoint of a run: it answers every source by itself, and the answers are compared. "
        "exact_match: the share of answers that are right as a whole. token_accuracy: the share of right tokens. loss: "
        "nats a target token. n: pairs. cut: answers that reached a limit (decode.max_new_tokens, model.max_len) "
        "before their end; raise it where there are many. unknown: tokens of the sources that the vocabulary lacks. "
        "bleu, bleu_lowercase, chrf: of text from files, by sacrebleu. any_match: where sources have several targets, "
        "the share of sources that got one of theirs. Of a classifier: accuracy, macro F1, and figures for each label. "
        "Of running text nothing is written: loss and perplexity of all of it, bits a byte and a character; "
        "--data.text FILE scores another text. Several RUNs, of one kind and with the same labels or vocabularies, are "
        "scored as a committee, which answers by the mean of their probabilities, on the split of the first. Nothing "
        "is written into their folders.",
        (SPLIT, AVERAGE, BY_LENGTH, JSON),
        ("data", "decode"),
        many=True,
    ),
    "generate": Verb(
        "write texts",
        "RUN",
        "Go on from a prompt, or answer it where the model has an encoder, and write to standard output as the text "
        "comes. All of standard input is one prompt, but for a line end behind it. Tokens are drawn; a text hangs on "
        "(seed, its number) and on nothing beside it. Several texts stand one after the other with a line --- between "
        "two. A text longer than the model reads goes on from its end: where it is full, the first quarter leaves. "
        "Several RUNs with the same vocabularies write as a committee, each token by the mean of their probabilities.",
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
            CONTRASTIVE,
            DRAFT,
            LOOKUP,
            GUESSES,
            GREEDY,
            SEED,
            STOP,
            BAN,
            BEGIN,
            BIAS,
            REGEX,
            SCHEMA,
            CROP,
            NO_PROMPT,
            JSON_TEXTS,
        ),
        ("decode",),
        many=True,
    ),
    "translate": Verb(
        "answer line by line",
        "RUN",
        "Read lines on standard input, write one answer for each on standard output. A blank line stays blank. Several "
        "RUNs with the same vocabularies answer as a committee, each token by the mean of their probabilities, which "
        "is right more often than one alone, as a rule.",
        (BEAM, N_BEST, SCORES, ALIGNMENTS, JSON_ANSWERS, BAN, FORCE, BEGIN, BIAS, REGEX, SCHEMA, AVERAGE, BATCH_SIZE),
        ("decode",),
        many=True,
    ),
    "serve": Verb(
        "answer over HTTP, as OpenAI's API",
        "RUN",
        "Serve the best checkpoint of a run: POST /v1/completions (or /v1/translate, of an encoder-decoder), "
        "GET /v1/models and /health. All clients are written for together, and each gets what it would get alone. "
        "Only this machine can ask unless --host says otherwise, which asks for a key. Ctrl-C or SIGTERM: answers "
        "that were begun end first. Keys are kept exact: --decode.cache exact serves a run whose recipe has int8. "
        "Needs the extra: pip install 'glassformer[serve]'.",
        (
            Option("host", "ADDRESS", "Where to listen (default: 127.0.0.1, this machine alone). Others need a key."),
            Option("port", "N", "Port to listen at; 0 takes one that is free (default: 8000)."),
            Option("key-file", "FILE", "A file with the key that clients must show; or GLASSFORMER_KEY has it."),
            Option("name", "HOST", "A further name that clients reach this server by, as in http://HOST:8000."),
            Option("rows", "N", "Texts written together (default: 32)."),
            Option("room", "N", "Tokens kept in all, rows times the longest (default: 65536)."),
            Option(
                "queue",
                "N",
                "Prompts that wait for room, at least --rows; one more is told to come later (default: twice --rows).",
            ),
            Option("max-prompt", "N", "Longest prompt, in tokens (default: 4096)."),
            Option("max-new-tokens", "N", "Longest text that may be asked for, in tokens (default: 2048)."),
            Option("max-body", "N", "Longest request, in bytes (default: 1048576)."),
            Option("seconds", "S", "Time for a whole answer, waiting included (default: 120)."),
            Option("patience", "S", "Time for a client to send its request, or to read what it got (default: 10)."),
            Option("connections", "N", "Connections open at a time (default: 768)."),
            Option("drain", "S", "Time for answers to end after SIGTERM or Ctrl-C (default: 30)."),
        ),
        ("decode",),
        ("precision", "compile", "cache"),
    ),
    "classify": Verb(
        "label line by line",
        "RUN",
        "Read lines on standard input, write the label of each on standard output. A blank line stays blank; no line "
        "is cut. Several RUNs with the same labels answer as a committee, by the mean of their probabilities, which "
        "is right more often than one alone, as a rule.",
        (PROBABILITIES, JSON_LINES, AVERAGE, BATCH_SIZE),
        many=True,
    ),
    "explore": Verb(
        "look into a run in the browser",
        "RUN",
        "Show the best checkpoint of a run as a page: what it answers, what each head reads, the chances of each "
        "token, parameters and curves; a text of your own, and the model without some heads. The page is served on "
        "this machine alone, with a token that is new at each start, and asks nothing of any network; Ctrl-C is its "
        "end, with exit code 0. With --export it is one file that works from disk; --checkpoints and --patch put into "
        "it what else needs the model. What the heads do is found out once, and kept in RUN/heads.json. The curves of "
        "further RUNs stand beside those of the first, and of an arm of a study all arms are compared.",
        (PORT, NO_OPEN, EXPORT, CHECKPOINTS, PATCH, INTO),
        many=True,
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
        (CHECKPOINTS, PRUNE, PRUNED, ATTRIBUTE, PATCH, INTO, JSON),
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
        "Train the recipe `reverse` in runs/reverse, show what it writes before, during and after, and write "
        "explorer.html into the folder: the model to look into, in a browser. "
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
