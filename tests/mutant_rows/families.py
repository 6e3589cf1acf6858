"""Faults in what single families of models need, in their tables and in the presets, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

ENDS, SEGMENTS, PRESETS = "tests/model/test_ends.py", "tests/parts/test_segments.py", "tests/model/test_presets.py"
LAWS = "tests/proof/test_laws.py::test_law_beside_hugging_face_holds"
FAMILIES, LOSS = "tests/store/test_families.py", "tests/contract/test_initial_loss.py"
POSITIONS, HEADS, PARAMS = "tests/parts/test_positions.py", "tests/contract/test_heads.py", "tests/cli/test_params.py"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # the laws themselves
    Mutant("every law has the bound of float32", "proof/laws/law.py",
        "if law.narrow else setting", "if True else setting", "tests/proof/test_laws.py::test_bound_is_that_of_the_numbers"),
    # segments
    Mutant("the first part has no vector", "parts/segments.py",
        "return x + self.weight[0]", "return x", f"{SEGMENTS}::test_the_vector_of_its_part_is_added_to_each_token"),
    Mutant("all tokens are of the first part", "parts/segments.py",
        "return x + self.weight[segments]", "return x + self.weight[segments * 0]",
        f"{SEGMENTS}::test_the_vector_of_its_part_is_added_to_each_token"),
    Mutant("segments of one column are stretched", "parts/segments.py",
        "if segments.shape != x.shape[:2]:", "if False:", f"{SEGMENTS}::test_wrong_segments_are_refused"),
    Mutant("a part that is not there is looked up", "parts/segments.py",
        "(segments >= n_segments)", "(segments > n_segments)", f"{SEGMENTS}::test_wrong_segments_are_refused"),
    Mutant("segments are dropped in silence", "model/stack.py",
        "        if segments is not None:\n            raise", "        if False:\n            raise",
        f"{SEGMENTS}::test_wrong_segments_are_refused"),
    Mutant("segments do not reach the stack", "model/transformer.py",
        '"segments": segments, "documents"', '"segments": None, "documents"',
        f"{SEGMENTS}::test_a_segment_tells_and_a_later_one_does_not"),
    Mutant("segments begin otherwise than positions", "model/initialize.py",
        "nn.init.normal_(table, std=sd)", "nn.init.normal_(table)", f"{SEGMENTS}::test_begin_as_learned_positions_do"),
    Mutant("two stacks have segments", "model/config.py",
        "if self.encoder and self.decoder and (self.encoder.n_segments", "if False and (self.encoder.n_segments",
        f"{SEGMENTS}::test_an_encoder_decoder_has_none"),

    # ends
    Mutant("the embedding's norm is left out", "model/stack.py",
        "if config.embedding_norm else", "if False else", ENDS),
    Mutant("the embedding's norm stands before the positions, too", "model/stack.py",
        "        x = self._marked(x, segments)\n", "        x = self.embedding_norm(self._marked(x, segments))\n",
        f"{ENDS}::test_embedding_norm_stands_behind_positions_and_before_the_first_block"),
    Mutant("attention keeps its own scale", "model/blocks.py",
        "scale=config.attention_scale,", "scale=None,", f"{ENDS}::test_attention_scale_reaches_every_attention"),
    Mutant("a large scale makes the first scores large", "model/initialize.py",
        'if role == "query" and config.attention_scale is not None:', "if False:",
        f"{ENDS}::test_first_scores_are_as_large_as_ever"),
    Mutant("a small scale is made up for", "model/initialize.py",
        "min(1.0, config.head_width**-0.5 / config.attention_scale)", "config.head_width**-0.5 / config.attention_scale",
        f"{ENDS}::test_first_scores_are_as_large_as_ever"),
    Mutant("linear attention has a scale", "model/contradictions.py",
        "if config.attention_scale is not None:\n", "if False:\n", f"{ENDS}::test_stacks_that_cannot_be"),
    Mutant("the head's scale is its inverse", "model/heads.py",
        "scale = D**-0.5 if", "scale = D**0.5 if",
        f"{ENDS}::test_a_scaled_head_reads_its_vectors_over_the_root_of_the_width"),
    Mutant("a scaled head whispers", "parts/vocabulary.py",
        "else x * self.scale", "else x * self.scale**2", f"{ENDS}::test_a_heads_transform_is_its_equation"),
    Mutant("a head of its own is scaled", "model/config.py",
        "if self.scale_head and not (", "if False and not (", f"{ENDS}::test_models_that_cannot_be"),
    Mutant("a transform ends without a norm", "parts/vocabulary.py",
        "return self.norm(self.activation(self.dense(x)))", "return self.activation(self.dense(x))", ENDS),
    Mutant("the norm under a tied head is another one", "model/initialize.py",
        "reader.last_norm if transform is None else transform.norm", "reader.last_norm", f"{LOSS}::test_whatever_else_is_chosen"),
    Mutant("a transform is forgotten", "model/heads.py",
        "if activation is None:", "if True:", f"{ENDS}::test_names_of_a_heads_transform"),
    Mutant("a recipe's transform is dropped", "model/recipe.py",
        "return Lm(self.head_transform)", "return Lm()", f"{ENDS}::test_a_recipe_says_all_of_it"),
    Mutant("sines and cosines alternate", "parts/positions/absolute.py",
        "torch.cat([sin, cos], dim=-1)", "torch.stack([sin, cos], dim=-1).flatten(-2)", POSITIONS),

    # tables and presets
    Mutant("unread rows stand behind ours", "store/families/family.py",
        "torch.cat([tensor.new_zeros(self.unread[1], tensor.shape[1]), tensor])",
        "torch.cat([tensor, tensor.new_zeros(self.unread[1], tensor.shape[1])])", FAMILIES),
    Mutant("one unread row is missing", "store/families/bart.py",
        'embed_positions\\.weight$", 2)', 'embed_positions\\.weight$", 1)', FAMILIES),
    Mutant("T5's gate and its map change places", "store/families/t5.py",
        '"DenseReluDense.wi_0."), (r"branch\\.up\\.", "DenseReluDense.wi_1.")',
        '"DenseReluDense.wi_1."), (r"branch\\.up\\.", "DenseReluDense.wi_0.")', LAWS),
    Mutant("BERT's norms change places", "store/families/bert.py",
        '(r"self_attention\\.norm_sum", "attention.output.LayerNorm"),\n        (r"feed_forward\\.norm_sum", "output.LayerNorm")',
        '(r"self_attention\\.norm_sum", "output.LayerNorm"),\n        (r"feed_forward\\.norm_sum", "attention.output.LayerNorm")',
        LAWS),
    Mutant("the norms of a decoder change places", "store/families/bart.py",
        '"encoder_attn_layer_norm"),\n        (r"feed_forward\\.norm_sum", "final_layer_norm")',
        '"final_layer_norm"),\n        (r"feed_forward\\.norm_sum", "encoder_attn_layer_norm")', LAWS),
    Mutant("a preset is one block short", "model/presets.py",
        '"gpt2-large": _gpt2(1280, 20, 36)', '"gpt2-large": _gpt2(1280, 20, 35)', PRESETS),
    Mutant("counting a config allocates it", "model/count.py",
        'with torch.device("meta"):', 'with torch.device("cpu"):', f"{PRESETS}::test_counting_allocates_nothing"),
    Mutant("a preset hides the run of its name", "cli/params.py",
        'if target in PRESETS and not Path(target, "recipe.toml").is_file():', "if target in PRESETS:", PARAMS),
]
# fmt: on
