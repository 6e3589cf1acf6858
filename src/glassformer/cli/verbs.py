"""All verbs and flags of the command line, as data: `--help` is rendered from it, and arguments are parsed by it."""

from __future__ import annotations

from dataclasses import dataclass

from glassformer.base.settings import meaning_of
from glassformer.decode.settings import Sampling
from glassformer.serve.settings import ServeConfig
from glassformer.train.tasks import TASKS


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
JSON = Option("json", None, "Print one JSON object, for programs.")
AVERAGE = Option(
    "average", "N", "Use the mean weights of the N newest checkpoints (see checkpoint.keep), not the best one."
)
JSON_LINES = (
    Option("field", "NAME", "Each line is a JSON object: read this field of it, such as text, or translation.en."),
    Option("plain", None, "Lines are plain text, though they look like JSON."),
)
LINES = (
    AVERAGE,
    Option("batch-size", "N", "Lines processed together (default: the recipe's)."),
    *JSON_LINES,
)
CONSTRAINTS = (
    Option("ban", "TEXT", "Never write this string, not even inside a word; repeatable.", repeats=True),
    Option("force", "TEXT", "Beam search: each answer contains this string; repeatable.", repeats=True),
    Option("begin", "TEXT", "Begin each generated text with this."),
    Option("bias", "TEXT=X", "Add X to the logit of the token with this text; -inf bans it; repeatable.", repeats=True),
    Option("regex", "EXPRESSION", "Constrained decoding: the whole text matches (needs the extra constrain)."),
    Option("json-schema", "FILE", "Constrained decoding: JSON that fits a schema (needs the extra constrain)."),
)
CHECKPOINTS = Option("checkpoints", None, "The role of each head at every checkpoint that was kept.")
PATCHING = (
    Option(
        "patch",
        "TEXT",
        "With --into: activation patching, to find the heads that, put into the run on that text, restore this one's "
        "answer.",
    ),
    Option("into", "TEXT", "With --patch: the other text, with as many tokens as the first."),
)

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
        (
            OUT,
            OVERWRITE,
            CLASSIC,
            Option("break", "NAME", "Make a classic mistake on purpose, to see its symptom; several with commas."),
            Option(
                "dry-run",
                None,
                "Report parameters, memory, disk, time and data of the run, after a few real steps; make no run.",
            ),
            Option(
                "json",
                None,
                "With --dry-run, --find-learning-rate or --gradient-noise: print one JSON object, for programs.",
            ),
            Option(
                "find-learning-rate",
                None,
                "Learning rate range test: train 100 steps at rising rates, print losses and a recommendation, and "
                "plot them to NAME-rate.png if matplotlib is installed; make no run.",
            ),
            Option(
                "gradient-noise",
                None,
                "Train 100 steps and print the gradient noise scale, the batch size worth its cost, at steps 0, 20 "
                "and 100; make no run.",
            ),
        ),
        SECTIONS,
    ),
    "resume": Verb(
        "continue an interrupted run",
        "RUN",
        "Continue an interrupted run from its newest intact checkpoint, to the same end as without the interruption. "
        "Settings and data must be those of the run so far, except what --allow-change names.",
        (
            Option(
                "allow-change",
                "SETTING",
                "Let this setting, or the file it names, differ from the run so far; repeatable.",
                repeats=True,
            ),
        ),
        tuple(name for name in SECTIONS if name != "tokenizer"),
    ),
    "evaluate": Verb(
        "score a run, or an ensemble of runs, on the test split",
        "RUN",
        "Score the best checkpoint of a run on its test split: the model answers every source by itself, and the "
        "answers are compared with the targets. Of running text, nothing is generated: each token is scored.\n\n"
        "--data.text FILE scores another text, --data.test FILE other pairs. Losses are those of the weights as "
        "trained, whatever decode.precision.\n\n"
        "Several RUNs, of one kind and with the same labels or vocabularies, are scored as an ensemble (the mean of "
        "their probabilities) on the split of the first; their folders are not written to.",
        (
            Option("split", "SPLIT", "Split to score: test or dev (default: test)."),
            AVERAGE,
            Option("by-length", None, "Also report exact match for each source length, in tokens."),
            JSON,
        ),
        ("data", "decode"),
        many=True,
    ),
    "generate": Verb(
        "generate text",
        "RUN",
        "Continue a prompt, or answer it if the model has an encoder; text appears on standard output as it is "
        "generated.\n\nAll of standard input is one prompt, except for a final line end. Tokens are sampled, with "
        "random numbers that depend only on the seed and the number of the text.\n\nA line --- separates several "
        "texts. A text longer than the context goes on from its end: a full context drops its first quarter. With "
        "--beam a text appears when it is found, and the context holds prompt and text.\n\nSeveral RUNs with the same "
        "vocabularies write as an ensemble: each token by the mean of their probabilities.",
        (
            Option(
                "prompt",
                "TEXT",
                "Text to continue, or source to answer (default: standard input; at a terminal an empty text).",
            ),
            Option("file", "FILE", "File with one prompt per line; a blank line is an empty prompt."),
            *JSON_LINES,
            Option(
                "n",
                "N",
                "Texts per prompt (default: 1); more only where they are sampled, or with --beam: the N best, best "
                "first, or fewer where the search finds no more that differ.",
            ),
            Option(
                "max-new-tokens",
                "N",
                "Longest text, in tokens (default: the recipe's, else 200, or for an answer twice its source plus 10; "
                "with --beam at most what the prompt leaves of the context).",
            ),
            setting_of(Sampling, "temperature", "T", "the recipe's, else 1"),
            *(
                setting_of(Sampling, name, value, "the recipe's")
                for name, value in (
                    ("top_k", "K"),
                    ("top_p", "P"),
                    ("min_p", "P"),
                    ("typical_p", "P"),
                    ("repetition_penalty", "X"),
                    ("no_repeat_ngram", "N"),
                )
            ),
            Option(
                "contrastive-alpha",
                "A",
                "Contrastive search: of the most probable tokens (--top-k, 4) penalise those like the text so far; "
                "try 0.6.",
            ),
            Option(
                "draft",
                "RUN",
                "Speculative decoding: this smaller run proposes tokens, RUN checks several at once; faster, same "
                "distribution.",
            ),
            Option("lookup", "N", "Prompt-lookup decoding: propose what followed the last N tokens (or fewer) before."),
            Option("guesses", "N", "With --draft or --lookup: tokens proposed at a time (default: 4)."),
            Option("greedy", None, "Greedy decoding: always the most probable token, no sampling."),
            Option(
                "beam",
                "N",
                "Beam search with N hypotheses for the most probable texts, whatever beam the recipe has; no sampling.",
            ),
            Option(
                "seed",
                "N",
                "Random seed; the same text for the same seed, prompt, run and settings (default: the recipe's, else "
                "1).",
            ),
            Option(
                "stop",
                "TEXT",
                "End a text where this string would come, and leave it out; repeatable; \\n is a line end, as in "
                "printf.",
                repeats=True,
            ),
            *CONSTRAINTS,
            Option("crop", None, "Cut a prompt that is too long to its end; else it is refused."),
            Option("no-prompt", None, "Leave the prompt out of the output."),
            Option(
                "json",
                None,
                "One JSON object per text, on a line each: prompt, text, tokens, end; of a beam also its score.",
            ),
        ),
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
            Option("beam", "N", "Beam search with N hypotheses (default: the recipe's beam width)."),
            Option(
                "n-best",
                "N",
                "Beam search: the N best answers to each line, one per line, each after the number of its input line; "
                "fewer than N where the search finds no more that differ, and one empty answer to a blank line.",
            ),
            Option(
                "scores",
                None,
                "After each answer TAB and its score: log-probability divided by the length penalty; of a greedy "
                "answer with the weights as trained, whatever decode.precision and decode.cache are.",
            ),
            Option(
                "alignments",
                None,
                "After each answer TAB and i-j for each token j: i is the source token with the most attention.",
            ),
            Option("json", None, "One JSON object per line: its number, tokens, and answers with their figures."),
            *CONSTRAINTS,
            *LINES,
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
        (
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
        ),
        ("decode",),
        ("precision", "compile", "cache", "threads"),
    ),
    **{
        name: Verb(
            each.summary,
            "RUN",
            each.about,
            (
                *(Option(flag, None, what) for flag, what in each.switches),
                *LINES,
            ),
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
        (
            Option("env", "NAME", "Environment: rooms, or the id of one of gymnasium (default: the recipe's)."),
            Option(
                "return",
                "R",
                "Return to ask for; repeatable (default: the lowest, the mean and the highest of the training "
                "episodes).",
                repeats=True,
            ),
            Option("episodes", "N", "Episodes for each return (default: 10)."),
            Option(
                "steps", "N", "End an episode after N steps (default: as many as the longest training episode has)."
            ),
            Option(
                "temperature", "T", "Draw numbered actions instead of taking the likeliest; 1: as probable as told."
            ),
            Option(
                "unit-actions",
                None,
                "The training actions were from -1 to 1, which stand for the environment's bounds.",
            ),
            Option("seed", "N", "Seed of the first episode for each return; the others count up from it (default: 0)."),
            Option("save", "FILE.npz", "Write the episodes to a file, which data.train can name."),
            JSON,
        ),
    ),
    "explore": Verb(
        "inspect a run in the browser",
        "RUN",
        "Show the best checkpoint of a run as a web page: its answers, what each head attends to, the probabilities of "
        "each token, parameters and learning curves; try texts of your own, and the model without some heads.\n\nThe "
        "page is served to this machine only, with a new token at each start, and uses no network; Ctrl-C ends it, "
        "with exit code 0. With --export it is one file that works from disk; --checkpoints and --patch add what would "
        "otherwise need the model.\n\nThe roles of the heads are found once and kept in RUN/heads.json. Curves of "
        "further RUNs appear beside those of the first; for an arm of a study, all arms are compared.",
        (
            Option("port", "N", "Port of the page; 0: any that is free (default: 8642, or any that is free)."),
            Option("no-open", None, "Print the address and open no browser."),
            Option("export", "FILE", "Write the page, with the run's examples, as one file; serve nothing."),
            CHECKPOINTS,
            *PATCHING,
        ),
        many=True,
    ),
    "ablate": Verb(
        "compare settings over several seeds",
        "RECIPE",
        "Train RECIPE with every combination of the --vary values, or as it is and with each --change by itself, for "
        "several seeds; runs with the same seed see the same data in the same order.\n\nEach run is an ordinary run "
        "folder and has its own process, with one thread unless training.threads says otherwise. The same command "
        "continues a study: finished runs stay, interrupted ones are resumed, new values are added.\n\nAt the end: a "
        "table, table.md, results.jsonl and plots of the first --vary (across) and the others. Exit code 1 if a run "
        "failed; the others go on.",
        (
            Option("vary", "SETTING=V1,V2,...", "A setting and its values; several --vary make a grid.", repeats=True),
            Option(
                "change",
                "SETTING=V,...",
                "A change of RECIPE that is tried by itself: a setting, or several with commas; repeatable, in place "
                "of --vary.",
                repeats=True,
            ),
            CLASSIC,
            Option("seeds", "N", "Runs of each combination, with training.seed and the seeds after it (default: 3)."),
            Option(
                "test",
                "SETTING=VALUE",
                "Also score on other data, by a setting of data or decode; repeatable.",
                repeats=True,
            ),
            Option("out", "FOLDER", "Folder of the study (default: runs/ablate-NAME)."),
            Option("jobs", "N", "Runs in parallel (default: the free processors, divided by training.threads)."),
            Option("dry-run", None, "List the runs and the progress of each; train nothing."),
        ),
        SECTIONS,
    ),
    "params": Verb(
        "list the parameters of a model",
        "RUN|PRESET",
        "List every tensor of a run's model, or of a published architecture (gpt2, pythia-70m, bert-base, t5-small, "
        "notebook-004, ...), without allocating it.",
        (
            Option("plot", "FILE", "Plot the parameters instead of listing them: .png, .svg or .pdf."),
            Option(
                "by", "component", "Add them up by component instead: embedding, attention, feed-forward, norm, output."
            ),
            Option("shapes", None, "List instead what passes through each module: its shapes, parameters and purpose."),
            JSON,
        ),
    ),
    "heads": Verb(
        "see what each attention head does, and what is lost without it",
        "RUN",
        "Name the role of every attention head of a run's best checkpoint by what it reads, beside chance: previous, "
        "current or next token, the same token elsewhere, what followed it there (induction), the source in step "
        "(diagonal) or from its end (reversal), the token to be written (lookup), special tokens (sink).\n\nThen "
        "ablate each head, and all heads of a role, and measure what is lost, with a 95 % interval.\n\nx.1.3 is head 3 "
        "of layer 1 of cross-attention (e: encoder, d: decoder), all from 0. Data: of the run's own task, held out.",
        (
            CHECKPOINTS,
            Option(
                "prune",
                "HEADS",
                "Write a run without these heads, e.g. x.1.3,d.0.2; `unneeded`: as many as possible without a visible "
                "loss.",
            ),
            Option("out", "FOLDER", "With --prune: run folder to create (default: RUN-pruned)."),
            Option(
                "attribute",
                "TEXT",
                "Direct contribution of each head to the logit of each token of the answer to TEXT.",
            ),
            *PATCHING,
            JSON,
        ),
    ),
    "plot": Verb(
        "plot the learning curves of runs",
        "RUN",
        "Plot the figures in metrics.jsonl of one or several runs: those of each step pale and smoothed, those of the "
        "dev split as markers, the best checkpoint circled. Needs matplotlib.",
        (
            Option("out", "FILE", "Picture to write: .png, .svg or .pdf (default: curves.png)."),
            Option(
                "metric", "NAME", "Figure to draw, e.g. loss or grad_norm; several with commas (default: loss, score)."
            ),
            Option("log", None, "Logarithmic axes."),
        ),
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
        (
            Option(
                "data-dir",
                "FOLDER",
                "Where data sets are stored, each in its own folder (default: GLASSFORMER_DATA, else the user's data "
                "folder).",
            ),
            JSON,
        ),
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
        (
            Option("device", "DEVICE", "Where to compute: cpu, cuda or mps (default: cpu)."),
            Option("dtype", "DTYPE", "Floating-point type: float64 or float32 (default: float64)."),
            Option(
                "notebooks",
                "FOLDER",
                "Folder with the tutorial notebooks (.ipynb, .txt or .py), to compare their code with the library's.",
            ),
            JSON,
        ),
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
        "transformer. Without more: what is done and what is next.\n\nWith a chapter: its notebook, and its stubs "
        "below what you have; no line of yours is touched. --watch checks at each save. --grade checks the files of a "
        "class.\n\nThe file runs as your own code, with your rights, in a process that is stopped after a time limit. "
        "Exit codes: 0 done, 3 an exercise is open, 2 the file cannot be run.",
        (
            Option(
                "watch", None, "Check again at each save and name the first mistake; at an exercise, or the first open."
            ),
            Option("check", None, "Check once: an exercise, a chapter, or all."),
            Option("hint", None, "Show the next of an exercise's three hints."),
            Option("solution", None, "Show our solution of an exercise; asks first while it is open."),
            Option(
                "reset",
                None,
                "Put the stub of an exercise back, or a fresh notebook of a chapter; the old one is kept.",
            ),
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
            Option(
                "into", "FOLDER", "The learner's folder (default: this one if a course was begun here, else ./course)."
            ),
            Option("plain", None, "No clearing of the screen and no bars: for screen readers and logs."),
            Option("yes", None, "With --solution: do not ask."),
            Option("limit", "SECONDS", "Time limit for all of a file's code (default: 60; with --grade 10)."),
        ),
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
        (
            Option("only", "NAME", "Test only this property, function or class; several with commas."),
            Option("strict", None, "Exit code 3, too, if a function or class of the file was not looked at."),
            Option("limit", "SECONDS", "Time limit for all of the file's code (default: 60)."),
            JSON,
        ),
    ),
}
