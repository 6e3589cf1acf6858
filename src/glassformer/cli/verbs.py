"""All verbs of the command line, as data: `--help` is rendered from it, and arguments are parsed by it."""

from __future__ import annotations

from glassformer.cli.options import (
    ACTING,
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
    BY,
    BY_LENGTH,
    CHANGE,
    CHECKPOINTS,
    CLASSIC,
    DATA_FOLDER,
    DEVICE,
    DRY_RUN,
    DTYPE,
    EXPORT,
    FIELD,
    FIND_RATE,
    FORCE,
    GENERATING,
    INTO,
    JOBS,
    JSON,
    JSON_ANSWERS,
    LEARNING,
    LIMIT,
    LOG,
    LOOK_AHEAD,
    LOOK_AHEAD_JSON,
    METRIC,
    N_BEST,
    NO_OPEN,
    NOISE,
    NOTEBOOKS,
    ONLY,
    OUT,
    OVERWRITE,
    PATCH,
    PICTURE,
    PLAIN,
    PLOT,
    PORT,
    PRUNE,
    PRUNED,
    REGEX,
    SCHEMA,
    SCORES,
    SEEDS,
    SERVING,
    SHAPES,
    SPLIT,
    STRICT,
    STUDY,
    VARY,
    Option,
    Verb,
)
from glassformer.train.tasks import TASKS

SECTIONS = ("data", "tokenizer", "model", "training", "optimizer", "checkpoint", "decode", "distributed")


LINE_VERBS = {task.line_verb.name: task.line_verb for task in TASKS.values() if task.line_verb}
"""The verbs that tasks declare: a line of output for each line of input."""
COMMON = (
    Option("help", None, "Show this help."),
    Option("debug", None, "Show the traceback of an error; GLASSFORMER_DEBUG=1 does the same."),
)

