"""Reads the words after a verb: its target, its flags, and settings given as `--section.key value`."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from difflib import SequenceMatcher
from itertools import pairwise
from pathlib import Path
from typing import Any

from glassformer.base.errors import ConfigError, all_of
from glassformer.base.registry import suggestion
from glassformer.base.settings import meaning_of, parse
from glassformer.base.typed import TYPED, annotations_of, types_in
from glassformer.cli.verbs import COMMON, VERBS, Verb
from glassformer.data.config import DataConfig
from glassformer.decode.settings import BeamSettings
from glassformer.train.recipe import Recipe, classic, known_recipes, load_recipe, override
from glassformer.train.settings import DecodeConfig
from glassformer.train.tasks import task_of

NEAR = 0.7
"""The least similarity, from 0 to 1, of a name that is suggested."""
CLOSE = 0.12
"""How much less similar than the nearest name a further one may be that is suggested, too."""
MOST = 3
"""The most names that are suggested."""
SAME_WORD = 0.1
"""Added to the similarity of two names that end in the same word."""
FOREIGN = {
    "data.window": "block_size context context_length seq_len",
    "data.max_length": "max_length",
    "tokenizer.kind": "tokenizer",
    "model.n_layers": "depth n_layer num_hidden_layers num_layers",
    "model.d_model": "dim embed_dim hidden_dim hidden_size n_embd width",
    "model.d_ff": "ffn_dim intermediate_size",
    "model.n_heads": "heads n_head num_attention_heads num_heads",
    "model.max_len": "max_seq_len",
    "training.batch_tokens": "batch batch_size",
    "training.precision": "bf16 dtype fp16 half",
    "training.device": "cpu cuda gpu",
    "training.patience": "early_stopping",
    "training.steps": (
        "epoch epochs iterations iters max_epochs max_iters max_steps n_epochs num_epochs num_train_epochs"
    ),
    "training.evaluate_every": "eval_every eval_interval eval_steps",
    "training.accumulate": "grad_accum gradient_accumulation_steps",
    "training.clip": "grad_clip max_grad_norm",
    "training.learning_rate": "lr",
    "training.schedule": "lr_schedule lr_scheduler",
    "training.warmup": "warmup_steps",
    "optimizer.beta1": "adam_beta1",
    "optimizer.beta2": "adam_beta2",
    "optimizer.epsilon": "adam_epsilon",
    "optimizer.name": "optim optimizer",
    "optimizer.weight_decay": "wd",
    "decode.batch_size": "batch_size",
    "decode.beam": "beam_size num_beams",
    "decode.precision": "bf16 dtype fp16 half",
    "decode.temperature": "do_sample temp",
    "decode.early_stop": "early_stopping",
    "decode.max_new_tokens": "max_length max_tokens",
    "decode.no_repeat_ngram": "no_repeat_ngram_size",
    "n": "num_return_sequences",
    "out": "o output_dir",
}
"""The names that other tools have for a setting or flag of ours; of two with one such name, the best comes first."""
ELSEWHERE = {
    name: [place for place, names in FOREIGN.items() if name in names.split()]
    for name in " ".join(FOREIGN.values()).split()
}
"""What each of these names stands for here."""
DEVICE_OF_RUN = (
    "A run is used on the device that `training.device` in its recipe.toml names; auto is an accelerator if there is "
    "one, else the CPU."
)


def meant_flag(word: str, verb: Verb, settings: Mapping[str, str]) -> str:
    """Return a sentence on what an unknown flag of a verb may mean, or "" if nothing is near.

    `word` is without `--`; `settings` are those that the verb takes, "section.key", each with its flag. In this order:
    another tool's name, a setting of that name, flags and settings with similar names, the device of a run, a flag of
    another verb.
    """
    key = word.replace("-", "_")
    flags = {option.name.replace("-", "_"): f"--{option.name}" for option in verb.options}
    of_key = {place.partition(".")[2]: flag for place, flag in reversed([*settings.items()])}  # the first section wins
    here = {place: flags.get(place.partition(".")[2], flag) for place, flag in settings.items()} | flags
    if best := translated(key, here) or of_key.get(key):
        return did_you_mean(best)
    if near := nearest(key, of_key | flags):
        return did_you_mean(*near)
    if (key == "device" or "training.device" in ELSEWHERE.get(key, ())) and "RUN" in (verb.target or ""):
        return DEVICE_OF_RUN
    elsewhere = [place.partition(".")[2] or place for place in ELSEWHERE.get(key, ())]
    for flag in (word, *(each.replace("_", "-") for each in elsewhere)):
        if others := [name for name, each in VERBS.items() if any(option.name == flag for option in each.options)]:
            return f"{'It' if flag == word else f'--{flag}'} is a flag of {', '.join(others)}."
    return ""


def meant_setting(section: str, key: str, settings: Mapping[str, str]) -> str:
    """Return a sentence on what an unknown setting of a section may mean, or "" if nothing is near.

    `settings` are as in `meant_flag`. In this order: another tool's name, first for a setting of this section; the same
    name in another section; a similar name in this section.
    """
    own = {place: flag for place, flag in settings.items() if place.startswith(f"{section}.")}
    of_key = {place.partition(".")[2]: flag for place, flag in reversed([*settings.items()])}
    in_own = {place.partition(".")[2]: flag for place, flag in own.items()}
    if best := translated(key, own) or translated(key, settings) or of_key.get(key):
        return did_you_mean(best)
    near = nearest(key, in_own)
    return did_you_mean(*near) if near else ""


def meant_run(target: str, runs: Collection[str], presets: Collection[str]) -> str:
    """Return what to do about a target that is no run folder; `runs` are those there are.

    In this order: the run of that name, training the recipe of that name, one of the known names, training any.
    """
    if named := sorted(each for each in runs if Path(each).name == target):
        return did_you_mean(*named)
    if target in known_recipes() or Path(target).suffix == ".toml":
        return f"It names a recipe, which must be trained first: `glassformer train {target}`."
    known = [*runs, *presets]
    return suggestion(target, known) if known else "Make one with `glassformer train RECIPE`."


def translated(key: str, here: Mapping[str, str]) -> str:
    """Return the flag for another tool's name, or "" if there is none among those that are `here`."""
    return next((here[place] for place in ELSEWHERE.get(key, ()) if place in here), "")


