"""Faults in what is asked of running text, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

READING, CORRUPT, MASK = "tests/contract/test_reading.py", "tests/data/test_corrupt.py", "tests/attend/test_mask.py"
SENTENCES = "tests/data/test_sentences.py"
EQUAL = "tests/contract/test_backends.py::test_backend_equals_reference"
SUMS, FLEX = f"{EQUAL}[linear-sums-3]", f"{EQUAL}[softmax-flex-1]"
PACKED, BOTH_WAYS = (
    f"{READING}::test_packed_documents_get_what_each_gets_alone",
    f"{READING}::test_a_prefix_is_read_both_ways_and_what_follows_is_causal",
)
CROSS, OBJECTIVE = "tests/train/test_cross_entropy.py", "tests/train/test_objective.py"
LARGE = f"{OBJECTIVE}::test_a_large_vocabulary_costs_what_its_whole_logits_would"
BEGIN = "tests/train/test_beginning.py"
ASKED = f"{READING}::test_next_token_asks_within_documents_and_behind_the_prefix"
PARTS = f"{READING}::test_a_batch_carries_both_through_its_parts"

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # packed documents and prefixes
    Mutant("a prefix is one too long", "attend/mask.py",
        "places[1] < self.prefix[:, None, None]", "places[1] <= self.prefix[:, None, None]", f"{MASK}::test_prefix"),
    Mutant("a fast kernel forgets the prefix", "attend/mask.py",
        "self.documents, self.prefix)", "self.documents)", f"{MASK}::test_nothing_to_hide_keeps_the_fast_kernels"),
    Mutant("linear sums forget the prefix", "attend/linear.py",
        "mask.documents is not None or mask.prefix is not None or", "mask.documents is not None or", SUMS),
    Mutant("flex gives all rows the first one's prefix", "attend/flex.py",
        "prefix[0] if len(prefix) == 1 else prefix[b]", "prefix[0]", FLEX),
    Mutant("flex counts rows without their prefixes", "attend/flex.py",
        "1 if prefix is None else len(prefix)", "1", "tests/attend/test_flex.py::test_blocks_are_those_of_the_mask"),
    Mutant("packed documents read each other", "model/stack.py",
        '"documents": documents,', '"documents": None,', PACKED),
    Mutant("positions run on through packed documents", "model/stack.py",
        "step.positions if documents is None else within(documents, step.positions)", "step.positions", PACKED),
    Mutant("the prefix does not reach the mask", "model/stack.py",
        '"prefix": prefix,', '"prefix": None,', BOTH_WAYS),
    Mutant("linear attention counts a prefix by columns", "model/stack.py",
        '(config.attention_rule == "linear" and prefix is None)', '(config.attention_rule == "linear")',
        f"{READING}::test_padding_changes_nothing_beside_a_prefix"),
    Mutant("a cache takes documents in silence", "model/stack.py",
        "if cache is not None and documents is not None:", "if False:", f"{READING}::test_what_cannot_be_had_is_refused"),
    Mutant("a cache takes a late prefix in silence", "model/stack.py",
        "if cache is not None and cache.length and prefix is not None:", "if False:", f"{READING}::test_what_cannot_be_had_is_refused"),
    Mutant("a document is asked to predict the next one", "train/objective.py",
        "documents[:, 1:] == documents[:, :-1]", "documents[:, 1:] == documents[:, 1:]", ASKED),
    Mutant("tokens of the prefix are asked for", "train/objective.py",
        ">= prefix[:, None])", ">= 0 * prefix[:, None])", ASKED),
    Mutant("a part of a batch loses its prefix", "data/batch.py",
        "self.prefix[rows]", "self.prefix", PARTS),
    Mutant("a part of a batch keeps documents of padding", "data/batch.py",
        "self.documents[rows, here]", "self.documents[rows]", PARTS),

    # corruptions
    Mutant("each step is masked alike", "data/corrupt/coins.py",
        "SeedSequence((seed, step, row)", "SeedSequence((seed, 0, row)", CORRUPT),
    Mutant("each row is masked alike", "data/corrupt/coins.py",
        "SeedSequence((seed, step, row)", "SeedSequence((seed, step, 0)", CORRUPT),
    Mutant("special tokens are masked", "data/corrupt/masked.py",
        "(coins.uniform(len(ids))[unit] < share) & text", "(coins.uniform(len(ids))[unit] < share)",
        f"{CORRUPT}::test_masked_changes_only_what_it_asks_for"),
    Mutant("special tokens are drawn", "data/corrupt/masked.py",
        "coins.below(vocab_size - len(SPECIALS), len(ids)) + len(SPECIALS)", "coins.below(vocab_size, len(ids))",
        f"{CORRUPT}::test_shares_of_masked_tokens"),
    Mutant("79 % of the chosen tokens are hidden", "data/corrupt/masked.py",
        "HIDDEN, REPLACED = 0.8, 0.1", "HIDDEN, REPLACED = 0.79, 0.1", f"{CORRUPT}::test_shares_of_masked_tokens"),
    Mutant("half of a word is masked", "data/corrupt/masked.py",
        "coins.uniform(len(ids))[unit]", "coins.uniform(len(ids))", f"{CORRUPT}::test_whole_words_are_whole"),
    Mutant("a row is asked for nothing", "data/corrupt/masked.py",
        "if not chosen.any() and text.any():", "if False:", f"{CORRUPT}::test_masked_changes_only_what_it_asks_for"),
    Mutant("a mark in a row of marks ends a sentence", "data/corrupt/sentences.py",
        "closes[:-1] & ~closes[1:]", "closes[:-1]", f"{SENTENCES}::test_marks_in_a_row_end_one_sentence"),
    Mutant("a sentence moves to another document", "data/corrupt/sentences.py",
        "for stretch in np.split(ids, np.flatnonzero(special[1:] | special[:-1]) + 1):", "for stretch in [ids]:",
        f"{SENTENCES}::test_nothing_moves_across_documents"),
    Mutant("a sentence is lost", "data/corrupt/sentences.py",
        "pieces += [sentences[place] for", "pieces += [sentences[max(place, 1) % len(sentences)] for",
        f"{SENTENCES}::test_every_order_is_as_likely"),
    Mutant("the target is permuted too", "data/corrupt/batches.py",
        "how.mean_span)[0], ids))", "how.mean_span)[0], shuffled))",
        f"{SENTENCES}::test_the_source_is_permuted_and_the_target_is_not"),
    Mutant("white space behind a token does not end its word", "data/corrupt/word_edges.py",
        "starts[1:] |= self.closes[ids[:-1]] | special[:-1]", "starts[1:] |= special[:-1]",
        f"{CORRUPT}::test_words_begin_behind_white_space"),
    Mutant("words go on across a special token", "data/corrupt/word_edges.py",
        "self.opens[ids] | special", "self.opens[ids]", f"{CORRUPT}::test_special_tokens_part_words"),
    Mutant("hidden spans touch", "data/corrupt/spans.py",
        "coins.some_of(kept + 1, len(lengths)) + lengths", "coins.below(kept + 1, len(lengths)) + lengths",
        f"{CORRUPT}::test_spans_restore_the_text"),
    Mutant("no span is hidden at the end", "data/corrupt/spans.py",
        "coins.some_of(kept + 1, len(lengths))", "coins.some_of(max(kept, len(lengths)), len(lengths))",
        f"{CORRUPT}::test_spans_have_their_mean_and_stand_anywhere"),
    Mutant("special tokens are hidden in spans", "data/corrupt/spans.py",
        "text = ids >= len(SPECIALS)", "text = ids >= 0", f"{CORRUPT}::test_spans_restore_the_text"),
    Mutant("the first span is parted from nothing", "data/corrupt/spans.py",
        "np.flatnonzero(begins[mask])[1:]", "np.flatnonzero(begins[mask])", f"{CORRUPT}::test_spans_restore_the_text"),
    Mutant("noise hides empty spans nowhere", "data/corrupt/noise.py",
        "begins[lengths == 0]", "begins[lengths < 0]", f"{CORRUPT}::test_noise_hides_its_share_in_poisson_spans"),
    Mutant("noise of another mean", "data/corrupt/noise.py",
        "k * math.log(mean) - mean", "k * math.log(mean + 0.2) - mean - 0.2", f"{CORRUPT}::test_noise_hides_its_share_in_poisson_spans"),
    Mutant("the last span passes the share", "data/corrupt/noise.py",
        "drawn[last] -= reached[last] - total", "pass", f"{CORRUPT}::test_poisson_lengths_end_at_their_sum"),
    Mutant("a prefix may be the whole text", "data/corrupt/batches.py",
        "1 + int(coins.below(n - 1, 1)[0])", "1 + int(coins.below(n, 1)[0])", f"{CORRUPT}::test_a_prefix_leaves_something_to_ask_for"),
    Mutant("rows are numbered by each process for itself", "data/corrupt/batches.py",
        "range(len(windows)) if rows is None else rows", "range(len(windows))",
        f"{CORRUPT}::test_a_row_is_drawn_alike_wherever_it_is_made"),
    Mutant("a document begins at <eos>", "data/corrupt/batches.py",
        "(ids == BOS).cumsum()", "(ids == BOS + 1).cumsum()", f"{CORRUPT}::test_batches_by_example"),

    # large vocabularies
    Mutant("logits of a large vocabulary exist whole", "train/objective.py",
        "len(x) * len(head.weight) <= WHOLE", "True", LARGE),
    Mutant("chunks forget the head's map", "train/objective.py",
        "cross_entropy_of_vectors(head.turned(x),", "cross_entropy_of_vectors(x,", LARGE),
    Mutant("chunks take labels that there are none of", "train/objective.py",
        "    check_labels(ids, len(head.weight))\n", "", LARGE),
    Mutant("only the last chunk teaches the matrix", "train/cross_entropy.py",
        "of_weight += logits.mT", "of_weight = logits.mT", f"{CROSS}::test_chunks_give_the_loss_and_gradients_of_whole_logits"),
    Mutant("each chunk asks for the first one's ids", "train/cross_entropy.py",
        "_sums(logits, ids[part], label_smoothing)", "_sums(logits, ids[: len(logits)], label_smoothing)",
        f"{CROSS}::test_chunks_give_the_loss_and_gradients_of_whole_logits"),
    Mutant("the loss's own factor is lost behind chunks", "train/cross_entropy.py",
        "each * grads[0].to(each.dtype)", "each * 1.0", f"{CROSS}::test_chunks_give_the_loss_and_gradients_of_whole_logits"),
    Mutant("chunks are as large as all", "train/cross_entropy.py",
        "CHUNK // max(1, len(weight))", "CHUNK", f"{CROSS}::test_no_more_logits_than_a_chunk_exist"),
    Mutant("chunks are computed in float32 under autocast", "train/cross_entropy.py",
        "if torch.is_autocast_enabled(x.device.type) else x.dtype", "if False else x.dtype",
        f"{CROSS}::test_chunks_under_autocast_narrow_what_whole_logits_narrow"),

    # starting from another run
    Mutant("no weight is taken over", "train/beginning.py",
        "model.load_state_dict(ours | fits)", "pass", f"{BEGIN}::test_a_classifier_begins_with_the_encoder_of_a_masked_model"),
    Mutant("another vocabulary is trained", "train/beginning.py",
        "prepare(recipe, tokenizers_for(recipe.data.layout, before.tokenizers))", "prepare(recipe)",
        f"{BEGIN}::test_a_classifier_begins_with_the_encoder_of_a_masked_model"),
    Mutant("a run keeps its own kind of model", "train/beginning.py",
        "return replace(recipe, model=model, tokenizer", "return replace(recipe, tokenizer",
        f"{BEGIN}::test_its_settings_are_those_of_the_run_before_but_for_its_own"),
    Mutant("a head of other labels is taken over", "train/beginning.py",
        "fresh_head and name", "False and name", f"{BEGIN}::test_other_labels_begin_with_a_fresh_head"),
    Mutant("a run from which nothing fits is taken", "train/beginning.py",
        'if not any(not name.startswith("head.") for name in fits):', "if False:", f"{BEGIN}::test_a_run_of_other_stacks_is_refused"),
    Mutant("any folder is taken for a run", "train/beginning.py",
        'if not (run / "recipe.toml").is_file():', "if False:", f"{BEGIN}::test_what_is_no_run_is_refused"),
]
