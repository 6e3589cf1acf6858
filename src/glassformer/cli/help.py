"""`--help`: the table of verbs, and a page for each verb, without importing torch."""

from __future__ import annotations

import shutil
import textwrap
from pathlib import Path

from glassformer.base.errors import GlassformerError
from glassformer.cli.arguments import setting_lines, usage
from glassformer.cli.generate import sampled
from glassformer.cli.verbs import COMMON, LINE_VERBS, VERBS, Option
from glassformer.proof.check.file import DOCUMENTED
from glassformer.train.breaks import BREAKS
from glassformer.train.recipe import Recipe, known_recipes, load_recipe, read_recipe

EXITS = (
    "Exit codes: 0 done, 1 a run of a study or another process of a run failed, 2 bad usage or input, 3 a check failed,"
    " 4 training diverged, 5 out of memory or disk, 130/143 stopped by a signal."
)
EXAMPLES = {
    "train": (
        "glassformer train reverse --model.n-layers 3 --out runs/deeper",
        "glassformer train multi30k --data.train-source train.en --data.train-target train.de "
        "--data.dev-source val.en --data.dev-target val.de",
        "glassformer train classify --data.train train.tsv --data.dev dev.tsv",
        "glassformer train lm --data.text book.txt",
        "glassformer train reverse --break no-positions",
        "glassformer train reverse --dry-run",
        "glassformer train reverse --find-learning-rate",
    ),
    "resume": ("glassformer resume runs/reverse",),
    "evaluate": (
        "glassformer evaluate runs/reverse --json",
        "glassformer evaluate runs/multi30k --data.test-source test.en --data.test-target test.de",
        "glassformer evaluate runs/lm --data.text test.txt",
        "glassformer evaluate runs/a runs/b runs/c",
    ),
    "generate": (
        'glassformer generate runs/lm --prompt "Once upon" --temperature 0.8 --top-p 0.9 --n 3',
        'glassformer generate runs/lm --prompt "Once upon" --beam 4 --n 3 --stop "."',
        "glassformer generate runs/multi30k --n 5 --json < sentence.en",
    ),
    "translate": (
        "glassformer translate runs/multi30k < in.en > out.de",
        "glassformer translate runs/multi30k --beam 5 < in.en > out.de",
    ),
    "serve": (
        "glassformer serve runs/lm",
        "glassformer serve runs/lm --decode.precision int8",
        "glassformer serve runs/multi30k --host 0.0.0.0 --key-file key.txt --name translate.example",
    ),
    **{name: each.examples for name, each in LINE_VERBS.items()},
    "rollout": (
        "glassformer rollout runs/decision",
        "glassformer rollout runs/decision --return -8 --return -30 --episodes 50 --save episodes.npz",
        "glassformer rollout runs/cartpole --env CartPole-v1 --return 200",
    ),
    "explore": (
        "glassformer explore runs/reverse",
        "glassformer explore runs/reverse --export page.html",
        "glassformer explore runs/reverse --export page.html --checkpoints --patch 'f a c e' --into 'f a d e'",
    ),
    "ablate": (
        "glassformer ablate reverse --vary model.n_layers=1,2,4 --vary model.norm_placement=pre,post --seeds 3",
        "glassformer ablate copy --vary model.positions=rotary,alibi --data.min-length 2 --data.max-length 16 "
        "--test data.min_length=17 --test data.max_length=32",
    ),
    "data": ("glassformer data list", "glassformer data show multi30k", "glassformer data fetch tinyshakespeare"),
    "params": (
        "glassformer params runs/reverse",
        "glassformer params gpt2",
        "glassformer params gpt2 --by component",
        "glassformer params gpt2 --shapes",
        "glassformer params gpt2 --plot gpt2.svg",
    ),
    "import": (
        "glassformer import gpt2",
        "glassformer explore runs/gpt2",
        "glassformer train lm --data.text book.txt --training.start-from runs/gpt2 --training.learning-rate 1e-4",
    ),
    "export": ("glassformer export runs/lm exported", "glassformer import exported --out runs/again"),
    "heads": (
        "glassformer heads runs/reverse",
        "glassformer heads runs/reverse --checkpoints",
        "glassformer heads runs/reverse --prune unneeded --out runs/fewer",
        "glassformer heads runs/reverse --attribute 'f a c e'",
        "glassformer heads runs/reverse --patch 'f a c e' --into 'f a d e'",
    ),
    "plot": (
        "glassformer plot runs/reverse",
        "glassformer plot runs/a runs/b --metric loss,grad_norm --out curves.pdf",
    ),
    "doctor": ("glassformer doctor runs/reverse", "glassformer doctor runs/reverse --json"),
    "verify": ("glassformer verify", "glassformer verify --dtype float32 --json"),
    "demo": ("glassformer demo",),
    "learn": (
        "glassformer learn",
        "glassformer learn 1",
        "glassformer learn --watch",
        "glassformer learn 2.1 --hint",
        "glassformer learn --grade handed_in/*.py --csv",
    ),
    "check": ("glassformer check attention.py", "glassformer check attention.py --only scale,mask --json"),
}