def nearest(key: str, flags: Mapping[str, str]) -> list[str]:
    """Return the flags whose names are most similar to `key`, the best first. A last word in common counts."""
    scores = {name: SequenceMatcher(None, key, name).ratio() + SAME_WORD * ends_alike(key, name) for name in flags}
    least = max(NEAR, max(scores.values(), default=0) - CLOSE)
    near = sorted((name for name in scores if scores[name] >= least), key=scores.__getitem__, reverse=True)
    return [flags[name] for name in near[:MOST]]


def ends_alike(one: str, other: str) -> bool:
    """Whether two names of several words have the last one in common."""
    return "_" in one and "_" in other and one.rpartition("_")[2] == other.rpartition("_")[2]


def did_you_mean(*names: str) -> str:
    """Return the question whether one of these was meant."""
    return f"Did you mean {all_of([*map(repr, names)], 'or')}?"


# The settings of a recipe as flags: their names, values and meanings.

SHOWN = {int: "INT", float: "NUMBER", str: "TEXT"}


def flag_of(section: str, key: str) -> str:
    """Return a setting as it is typed."""
    return f"--{section}.{key.replace('_', '-')}"


def flags_of(sections: Iterable[str], taken: Collection[str] = ()) -> dict[str, str]:
    """Return the settings of some sections, or those `taken`, as "section.key", each with its flag."""
    keys = [(section, key) for section in sections for key in annotations_of(annotations_of(Recipe)[section])]
    return {f"{section}.{key}": flag_of(section, key) for section, key in keys if not taken or key in taken}


def kind_of(section: str, key: str, sections: tuple[str, ...]) -> tuple[str, Any, bool]:
    """Return the setting's name, its type, and False if a switch is turned off by `no_key`, else True.

    Errors: `ConfigError` for an unknown section or key, with the nearest match.
    """
    if section not in sections:
        near = nearest(section, {each: each for each in sections})
        hint = f" {did_you_mean(*near)}" if near else ""
        known = ", ".join(map(repr, sorted(sections)))
        raise ConfigError(f"{flag_of(section, key)}: there is no section {section!r} here. Known: {known}.{hint}")
    known = annotations_of(annotations_of(Recipe)[section])
    if key in known:
        return f"{section}.{key}", known[key], True
    bare = key.removeprefix("no_")
    if bare in known and is_switch(known[bare]):
        return f"{section}.{bare}", bool, False
    hint = meant_setting(section, key, flags_of(sections)) or f"Known: {', '.join(map(repr, sorted(known)))}."
    raise ConfigError(f"{flag_of(section, key)} is not a setting. {hint}")


