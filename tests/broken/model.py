"""Broken laws of the model: masks, attention, positions, norms, blocks, caches, initial values."""

import torch
from law import breaks

MASK, BACKENDS = "glassformer.nn.mask", "tests/contract/test_backends.py"
CAUSALITY, PADDING, CACHE = (f"tests/contract/test_{name}.py" for name in ("causality", "padding", "cache"))
SPECIFIED = f"{BACKENDS}::test_reference_is_the_equation"
BLIND = f"{BACKENDS}::test_a_query_that_may_read_nothing_gets_zeros"
ALONE = f"{PADDING}::test_each_row_of_a_padded_batch_gets_what_it_gets_alone"
STEPS = f"{CACHE}::test_steps_give_the_logits_of_one_forward"
INITIAL = "tests/contract/test_initial_loss.py"
NORM, REFERENCE = "glassformer.nn.norm", "glassformer.nn.attention"


# --- what a query may read


@breaks(f"{MASK}:Mask.allowed", "tests/nn/test_mask.py")
def the_mask_is_inverted(original):
    def allowed(self, T, S, device):
        found = original(self, T, S, device)
        return None if found is None else ~found

    return allowed


@breaks(f"{MASK}:Mask.allowed", f"{CAUSALITY}::test_a_changed_token_leaves_earlier_logits_bit_equal")
def everything_may_be_read(original):
    return lambda self, T, S, device: None


@breaks(f"{MASK}:Mask.places", "tests/nn/test_mask.py")
def the_queries_of_a_step_stand_before_its_keys(original):
    def places(self, T, S, device):
        queries, keys = original(self, T, S, device)
        return (queries - (S - T), keys) if self.query_positions is None else (queries, keys)

    return places


@breaks(f"{MASK}:Mask.documents_of_queries", "tests/nn/test_mask.py")
def packed_documents_read_one_another(original):
    def documents_of_queries(self, T, S):
        return torch.atleast_2d(self.documents)[:, :1].expand(-1, T)

    return documents_of_queries


@breaks("glassformer.nn.lowered:Lowered.zero_blind", BLIND)
def a_query_that_may_read_nothing_gets_an_average(original):
    return lambda self, output: output


@breaks(f"{MASK}:Mask.once", "tests/nn/test_mask.py")
def a_learned_bias_is_kept_for_the_next_pass(original):
    return lambda self, place, build: self.kept(place, build)


# --- attention


@breaks(f"{REFERENCE}:dot_products", SPECIFIED)
def scores_are_not_scaled(original):
    return lambda q, k, *, scale: original(q, k, scale=1.0)


@breaks(f"{REFERENCE}:dot_products", f"{BACKENDS}::test_narrow_numbers_stay_near_the_wide_reference {SPECIFIED}")
def scores_lose_their_sign(original):
    return lambda q, k, *, scale: original(q, k, scale=scale).abs()


@breaks(f"{REFERENCE}:softmax_over_readable", SPECIFIED)
def softmax_runs_over_the_queries(original):
    return lambda scores, mask: original(scores.mT, mask).mT if scores.shape[-1] == scores.shape[-2] else scores


@breaks(f"{REFERENCE}:softmax_over_readable", SPECIFIED)
def the_bias_is_left_out(original):
    from dataclasses import replace

    return lambda scores, mask: original(scores, replace(mask, bias=None))


@breaks(f"{REFERENCE}:share_among_heads", SPECIFIED)
def a_group_of_heads_shares_the_keys_of_another(original):
    return lambda x, n_heads: original(x, n_heads).roll(1, 1) if x.shape[1] != n_heads else x


@breaks(f"{REFERENCE}:weighted_sum", SPECIFIED)
def values_are_summed_twice(original):
    return lambda weights, v, mask: 2 * original(weights, v, mask)


@breaks("glassformer.nn.attention:Attention.heads", "tests/parity")
def heads_are_split_without_a_transpose(original):
    return lambda self, x: x.reshape(x.shape[0], -1, x.shape[1], self.d_head)


# --- norms and residuals


@breaks(f"{NORM}:LayerNorm.forward", "tests/nn/test_norm.py")
def layer_norm_keeps_the_mean(original):
    return lambda self, x: original(self, x) + x.mean(-1, keepdim=True)


