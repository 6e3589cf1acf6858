"""Faults in the model and in the lens, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

CACHE, PADDING, LOSS = (f"tests/contract/test_{law}.py" for law in ("cache", "padding", "initial_loss"))
STEPS = f"{CACHE}::test_steps_give_the_logits_of_one_forward"
ALONE = f"{PADDING}::test_each_row_of_a_padded_batch_gets_what_it_gets_alone"
POSITIONS, TORCH = "tests/parts/test_positions.py", "tests/parity/test_torch_transformer.py"
OBSERVE = "tests/lens/test_observe.py"
CONFIG, COUNT, MODEL = (f"tests/model/test_{part}.py" for part in ("config", "count", "transformer"))

# One row on two to four lines; the layout is a table's, not code's.
# fmt: off
ROWS: list[Mutant] = [
    # configurations
    Mutant("the heads offered do not divide", "model/config.py",
        "try n_heads={nearest_divisor(self.d_model, self.n_heads)}", "try n_heads={self.n_heads - 1}", CONFIG),
    Mutant("the width offered is no multiple", "model/config.py",
        "return max(of, round(value / of) * of)", "return max(of, round(value / of) * of + 1)", CONFIG),
    Mutant("the groups offered do not divide", "model/config.py",
        "try n_kv_heads={nearest_divisor(self.n_heads, self.kv_heads)}", "try n_kv_heads={self.kv_heads + 1}", CONFIG),
    Mutant("unknown keys are dropped", "model/config.py",
        'raise ConfigError(f"{where}.{key} is not a setting. {suggestion(key, names)}")',
        "values = {k: v for k, v in values.items() if k in names}", CONFIG),
    Mutant("a setting is lost on the way to a file", "model/config.py",
        "return asdict(self)", 'return {**asdict(self), "head_bias": False}', CONFIG),
    Mutant("a decoder reads ahead", "model/config.py",
        "if self.decoder and not self.decoder.causal:", "if False:",
        f"{CONFIG}::test_a_decoder_is_causal_whatever_it_says"),
    Mutant("dropout of 1 is taken", "model/config.py",
        "if not 0.0 <= getattr(self, name) < 1.0:", "if not 0.0 <= getattr(self, name) <= 1.0:", CONFIG),
    Mutant("a source vocabulary of nothing is taken for none", "model/config.py",
        'for name in ("vocab_size", "source_vocab_size"):', 'for name in ("vocab_size",):', CONFIG),
    Mutant("one stack may have two vocabularies", "model/config.py",
        "if not self.one_vocabulary and not (self.encoder and self.decoder):", "if False:", CONFIG),

    # the rest
    Mutant("tied tensors count twice", "model/count.py",
        "total = sum(parameter.numel() for parameter in model.parameters())",
        "total = sum(parameter.numel() for _, parameter in named)", COUNT),
    Mutant("a tied head scores its own token", "model/initialize.py",
        "min(1.0, 1.0 / (D * laws.embedding(D)))", "1.0", LOSS),
    Mutant("a head of its own starts loud", "model/initialize.py",
        "std=HEAD / D**0.5", "std=1 / D**0.5", LOSS),
    Mutant("layers start alike", "model/initialize.py",
        "                laws.linear(module.weight)",
        "                _ = nn.init.constant_(module.weight, 0.01)", f"{LOSS}::test_no_two_matrices_start_alike"),
    Mutant("biases start anywhere", "model/initialize.py",
        "nn.init.zeros_(bias)", "nn.init.normal_(bias)", f"{LOSS}::test_vectors_start_as_the_table_says"),
    Mutant("blocks are one block", "model/stack.py",
        "nn.ModuleList(build_block(config, reads_memory=reads_memory, dropped=each) for each in chances)",
        "nn.ModuleList([build_block(config, reads_memory=reads_memory)] * config.n_layers)",
        f"{LOSS}::test_no_two_matrices_start_alike"),
    Mutant("pre-norm ends without a norm", "model/stack.py",
        'config.norm_placement != "post"', 'config.norm_placement == "post"', f"{MODEL}::test_names_in_the_state_dict"),
    Mutant("embeddings are scaled by the width", "model/stack.py",
        "math.sqrt(config.d_model)", "config.d_model", f"{MODEL}::test_embeddings_are_scaled_by_the_root_of_the_width"),
    Mutant("positions count padding", "model/stack.py",
        "positions = keep.long().cumsum(1) - 1", "positions = columns.expand(keep.shape)", ALONE),
    Mutant("positions are not added", "model/stack.py",
        "x = x + added", "pass", f"{POSITIONS}::test_order_matters_unless_there_are_no_positions"),
    Mutant("everything has positions", "model/stack.py",
        "        x = self.dropout(x)\n", "        x = self.dropout(x * (1 + step.positions[..., None]))\n",
        f"{POSITIONS}::test_order_matters_unless_there_are_no_positions"),
    Mutant("the last norm is left out", "model/stack.py",
        "return self.norm(x)", "return x", f"{TORCH}::test_stack_equals_encoder"),
    Mutant("the window is forgotten where rows differ", "model/stack.py",
        "            window=config.window,\n            bias=bias,", "            bias=bias,", STEPS),
    Mutant("too long a sequence is taken", "model/stack.py",
        "if longest > limit:", "if longest > limit + 1:", f"{MODEL}::test_longer_than_max_len_is_refused_not_cut"),
    Mutant("max_len counts padding", "model/stack.py",
        "longest = int(step.keys.max()) + 1", "longest = columns", f"{MODEL}::test_max_len_counts_tokens_not_columns"),
    Mutant("a keep of numbers is taken by the model", "model/stack.py",
        "        check_keep(keep)\n", "", f"{MODEL}::test_a_keep_of_numbers_is_refused"),
    Mutant("a name in the state dict changes", "model/transformer.py",
        "self.head = Head(", "self.lm_head = self.head = Head(", f"{MODEL}::test_names_in_the_state_dict"),
    Mutant("the decoder reads the padding of the source", "model/transformer.py",
        "memory=memory, memory_keep=source_keep, cache=cache)", "memory=memory, cache=cache)",
        f"{TORCH}::test_model_equals_transformer"),
    Mutant("the encoder reads padding", "model/transformer.py",
        "memory = self.encoder(source, keep=source_keep)", "memory = self.encoder(source)",
        f"{TORCH}::test_model_equals_transformer"),
    Mutant("of source and memory one is ignored", "model/transformer.py",
        "(source is None) == (memory is None)", "source is None and memory is None",
        f"{MODEL}::test_sources_where_they_belong"),
    Mutant("one vocabulary has two embeddings", "model/transformer.py",
        "self.encoder.embedding.weight = self.decoder.embedding.weight", "pass",
        f"{MODEL}::test_which_matrices_are_one"),
    Mutant("a model that reads both ways has a cache", "model/transformer.py",
        "if not self.config.stack.causal:", "if False:", f"{MODEL}::test_a_model_that_reads_both_ways_has_no_cache"),

    # lens
    Mutant("observing never ends", "lens/observe.py",
        "            attention.attend = before[name]", "            _ = before[name]",
        f"{OBSERVE}::test_logits_are_bit_equal_and_the_model_as_before"),
    Mutant("observing does not end in an exception", "lens/observe.py",
        "        yield seen\n    finally:", "        yield seen\n    except KeyError:\n        raise\n    else:",
        OBSERVE),
    Mutant("observing changes the last bits", "lens/observe.py",
        "return attend(q, k, v, mask, scale=scale, dropout=dropout)",
        "return attend(q, k, v, mask, scale=scale, dropout=dropout) * (1 + 1e-7)", OBSERVE),
    Mutant("weights are shown as if nothing were hidden", "lens/observe.py",
        "attention_weights(q, k, mask, scale=scale)", "attention_weights(q, k, Mask(), scale=scale)",
        f"{OBSERVE}::test_weights"),
    Mutant("weights are shown on another scale", "lens/observe.py",
        "attention_weights(q, k, mask, scale=scale)", "attention_weights(q, k, mask, scale=1.0)",
        f"{OBSERVE}::test_weights_are_those_of_multihead_attention"),
    Mutant("weights hold on to their graph", "lens/observe.py",
        "with torch.no_grad():", "with torch.enable_grad():", f"{OBSERVE}::test_weights"),
]
# fmt: on