VERBS: dict[str, Verb] = {
    "train": Verb(
        "train a model from a recipe",
        "RECIPE",
        "Train a model in a new run folder. RECIPE is a name or a .toml file.",
        (OUT, OVERWRITE, CLASSIC, BREAK, LOOK_AHEAD, LOOK_AHEAD_JSON, FIND_RATE, NOISE),
        SECTIONS,
    ),
    "resume": Verb(
        "continue an interrupted run",
        "RUN",
        "Continue an interrupted run from its newest intact checkpoint, to the same end as without the interruption. "
        "Settings and data must be those of the run so far, except what --allow-change names.",
        (ALLOW,),
        tuple(name for name in SECTIONS if name != "tokenizer"),
    ),
    "evaluate": Verb(
        "score a run, or an ensemble of runs, on the test split",
        "RUN",
        "Score the best checkpoint of a run: it answers every source by itself, and the answers are compared with the "
        "targets. exact_match: share of answers that are entirely right. token_accuracy: share of right tokens. loss: "
        "nats per target token. n: pairs. cut: answers that reached a limit (decode.max_new_tokens, model.max_len) "
        "before their end; raise it if there are many. unknown: source tokens that are not in the vocabulary. bleu, "
        "bleu_lowercase, chrf: for text from files, by sacrebleu. any_match: if sources have several targets, share "
        "of sources that got one of theirs. Classifiers: accuracy, macro F1, and figures for each label. Running "
        "text: nothing is generated; loss and perplexity of the whole text, bits per byte and per character, and "
        "word_perplexity: e to the loss of a whole word, all its tokens together, so it is large for characters. "
        "--data.text FILE scores another text. Losses are those of the weights as trained, whatever decode.precision. "
        "Several RUNs, of one kind and with the same labels or vocabularies, are scored as an ensemble "
        "(the mean of their probabilities) on the split of the first; their folders are not written to.",
        (SPLIT, AVERAGE, BY_LENGTH, JSON),
        ("data", "decode"),
        many=True,
    ),
    "generate": Verb(
        "generate text",
        "RUN",
        "Continue a prompt, or answer it if the model has an encoder; text appears on standard output as it is "
        "generated. All of standard input is one prompt, except for a final line end. Tokens are sampled, with random "
        "numbers that depend only on the seed and the number of the text. A line --- separates several texts. A text "
        "longer than the context goes on from its end: a full context drops its first quarter. With --beam a text "
        "appears when it is found, and the context holds prompt and text. Several RUNs with the "
        "same vocabularies write as an ensemble: each token by the mean of their probabilities.",
        GENERATING,
        ("decode",),
        many=True,
    ),
    "translate": Verb(
        "translate, or answer, line by line",
        "RUN",
        "Read lines from standard input, write one answer for each to standard output. A blank line stays blank. "
        "Several RUNs with the same vocabularies answer as an ensemble: each token by the mean of their "
        "probabilities, which is more often right than one model, as a rule.",
        (
            BEAM,
            N_BEST,
            SCORES,
            ALIGNMENTS,
            JSON_ANSWERS,
            BAN,
            FORCE,
            BEGIN,
            BIAS,
            REGEX,
            SCHEMA,
            AVERAGE,
            BATCH_SIZE,
            FIELD,
            PLAIN,
        ),
        ("decode",),
        many=True,
    ),
    "serve": Verb(
        "serve a model over HTTP, with OpenAI's API",
        "RUN",
        "Serve the best checkpoint of a run: POST /v1/completions (encoder-decoder: /v1/translate), GET /v1/models "
        "and /health. Requests of all clients are batched together (continuous batching), and each gets what it would "
        "get alone. Only this machine can connect unless --host says otherwise, which needs a key. Ctrl-C or SIGTERM: "
        "answers that were begun are finished first. Needs the extra serve.",
        SERVING,
        ("decode",),
        ("precision", "compile", "cache", "threads"),
    ),
    **{
        name: Verb(
            each.summary,
            "RUN",
            each.about,
            (*(Option(flag, None, what) for flag, what in each.switches), AVERAGE, BATCH_SIZE, FIELD, PLAIN),
            many=each.many,
        )
        for name, each in LINE_VERBS.items()
    },
    "rollout": Verb(
        "let a Decision Transformer act",
        "RUN",
        "Play episodes with the best checkpoint of a run on trajectories. Before each action the model reads which "
        "return is left to get, what it observes and its last steps. Printed for each return: what was got. The "
        "environment rooms is built in; gymnasium's need the extra control.",
        ACTING,
    ),
    "explore": Verb(
        "inspect a run in the browser",
        "RUN",
        "Show the best checkpoint of a run as a web page: its answers, what each head attends to, the probabilities "
        "of each token, parameters and learning curves; try texts of your own, and the model without some heads. The "
        "page is served to this machine only, with a new token at each start, and uses no network; Ctrl-C ends it, "
        "with exit code 0. With --export it is one file that works from disk; --checkpoints and --patch add what "
        "would otherwise need the model. The roles of the heads are found once and kept in RUN/heads.json. Curves of "
        "further RUNs appear beside those of the first; for an arm of a study, all arms are compared.",
        (PORT, NO_OPEN, EXPORT, CHECKPOINTS, PATCH, INTO),
        many=True,
    ),
    "ablate": Verb(
        "compare settings over several seeds",
        "RECIPE",
        "Train RECIPE with every combination of the --vary values, or as it is and with each --change by itself, for "
        "several seeds; runs with the same seed see the same data in the same order. Each run is an ordinary run "
        "folder and has its own process, with one thread unless training.threads says otherwise. The same command "
        "continues a study: finished runs stay, interrupted ones are resumed, new values are added. At the end: a "
        "table, table.md, results.jsonl and plots of the first --vary (across) and the others. Exit code 1 if a run "
        "failed; the others go on.",
        (VARY, CHANGE, CLASSIC, SEEDS, ALSO, STUDY, JOBS, DRY_RUN),
        SECTIONS,
    ),
    "params": Verb(
        "list the parameters of a model",
        "RUN|PRESET",
        "List every tensor of a run's model, or of a published architecture (gpt2, pythia-70m, bert-base, t5-small, "
        "notebook-004, ...), without allocating it.",
        (PLOT, BY, SHAPES, JSON),
    ),
    "heads": Verb(
        "see what each attention head does, and what is lost without it",
        "RUN",
        "Name the role of every attention head of a run's best checkpoint by what it reads, beside chance: previous, "
        "current or next token, the same token elsewhere, what followed it there (induction), the source in step "
        "(diagonal) or from its end (reversal), the token to be written (lookup), special tokens (sink). Then ablate "
        "each head, and all heads of a role, and measure what is lost, with a 95 % interval. x.1.3 is head 3 of layer "
        "1 of cross-attention (e: encoder, d: decoder), all from 0. Data: of the run's own task, held out.",
        (CHECKPOINTS, PRUNE, PRUNED, ATTRIBUTE, PATCH, INTO, JSON),
    ),
    "plot": Verb(
        "plot the learning curves of runs",
        "RUN",
        "Plot the figures in metrics.jsonl of one or several runs: those of each step pale and smoothed, those of the "
        "dev split as markers, the best checkpoint circled. Needs matplotlib.",
        (PICTURE, METRIC, LOG),
        many=True,
    ),
    "import": Verb(
        "make a run of a Hugging Face model",
        "FOLDER",
        "Read a model that Hugging Face's transformers saved (config.json, model.safetensors, tokenizer.json) and "
        "write it as a run, for generate, explore, heads, evaluate and serve, and to start other runs from "
        "(--training.start-from). For GPT-2, GPT-NeoX, Llama and Mistral models of any size; every token keeps its "
        "probability. Nothing is downloaded, and no pickle is read.",
        (OUT, OVERWRITE),
    ),
    "export": Verb(
        "write a run as a Hugging Face model",
        "RUN",
        "Write the best checkpoint of a run as a new folder that Hugging Face's transformers loads by itself "
        "(config.json, model.safetensors, tokenizer.json, ...): same tokens, same logits, same greedy texts. For "
        "language models whose settings are those of GPT-2, GPT-NeoX, Llama or Mistral; any other is refused, with the "
        "settings that differ. `glassformer import` makes a run of the folder again.",
        (AVERAGE,),
        second="FOLDER",
        needs_second=True,
    ),
    "data": Verb(
        "list, describe and fetch public data sets",
        "list|show|fetch",
        "list: the data sets, and which are there. show NAME: licence, citation, files with addresses and hashes, and "
        "what was measured on it, with the commands. fetch NAME: download the missing files over https; an interrupted "
        "one goes on, a file with another SHA-256 is not kept. Nothing is unpacked; existing files are used, plain or "
        ".gz.",
        (DATA_FOLDER, JSON),
        second="NAME",
    ),
    "doctor": Verb(
        "diagnose what is wrong with a run",
        "RUN",
        "Probe the data, the checkpoints and the model of a run, untrained and trained: each problem is reported with "
        "figures, a likely cause and a remedy. Exit code 3 if a probe fails; a warning is no failure.",
        (JSON,),
    ),
    "verify": Verb(
        "check that the library computes right on this machine",
        None,
        "Compare values and gradients with torch.nn, with tiny Hugging Face models (if transformers is installed) and "
        "with the equations written out; test padding, causality and the cache. Exit code 3 if a law is broken.",
        (DEVICE, DTYPE, NOTEBOOKS, JSON),
    ),
    "demo": Verb(
        "see a model learn, in about a minute",
        None,
        "Train the recipe `reverse` in runs/reverse, show its answers before, during and after training, and write "
        "explorer.html into the folder, a page to inspect the model in a browser. Nothing is overwritten: if the "
        "folder exists, the next free name is used (runs/reverse-2).",
        (OUT,),
    ),
    "learn": Verb(
        "build a transformer of your own, and be told what is wrong",
        "CHAPTER|EXERCISE|FILE",
        "A course of five chapters and 39 exercises, in which one file of your own, my_transformer.py, becomes a "
        "transformer. Without more: what is done and what is next. With a chapter: its notebook, and its stubs below "
        "what you have; no line of yours is touched. --watch checks at each save. --grade checks the files of a class. "
        "The file runs as your own code, with your rights, in a process that is stopped after a time limit. Exit "
        "codes: 0 done, 3 an exercise is open, 2 the file cannot be run.",
        LEARNING,
        many=True,
        optional=True,
    ),
    "check": Verb(
        "test code of your own, property by property",
        "FILE",
        "Import a Python file and test the functions and classes in it that have a documented name, property by "
        "property: each failure comes with its line, figures, a likely cause and a hint; what was not looked at is "
        "named. The file runs as your own code, with your rights, in a separate process that is stopped after a time "
        "limit. Exit codes: 0 all properties hold, 3 one fails, 2 the file could not be checked.",
        (ONLY, STRICT, LIMIT, JSON),
    ),
}
