"""Faults in writing models for other libraries, and in the settings of their families."""

from __future__ import annotations

from mutant_runner import Mutant

EXPORT, SHAPES = "tests/store/test_export.py", "tests/store/test_shapes.py"
EXPORTED, RUN = "tests/data/tokens/test_exported.py", "tests/train/finished/test_export.py"
THEIRS, IMPORT = "tests/parity/test_transformers_export.py", "tests/parity/test_transformers_import.py"
IMPORTED, CLI = "tests/train/run/test_imported.py", "tests/cli/test_export.py"
AGAIN = f"{EXPORT}::test_what_is_read_again_is_the_same_model"
REFUSED = f"{SHAPES}::test_what_would_compute_something_else_is_refused"
FITS = f"{EXPORT}::test_a_model_of_no_family_is_refused_with_what_each_needs"
LOGITS, TEXTS = f"{THEIRS}::test_logits_are_the_same", f"{THEIRS}::test_greedy_texts_are_the_same"

# fmt: off
ROWS: list[Mutant] = [
    # settings of families
    Mutant("a setting that no family has is exported", "store/families/shape.py",
        "elif name in NOT_COMPARED or value == usual[name]:", "elif name not in self.fixed or value == usual[name]:",
        f"{EXPORT}::test_every_setting_is_written_or_refused_or_changes_nothing"),
    Mutant("rotary positions are compared with nothing", "store/families/rotary.py",
        'if value.layout != "half" or (value.share != 1.0 and not self.partly):', "if False:", FITS),
    Mutant("a scaling that they lack is exported", "store/families/rotary.py",
        "return None if value.scaling in known else", "return None if True else", FITS),
    Mutant("heads may be of any width there", "store/families/shape.py",
        "        if stack.d_model % stack.n_heads:", "        if False:", FITS),
    Mutant("the usual values of theirs are ours", "store/families/shape.py",
        "given={**self.usual, **values.given}", "given={**values.given}", f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("a whole head of GPT-NeoX rotates unless said otherwise", "store/families/gpt_neox.py",
        'usual={"rotary_pct": 0.25}', "usual={}", f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("branches of GPT-NeoX that nobody spoke of are not parallel", "store/families/gpt_neox.py",
        '"use_parallel_residual", usual=True', '"use_parallel_residual", usual=False', f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("the rotated part of a head is forgotten", "store/families/rotary.py",
        "return RotaryConfig(base, share=share)", "return RotaryConfig(base)", f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("Llama's biases are ignored", "store/families/llama.py", '"attention_bias": False, ', "", REFUSED),
    Mutant("the older place of a scaling does not count", "store/families/rotary.py",
        'PLACES = ("rope_scaling", "rope_parameters")', 'PLACES = ("rope_parameters", "rope_scaling")',
        f"{SHAPES}::test_rotary_positions_are_read_where_they_stand"),
    Mutant("unknown settings of a scaling are ignored", "store/families/rotary.py",
        "for name in inner.given if name not in known}", "for name in inner.given if name in known - known}", REFUSED),
    Mutant("other bands of a scaling are ignored", "store/families/rotary.py",
        "        inner.refuse(**dict(zip(TURNS[scaling], SCALINGS[scaling] or (), strict=True)))\n", "", REFUSED),
    Mutant("a length outside of the scaling is ignored", "store/families/rotary.py",
        "        values.refuse(**{LENGTH: None})  # would stand for the one inside\n", "", REFUSED),
    Mutant("a part of a head is rotated as a whole", "store/families/rotary.py", "        if share != 1.0 and not self.partly:\n", "        if False:\n", REFUSED),
    Mutant("the base is forgotten", "store/families/rotary.py",
        "scaled = {", "value = RotaryConfig(); scaled = {", AGAIN),
    Mutant("a fast gelu is an exact one", "store/families/settings.py",
        '"gelu_fast": "gelu_tanh"', '"gelu_fast": "gelu"', f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("gelu is exported for its approximation", "store/families/settings.py",
        '    "gelu": "gelu",\n', '    "gelu": "gelu_tanh",\n', f"{LOGITS}"),
    Mutant("a window of theirs is one key wider", "store/families/settings.py",
        "else values.whole(self.theirs)", "else values.whole(self.theirs) + 1", f"{AGAIN} {IMPORT}"),
    Mutant("a sliding window of null is the usual one", "store/families/settings.py",
        "return None if values.given.get(self.theirs) is None else", "return 4096 if values.given.get(self.theirs) is None else",
        f"{SHAPES}::test_the_usual_values_are_theirs"),
    Mutant("the matrix of GPT-NeoX has all queries first", "store/families/gpt_neox.py", "    by_head=True,\n", "", LOGITS),
    Mutant("Llama's norms change places", "store/families/llama.py",
        '(r"self_attention\\.norm_in", "input_layernorm"),\n        (r"feed_forward\\.norm_in", "post_attention_layernorm")',
        '(r"self_attention\\.norm_in", "post_attention_layernorm"),\n        (r"feed_forward\\.norm_in", "input_layernorm")', LOGITS),

    # the vocabulary
    Mutant("tokens without a row are exported", "store/rows.py",
        "    empty = [id for id in asked if id not in needed and", "    empty = [id for id in asked if id < 0 and",
        f"{EXPORT}::test_an_imported_model_returns_with_its_own_vocabulary"),
    Mutant("a token that a tokenizer gives is left out", "store/rows.py",
        "if id not in needed and not any", "if not any", f"{EXPORT}::test_tokens_that_a_tokenizer_gives_are_kept"),
    Mutant("begin and end are two tokens there", "store/rows.py",
        "for id in others if EOS not in empty", "for id in others if EOS in empty",
        f"{EXPORT}::test_an_imported_model_returns_with_its_own_vocabulary"),
    Mutant("a begin of its own is the end", "store/rows.py",
        "all(torch.equal(each[id], each[EOS]) for each in tables)", "True",
        f"{EXPORT}::test_a_special_token_with_a_row_of_its_own_is_kept_and_told"),
    Mutant("our own folder gets silent tokens", "store/pretrained.py", "    if own is None:  #", "    if True:  #", AGAIN),
    Mutant("what is never written is written there", "store/export.py",
        "if old in never]", "if old in kept.silent]", TEXTS),

    # the tokenizer
    Mutant("a text begins with nothing", "data/tokens/exported.py",
        "None if begin is None else beginning(", "None if begin is None or True else beginning(", EXPORTED),
    Mutant("words are split at less", "data/tokens/exported.py", 'f"[{WHITE_SPACE}]+"', 'r"[ \\t\\n]+"', EXPORTED),
    Mutant("characters are lost", "data/tokens/exported.py", '(Regex(CHARACTER), "isolated")', '(Regex(CHARACTER), "removed")', EXPORTED),
    Mutant("wordpieces keep their mark", "data/tokens/exported.py", "    if not mark:\n", "    if True:\n", EXPORTED),
    Mutant("bytes are in the order of letters", "data/tokens/exported.py",
        "sorted(BYTES, key=BYTES.__getitem__)", "sorted(BYTES)", EXPORTED),
    Mutant("any file is ours", "data/tokens/exported.py",
        "return (tokenizer, begins) if again == record else None", "return tokenizer, begins", EXPORTED),
    Mutant("special tokens are found in texts", "store/export.py",
        '"split_special_tokens": True', '"split_special_tokens": False', f"{THEIRS}::test_texts_have_the_same_tokens"),

    # the folder
    Mutant("an export writes over a folder", "store/export.py",
        "if folder.is_dir() and any(folder.iterdir()):", "if False:", f"{EXPORT}::test_no_folder_that_is_in_use_is_written"),
    Mutant("an export writes through a link", "store/export.py",
        "if folder.is_symlink() or (", "if False or (", f"{EXPORT}::test_no_folder_that_is_in_use_is_written"),
    Mutant("older versions cannot tell whose file it is", "store/export.py",
        '{"format": "pt"}', "{}", f"{EXPORT}::test_the_files_are_those_that_transformers_needs"),
    Mutant("an encoder is exported", "store/export.py",
        "if config.encoder is not None or config.decoder is None:", "if config.decoder is None:", FITS),
    Mutant("a mistake on purpose is exported", "train/finished/export.py",
        "    if recipe.training.broken:\n", "    if False:\n", f"{RUN}::test_a_run_that_reads_otherwise_is_refused"),
    Mutant("a prefix model is exported", "train/finished/export.py",
        'recipe.data.objective == "prefix":', 'recipe.data.objective == "suffix":', f"{RUN}::test_a_run_that_reads_otherwise_is_refused"),
    Mutant("one checkpoint is exported for several", "train/finished/export.py",
        "load_run(run, recipe, average)", "load_run(run, recipe)", f"{RUN}::test_the_mean_of_the_newest_can_be_exported"),
    Mutant("every text begins there", "train/finished/export.py",
        "begins = data.documents is not False", "begins = True", f"{RUN}::test_a_text_begins_there_as_it_does_here"),
    Mutant("a run without a folder to write is exported", "cli/export.py",
        "    if arguments.second is None:\n", "    if False:\n", CLI),
    Mutant("rotary settings are not in the recipe", "train/run/imported.py",
        '("base", "share", "scaling", "factor", "original_max_len")', '("base",)',
        f"{IMPORTED}::test_the_recipe_of_each_family_builds_its_model"),
    Mutant("an imported window has no bound", "train/run/imported.py",
        "window = min(config.stack.max_len, LONGEST)", "window = config.stack.max_len",
        f"{IMPORTED}::test_a_window_too_long_to_train_with_is_shorter_and_told"),
]
# fmt: on
