"""Faults in reading models of other libraries."""

from __future__ import annotations

from mutant_runner import Mutant

PRETRAINED = "tests/store/test_pretrained.py"
SAME = f"{PRETRAINED}::test_every_token_has_the_probability_that_it_had"
REFUSED = f"{PRETRAINED}::test_what_would_compute_something_else_is_refused"
BOTH_WAYS = f"{PRETRAINED}::test_a_table_is_read_both_ways"
IMPORTED = "tests/train/run/test_imported.py"
ENDS = "tests/model/test_ends.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("query and value change places", "store/families/family.py",
        '("query", "key", "value").index(part[1])', '("value", "key", "query").index(part[1])', BOTH_WAYS),
    Mutant("imported matrices are not turned", "store/families/family.py",
        "            return tensor.t()\n        if self.unread is not None and re.search(self.unread[0], name):\n            return tensor[",
        "            return tensor\n        if self.unread is not None and re.search(self.unread[0], name):\n            return tensor[", BOTH_WAYS),
    Mutant("rows that no token reads are read", "store/families/family.py",
        "return tensor[self.unread[1] :]", "return tensor", BOTH_WAYS),
    Mutant("a row moves by one", "store/rows.py",
        "torch.tensor([row or 0 for row in rows])", "torch.tensor([max((row or 0) - 1, 0) for row in rows])", SAME),
    Mutant("new special tokens are predicted", "store/rows.py",
        "id != EOS or rows[EOS] is None]", "False]", SAME),
    Mutant("nothing ends an imported text", "store/rows.py",
        "id != EOS or rows[EOS] is None]", "True]", SAME),
    Mutant("an end that is not there is predicted", "store/rows.py",
        "id != EOS or rows[EOS] is None]", "id != EOS]",
        f"{PRETRAINED}::test_an_end_that_the_tokenizer_does_not_have_is_none_and_told"),
    Mutant("what an imported model never predicts is learned", "parts/vocabulary.py",
        'self.register_buffer("bias", fixed)', "self.bias = nn.Parameter(fixed)", ENDS),
    Mutant("silent tokens have a chance", "parts/vocabulary.py", "NEVER = -1e4", "NEVER = -10.0", ENDS),
    Mutant("a silent id of no token is taken", "model/heads.py",
        ">= config.vocab_size:", ">= config.vocab_size + 99:", ENDS),
    Mutant("a classifier is silent", "model/config.py",
        "if self.silent and (not isinstance(self.head, Lm) or self.head_bias):", "if self.silent and self.head_bias:", ENDS),
    Mutant("a recipe's silence is dropped", "model/recipe.py", "            silent=self.silent,\n", "", ENDS),
    Mutant("the masks of old files are learned weights", "store/families/gpt2.py",
        'computed=r"\\.attn\\.(bias|masked_bias)$",', "", f"{PRETRAINED}::test_names_of_older_files_are_read"),
    Mutant("old files have no base", "store/families/gpt2.py",
        'base="transformer.",', 'base="",', f"{PRETRAINED}::test_names_of_older_files_are_read"),
    Mutant("half precision stays", "store/pretrained.py",
        "{name: each.float() for name", "{name: each for name",
        f"{PRETRAINED}::test_weights_in_half_precision_and_in_several_files"),
    Mutant("a head that differs is dropped", "store/pretrained.py",
        "if not torch.equal(found.pop(head), found[embedding]):", "if found.pop(head) is None:", REFUSED),
    Mutant("a tokenizer larger than the model", "store/pretrained.py",
        "    refuse_other_size(adopted.rows, skeleton.config.vocab_size or 0, folder)\n", "", REFUSED),
    Mutant("shards of other folders are read", "store/pretrained.py",
        "if not names or any(Path(name).name != name for name in names):", "if not names:",
        f"{PRETRAINED}::test_no_pickle_is_read_and_no_file_of_another_folder"),
    Mutant("settings that change the model are ignored", "store/families/values.py",
        "if self.given.get(name, value) != value:", "if False:", REFUSED),
    Mutant("a class with another head is read", "store/pretrained.py",
        "if classes is not None and known", "if False and known", REFUSED),
    Mutant("normalisers are ignored", "data/tokens/adopted.py", '    "normalizer": (None,),\n', "", REFUSED),
    Mutant("tokens that were added are dropped", "data/tokens/adopted.py", "    if plain:\n", "    if False:\n", REFUSED),
    Mutant("what is left out is not told", "store/pretrained.py",
        "if left := size - len", "if left := 0 * len",
        f"{PRETRAINED}::test_rows_and_special_tokens_that_have_no_place_here_are_told"),
    Mutant("an imported text has no beginning", "train/run/imported.py",
        "documents=True", "documents=False", f"{IMPORTED}::test_it_writes_what_the_model_finds_most_probable"),
    Mutant("an imported run goes on with no training", "train/run/resumable.py",
        'case {"imported": str(family)}:', 'case {"imported": int(family)}:',
        f"{IMPORTED}::test_it_has_no_training_to_go_on_with"),
    Mutant("settings of no use are taken from the other run", "train/run/beginning.py",
        "own = {*OWN, *unread(recipe.data.layout)}", "own = {*OWN}", "tests/train/run/test_beginning.py"),
]
# fmt: on