def is_switch(kind: Any) -> bool:
    """Whether a setting is a bool, or a bool or None."""
    return bool in types_in(kind)


def converted(place: str, kind: Any, text: str) -> object:
    """Return `text` as a value of a type, for a setting or flag. Errors: `ConfigError` if it is none."""
    with suppress(ValueError):
        return parse(kind, text)
    wanted = " or ".join(TYPED[each] for each in types_in(kind))
    flag = place if place.startswith("--") else flag_of(*place.split(".", 1))
    raise ConfigError(f"{flag} takes {wanted}; got {text[:200]!r}.")


def setting_lines(section: str, recipe: Recipe, taken: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return (flag and value type, meaning and current value) for each setting of a section, or for those `taken`."""
    values = getattr(recipe, section)
    lines: list[tuple[str, str]] = []
    for key, kind in annotations_of(type(values)).items():
        if taken and key not in taken:
            continue
        value = getattr(values, key)
        takes = "" if is_switch(kind) else " " + SHOWN[next(each for each in (types_in(kind)) if each in SHOWN)]
        shown = "" if value is None else f" [{str(value).lower() if is_switch(kind) else value}]"
        lines.append((flag_of(section, key) + takes, meaning_of(type(values), key) + shown))
    return lines


# Errors in the words of the command line: settings become the flags that were typed, or could be.

VALUE = r" ?= ?(?P<value>'[^']*'|\"[^\"]*\"|[^\s,;:.()'\"]+(?:\.\d[^\s,;:.()'\"]*)?)"
"""A setting's value in a message: quoted, or a word or number, without the stop behind it."""
OF_SETTINGS = r"--(?:allow-change|change|vary|test) "
"""The flags that take the name of a setting. An error that begins with one is about that name."""
KEPT = rf"(?<!\w)'[^']*'|{OF_SETTINGS}\S+"
"""What is left as it is: quoted text of the user, and the names of settings that flags take."""
OF_CONSTRAINTS = {"banned": "ban", "begin": "begin", "biases": "bias", "regex": "regex", "schema": "json-schema"}
"""The flags of the fields of `Constraints`."""
CAME = r"(?<=\bgot )(?P<flag>--[\w.-]+ )?(?P<number>-?(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+|inf|nan))(?!\w)"
"""A number that came, as Python writes it: the `-1.0` of "got -1.0" and of "got --top-p -1.0"."""


def as_typed(message: str, verb: Verb, words: Sequence[str], setting: str | None = None) -> str:
    """Return an error's message with flags in place of the settings that the verb takes, and of their values.

    `words` were typed after the verb. A setting typed by its name, as in `--vary model.n_layers=1,2`, keeps it. A bare
    name (n_heads) is replaced if it is followed by a value or has several words, and belongs to one setting only. One
    in backquotes is kept, as where an error is about the recipe of a run. A number that came is written as it was
    typed: -1, where Python writes -1.0.
    `setting` is the one that the error is about, if it is known: its name may be that of a typed flag.
    """
    names = names_of(verb, words)
    if setting is not None and (flag := f"--{setting.replace('_', '-')}") in typed_in(words):
        names.setdefault(setting, flag)
    own = {word.partition("=")[2] if word.startswith("--") else word for word in words}
    names = {name: flag for name, flag in names.items() if name not in own}  # a run or a file may have such a name
    if not names or re.match(OF_SETTINGS, message):
        return with_numbers(message, words)
    longest = sorted(names, key=len, reverse=True)
    pattern = rf"{KEPT}|(?<![\w./`-])(?P<name>{'|'.join(map(re.escape, longest))})(?![\w-]|\.\w)(?:{VALUE})?"

    def replaced(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"]
        bare = name is not None and name != setting and "." not in name and "_" not in name
        if name is None or (bare and value is None):
            return found[0]
        return with_value(names[name], value)

    return with_numbers(re.sub(pattern, replaced, message), words)


def with_numbers(message: str, words: Sequence[str]) -> str:
    """Return a message with the numbers that came as they were typed among `words`."""
    typed: dict[str, str] = {}
    for word in words:
        value = word.partition("=")[2] if word.startswith("--") else word
        with suppress(ValueError):
            typed.setdefault(str(float(value)), value)
    return re.sub(CAME, lambda came: (came["flag"] or "") + typed.get(came["number"], came["number"]), message)


def names_of(verb: Verb, words: Sequence[str]) -> dict[str, str]:
    """Return each way in which a message may name a setting that the verb takes, with the flag for it."""
    typed = typed_in(words)
    short = {option.name for option in verb.options}
    names: dict[str, str] = {}
    bare: dict[str, list[str]] = {}
    for place, long in flags_of(verb.sections, verb.taken).items():
        key = place.partition(".")[2]
        if re.search(rf"(?<!--){re.escape(place)}\b", " ".join(words)):
            continue
        name = key.replace("_", "-")
        flag = f"--{name}" if place.startswith("decode.") and name in short and long not in typed else long
        names[place] = flag
        if long not in typed:
            names[long] = flag
        bare.setdefault(key, []).append(flag)
    for key, flags in bare.items():
        own = [flag for flag in flags if flag in typed]
        if len(flags) == 1 or len(own) == 1:
            names[key] = (own or flags)[0]
    for option in verb.options:  # those that are no settings of a recipe, such as those of a server
        names.setdefault(option.name.replace("-", "_"), f"--{option.name}")
    names |= {f"Constraints.{field}": f"--{flag}" for field, flag in OF_CONSTRAINTS.items() if flag in short}
    return names


def typed_in(words: Sequence[str]) -> set[str]:
    """Return the flags among the words, with `-` in their names."""
    return {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}


def with_value(flag: str, value: str | None) -> str:
    """Return a flag with its value as it is typed: `--top-k none`, `--data.no-header`."""
    if value is None:
        return flag
    bare = value.strip("'\"") if value[0] in "'\"" else value
    section, _, key = flag.removeprefix("--").replace("-", "_").partition(".")
    if bare.lower() in ("true", "false") and key and is_switch(annotations_of(annotations_of(Recipe)[section])[key]):
        return flag if bare.lower() == "true" else f"--{section}.no-{key.replace('_', '-')}"
    shown = "none" if bare == "None" else bare
    return f"{flag} {value if ' ' in shown or not shown else shown}"


@dataclass
class Arguments:
    """What the user typed after a verb."""

    target: str | None = None
    second: str | None = None
    more: list[str] = field(default_factory=list)
    """Further targets, for a verb that takes several."""
    options: dict[str, str] = field(default_factory=dict)
    """Flags by name. A switch that was given has the value ""."""
    lists: dict[str, list[str]] = field(default_factory=dict)
    """All values, in order, of the flags that may be repeated."""
    changes: dict[str, object] = field(default_factory=dict)
    """Settings by name, such as `model.n_layers`, with values of the right types."""


def read_arguments(name: str, verb: Verb, words: Sequence[str]) -> Arguments:
    """Parse the words. Errors: `ConfigError` for an unknown flag (with the nearest), or a missing or superfluous value.

    `--key value` and `--key=value` mean the same, and so do `-` and `_` inside a name. A setting that is a switch needs
    no value, and `--section.no-key` turns it off.
    """
    found = Arguments()
    options = {option.name: option for option in (*verb.options, *COMMON)}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        # no verb has a flag of one letter; `-h` was looked for before
        if len(word) == 2 and word[0] == "-" and word[1].isalpha():
            raise ConfigError(unknown_flag(name, verb, word))
        if not word.startswith("--"):
            if found.target is not None and verb.second is not None and found.second is None:
                found.second = word
                continue
            if found.target is not None and verb.many:
                found.more.append(word)
                continue
            if verb.target is None or found.target is not None:
                readable = "data" in verb.sections and Path(word).exists()
                instead = f"If it is what to read: --data.text {word}. " if readable else ""
                raise ConfigError(
                    f"`glassformer {name}` takes no further argument; got {word!r}. {instead}{usage(name, verb)}"
                )
            found.target = word
            continue
        flag, equals, behind = word.removeprefix("--").partition("=")
        given = behind if equals else None
        if "." in flag and verb.sections:
            key, change = read_setting(flag, given, rest, verb)
            found.changes[key] = change
            continue
        option = options.get(flag.replace("_", "-"))
        if option is None:
            raise ConfigError(unknown_flag(name, verb, f"--{flag}"))
        if option.value is None and given is not None:
            raise ConfigError(f"--{option.name} takes no value; got {given!r}. Write --{option.name} alone.")
        value = "" if option.value is None else taken(option.name, given, rest)
        if option.repeats:
            found.lists.setdefault(option.name, []).append(value)
            continue
        if option.value is not None and option.name in found.options:
            before = found.options[option.name]
            raise ConfigError(f"--{option.name} takes one value; got {before!r} and {value!r}. Give one of them.")
        found.options[option.name] = value
    return found


def unknown_flag(name: str, verb: Verb, flag: str) -> str:
    """Return the error for a flag that a verb does not have: which may have been meant, and where all are listed."""
    meant = meant_flag(flag.lstrip("-"), verb, flags_of(verb.sections, verb.taken))
    return " ".join(
        filter(None, [f"`glassformer {name}` has no flag {flag}.", meant, f"All flags: glassformer {name} --help."])
    )


def read_setting(flag: str, given: str | None, rest: list[str], verb: Verb) -> tuple[str, object]:
    """Return the setting that `--section.key` names and its value, which is `given` or else the next word in `rest`."""
    section, _, key = flag.replace("-", "_").partition(".")
    if section not in verb.sections and any(option.name.replace("-", "_") == key for option in verb.options):
        raise ConfigError(f"--{flag} is not a setting. {did_you_mean('--' + key.replace('_', '-'))}")
    place, kind, on = kind_of(section, key, verb.sections)
    if is_switch(kind):
        if given is None and rest and rest[0].lower() in ("true", "false", *(["none"] if kind is not bool else [])):
            given = rest.pop(0)
        value = converted(place, kind, "true" if given is None else given)
        return place, value if on else not value
    return place, converted(place, kind, taken(flag, given, rest))


def asks_for_help(verb: Verb, words: Sequence[str]) -> bool:
    """Whether `--help` or `-h` is among the words. A `-h` after a flag that takes a value is that flag's value."""
    alone = (not takes_value(verb, before) for before, word in pairwise(["", *words]) if word == "-h")
    return "--help" in words or any(alone)


def takes_value(verb: Verb, word: str) -> bool:
    """Whether a word is a flag of the verb that takes the next word as its value."""
    flag = word.removeprefix("--").replace("_", "-")
    section, dot, key = flag.replace("-", "_").partition(".")
    if not word.startswith("--") or "=" in word:
        return False
    if dot and verb.sections:
        with suppress(ConfigError):
            return not is_switch(kind_of(section, key, verb.sections)[1])
    return any(option.name == flag and option.value is not None for option in (*verb.options, *COMMON))


def taken(flag: str, given: str | None, rest: list[str]) -> str:
    """Return the value of a flag: the text after its `=`, or the next word."""
    if given is not None:
        return given
    if not rest or rest[0].startswith("--"):
        raise ConfigError(f"--{flag} needs a value. Write --{flag} VALUE, or --{flag}=VALUE if VALUE begins with --.")
    return rest.pop(0)


def whole_number(name: str, given: str, most: int, usual: int = 3, *, least: int = 1) -> int:
    """Parse the value of a flag that counts. Errors: `ConfigError` unless it is a whole number from `least` on."""
    if not given.isdecimal() or len(given) > 9 or not least <= int(given) <= most:
        raise ConfigError(
            f"--{name} takes a whole number from {least} to {most}; got {given[:40]!r}. Try --{name} {usual}."
        )
    return int(given)


def usage(name: str, verb: Verb) -> str:
    """Return the usage line of a verb."""
    target = f" {verb.target}" if verb.target else ""
    if verb.optional:
        return f"Usage: glassformer {name} [{verb.target} ...] [flags]"
    second = f" {verb.second}" if verb.needs_second else f" [{verb.second}]"
    target += second if verb.second else f" [{verb.target} ...]" if verb.many else ""
    settings = " [--section.key value]" if verb.sections else ""
    return f"Usage: glassformer {name}{target} [flags]{settings}"


# The recipe of a command with the settings that were typed, and the refusal of those that would change nothing.


def with_settings(
    arguments: Arguments, short: Mapping[str, str], remedy: str = "Give only one of them."
) -> dict[str, object]:
    """Return the settings that were given, with those whose flags are `short` for "section.key" among them."""
    changes = dict(arguments.changes)
    for flag, place in short.items():
        if (text := arguments.options.get(flag)) is not None:
            section, _, key = place.partition(".")
            if place in changes:
                long = flag_of(section, key)
                raise ConfigError(f"--{flag} and {long} are the same setting. {remedy}")
            changes[place] = converted(place, kind_of(section, key, (section,))[1], text)
    return changes


def named_recipe(target: str, options: Mapping[str, str]) -> Recipe:
    """Load a recipe by its name or file, with classic settings if --classic was given."""
    recipe = load_recipe(target)
    return classic(recipe) if "classic" in options else recipe


def refuse_not_taken(recipe: Recipe, options: Mapping[str, str], requested: Collection[str]) -> None:
    """Refuse what was typed in vain, as the run that a recipe starts from has it otherwise. Errors: `ConfigError`."""
    if recipe.training.start_from is None:
        return
    if "classic" in options:
        raise ConfigError(
            "--classic says what model is made, but a run with training.start_from has that of another run. Remove one "
            "of the two."
        )
    from glassformer.train.run.beginning import refuse_overruled  # only here, as importing torch takes a second

    refuse_overruled(recipe, requested)


# A recipe with another beam width than its own: which of its other settings of a beam still hold.

NO_BEAM = {f"decode.{each.name}": each.default for each in fields(BeamSettings)}
"""The settings of a beam where there is none."""
NEED_BEAM = ("decode.coverage_penalty", "decode.beam_groups", "decode.early_stop")


def beamed(recipe: Recipe, changes: Mapping[str, object]) -> Recipe:
    """Return the recipe with changes. Where they turn its beam off, they turn off what needs one, too.

    Errors: `ConfigError`, also where the recipe's groups do not divide the beam of the changes.
    """
    beam, groups = changes.get("decode.beam"), recipe.decode.beam_groups
    if beam == 1:
        return override(recipe, {**{place: NO_BEAM[place] for place in NEED_BEAM}, **changes})
    if isinstance(beam, int) and beam > 1 and beam % groups and "decode.beam_groups" not in changes:
        raise ConfigError(
            f"decode.beam_groups must divide decode.beam evenly; got decode.beam={beam}, and the recipe of this run "
            f"has {groups} groups. Set decode.beam_groups=1, or try decode.beam={groups * max(1, beam // groups)}."
        )
    return override(recipe, changes)


# Refuses settings of `[decode]` that were given where they would change nothing.


def refuse_idle_decoding(who: object, data: DataConfig, changes: Iterable[str]) -> None:
    """Refuse decode settings if the run writes no answers, or if they would change nothing.

    The `ConfigError` names all of them and `who`; `data` is the data section of its recipe.
    """
    task = task_of(data)
    if (read := task.decode_settings) is None:
        return
    idle = [name for name in changes if name.startswith("decode.") and name.removeprefix("decode.") not in read]
    if idle:
        flags = all_of([flag_of(*name.split(".", 1)) for name in idle])
        raise ConfigError(
            f"[decode] controls how answers are written, but {who} {task.does}, so {flags} would have no "
            f"effect. Remove {'it' if len(idle) == 1 else 'them'}."
        )


def refuse_idle_seed(decode: DecodeConfig, changes: Collection[str]) -> None:
    """Refuse a random seed that was given where nothing is drawn. Errors: `ConfigError`."""
    if "decode.seed" in changes and decode.temperature == 0:
        raise ConfigError(
            f"{drawless(decode)} draws nothing, so decode.seed={decode.seed} would have no effect. Remove decode.seed, "
            "or sample instead (for example decode.temperature=0.8)."
        )


def refuse_idle_search(decode: DecodeConfig, changes: Collection[str], *, scored: bool = False) -> None:
    """Refuse settings of a beam search that were given where they would change nothing. Errors: `ConfigError`.

    `scored`: whether the answers' scores are shown, which the length penalty is part of without a beam, too.
    """
    if "decode.diversity" in changes and decode.beam_groups == 1:
        raise ConfigError(
            f"decode.diversity keeps groups of a beam apart, but there is only one, so {decode.diversity} would have "
            "no effect. Set decode.beam_groups, or remove decode.diversity."
        )
    if "decode.length_penalty" in changes and decode.beam == 1 and not scored:
        raise ConfigError(
            f"decode.length_penalty ranks the answers of a beam, but decode.beam is 1, so {decode.length_penalty} "
            "would have no effect. Set decode.beam, or remove decode.length_penalty."
        )


def drawless(decode: DecodeConfig) -> str:
    """Return the name of what chooses the tokens at temperature 0, for a message."""
    if decode.beam > 1:
        return "Beam search"
    return "Contrastive search" if decode.contrastive_alpha else "Greedy decoding"