@breaks(f"{NORM}:RMSNorm.forward", "tests/nn/test_norm.py")
def rms_norm_subtracts_the_mean(original):
    return lambda self, x: original(self, x - x.mean(-1, keepdim=True))


@breaks(
    "glassformer.nn.block:Residual.forward",
    "tests/contract/test_gradcheck.py::test_residual tests/nn/test_branches.py",
)
def a_branch_replaces_the_stream(original):
    return lambda self, x, **more: original(self, x, **more) - x


@breaks("glassformer.nn.feed_forward:GatedFeedForward.inner", "tests/nn/test_branches.py")
def the_gate_is_added(original):
    return lambda self, x: self.activation(self.gate(x)) + self.up(x)


@breaks("glassformer.nn.feed_forward:FeedForward.inner", "tests/nn/test_branches.py")
def the_feed_forward_branch_is_linear(original):
    return lambda self, x: self.up(x)


# --- order


@breaks("glassformer.nn.positions:alibi_slopes", "tests/nn/test_positions.py")
def all_heads_have_the_same_slope(original):
    return lambda n_heads: [original(n_heads)[0]] * n_heads


@breaks("glassformer.nn.positions:rotate", "tests/nn/test_rotary.py")
def rotation_turns_the_other_way(original):
    return lambda x, rotation: original(x, None if rotation is None else rotation._replace(sin=-rotation.sin))


@breaks("glassformer.nn.positions:ROTARY_LAYOUTS", "tests/nn/test_rotary.py")
def pairs_of_neighbours_are_halves(original):
    return {**original, "interleaved": original["half"]}


# --- embedding and head


@breaks("glassformer.nn.embedding:Embedding.forward", "tests/nn/test_ends.py")
def tokens_are_not_scaled(original):
    return lambda self, tokens: original(self, tokens) / self.scale


@breaks("glassformer.nn.embedding:check_tokens", "tests/nn/test_ends.py tests/nn/test_wrong_arguments.py")
def an_id_outside_the_vocabulary_is_not_named(original):
    return lambda tokens, vocab_size: None


@breaks(
    "glassformer.nn.heads:Head.prior",
    "tests/train/test_loss.py tests/train/test_cross_entropy.py tests/nn/test_ends.py",
)
def smoothing_reaches_tokens_that_are_never_written(original):
    return lambda self: None


@breaks("glassformer.nn.initialize:initialize", f"{INITIAL}::test_first_loss_is_ln_v")
def the_head_begins_with_an_opinion(original):
    def initialize(encoder, decoder, head, config):
        original(encoder, decoder, head, config)
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.mul_(10.0)

    return initialize


# --- caches


@breaks("glassformer.nn.cache:Cache.advance", STEPS)
def a_cache_forgets_where_it_is(original):
    def advance(self, step):
        original(self, step)
        self.length = min(self.length, 1)

    return advance


@breaks("glassformer.nn.cache:Cache._select_memories", "tests/nn/test_cache.py tests/decode/test_generate.py")
def rows_read_the_memory_of_another(original):
    return lambda self, rows: None


@breaks("glassformer.nn.cache:Cache.truncate", "tests/nn/test_cache_in_any_order.py")
def tokens_taken_back_are_still_read(original):
    def truncate(self, length):
        self.check_takes_back()
        self.length = min(length, self.length)

    return truncate


@breaks("glassformer.nn.step:whole", ALONE)
def positions_count_padding(original):
    return lambda tokens, keep: original(tokens, keep if keep is None else torch.ones_like(keep))


@breaks(
    "glassformer.nn.step:within",
    "tests/nn/test_transformer.py tests/contract/test_reading.py tests/contract/test_padding.py",
)
def positions_run_on_over_documents(original):
    return lambda documents, keys: keys.clamp(min=0).expand_as(documents)


# --- observing


@breaks("glassformer.nn.observe:watch_attention", "tests/nn/test_transformer.py")
def observing_never_ends(original):
    import contextlib

    @contextlib.contextmanager
    def watch_attention(*arguments, **settings):
        yield original(*arguments, **settings).__enter__()

    return watch_attention