FIGURES = (
    ("n", "Pairs, texts, words or tokens that were scored."),
    ("loss", "Nats per target token; perplexity: e to the loss."),
    ("exact_match", "Share of answers that are entirely right."),
    ("token_accuracy", "Share of right tokens."),
    (
        "cut",
        "Answers that reached a limit (decode.max_new_tokens, model.max_len) before their end; raise it if there are "
        "many.",
    ),
    ("unknown", "Tokens that are not in the vocabulary: of the sources, or of the text."),
    ("bleu, bleu_lowercase, chrf", "Text from files, by sacrebleu."),
    ("any_match", "If sources have several targets: share of sources that got one of theirs."),
    ("accuracy, macro_f1", "Classifiers and tags, with figures for each label; span_f1: tags of spans."),
    ("r2, mse, mae", "Numbers."),
    ("bits_per_byte, bits_per_character", "Running text: what the whole text costs."),
    ("word_perplexity", "Running text: e to the loss of a word, all its tokens together; large for characters."),
)
"""What `evaluate` prints, as far as it applies."""


def overview() -> str:
    """Return the text of `glassformer --help`."""
    verbs = [(f"{name} {verb.target or ''}".strip(), verb.summary) for name, verb in VERBS.items()]
    flags = [("--version", "Show the version."), *map(flag_line, COMMON)]
    return "\n\n".join(
        (
            "A transformer you can see through.",
            "Usage: glassformer VERB [TARGET] [flags] [--section.key value]",
            table("Verbs", verbs),
            table("Flags", flags),
            "Start with `glassformer demo`. Help on a verb: `glassformer train --help`.",
            textwrap.fill(EXITS, width()),
        )
    )


def verb_help(name: str, target: str | None) -> str:
    """Return the text of `glassformer VERB --help`. With a target, the values in brackets are those of its recipe."""
    verb = VERBS[name]
    parts = [usage(name, verb), *(textwrap.fill(each, width()) for each in verb.about.split("\n\n"))]
    if verb.target == "RECIPE":
        parts.append(
            table("Recipes", [(name, read_recipe(path).description) for name, path in known_recipes().items()])
        )
    if name == "check":
        parts.append(table("What the file may hold", [(each.signature, each.meaning) for each in DOCUMENTED.values()]))
    if name == "train":
        parts.append(table("Mistakes for --break", [(each, BREAKS[each].what) for each in BREAKS]))
    if name == "evaluate":
        parts.append(table("Figures", [*FIGURES]))
    parts.append(table("Flags", list(map(flag_line, (*verb.options, *COMMON)))))
    if verb.sections:
        parts += section_tables(name, target)
    parts.append("\n".join(["Examples", *(f"  {line}" for line in EXAMPLES[name])]))
    return "\n\n".join(parts)


def section_tables(name: str, target: str | None) -> list[str]:
    """Return a table for each recipe section whose settings the verb accepts, with the values that it would use."""
    verb, recipe = VERBS[name], recipe_of(target)
    whose = f"the value in {target}" if recipe else f"the default; name a {verb.target} before --help to see its values"
    if name == "generate":
        whose += (
            "; generate samples, so a temperature of 0 is shown as 1, which it takes instead, and no beam is shown, as "
            "only a flag asks for one; then the recipe's other settings of a beam apply"
        )
    note = (
        "Settings: --section.key VALUE or --section.key=VALUE, with - or _ in the key. --section.no-key turns a switch "
        "off; the value none unsets what may be unset. Of a setting given twice the last value counts, so that a "
        "script can add to its own. In brackets: "
        f"{whose}."
    )
    used = recipe or Recipe("NAME")
    used = sampled(used) if name == "generate" else used
    lines = {each: setting_lines(each, used, verb.taken) for each in verb.sections}
    return [textwrap.fill(note, width()), *(table(f"[{section}]", each) for section, each in lines.items())]


def recipe_of(target: str | None) -> Recipe | None:
    """Return the recipe that a target names, directly or as a run folder. None if there is none: help never fails."""
    if target is None:
        return None
    file = Path(target) / "recipe.toml"
    try:
        return load_recipe(file if file.is_file() else target)
    except GlassformerError:
        return None


def flag_line(option: Option) -> tuple[str, str]:
    """Return a flag with the name of its value, and its meaning."""
    return f"--{option.name} {option.value or ''}".strip(), option.help


def table(title: str, lines: list[tuple[str, str]]) -> str:
    """Return two columns under a title. An entry too long for the left column gets a line of its own."""
    left = min(32, max(len(flag) for flag, _ in lines))
    shown = [title]
    for flag, meaning in lines:
        wrapped = textwrap.wrap(meaning, max(width() - left - 4, 20)) or [""]
        first = f"  {flag:{left}}  "
        if len(flag) > left:
            shown.append(f"  {flag}")
            first = " " * (left + 4)
        shown += [(first + wrapped[0]).rstrip(), *(" " * (left + 4) + each for each in wrapped[1:])]
    return "\n".join(shown)


def width() -> int:
    """Return the width of the terminal, at least 40 and at most 120 columns for readability; 100 without a terminal."""
    return min(max(shutil.get_terminal_size((100, 24)).columns, 40), 120)
