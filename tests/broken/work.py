"""Broken laws of data, training, decoding, storing and serving."""

import torch
from law import breaks

LOOP, OBJECTIVE = "glassformer.train.loop", "glassformer.train.objective"
RESUME = "tests/train/run/test_resume.py"
STORE = "tests/store/test_checkpoint.py tests/store/test_folders.py"


# --- data


@breaks("glassformer.data.synthetic:split_of", "tests/data/test_synthetic.py")
def test_examples_are_trained_on(original):
    return lambda text: "train"


@breaks("glassformer.data.batch:pad", "tests/data/test_batch.py")
def padding_is_not_marked(original):
    return lambda sequences: (original(sequences)[0], None)


@breaks("glassformer.data.sampler:BatchSampler.epoch", "tests/data/test_sampler.py")
def every_epoch_has_the_same_order(original):
    return lambda self, epoch: original(self, 0)


@breaks("glassformer.data.sampler:BatchSampler._cut", "tests/data/test_sampler.py")
def the_last_batch_of_an_epoch_is_lost(original):
    return lambda self, order: original(self, order)[:-1] or original(self, order)


@breaks("glassformer.data.json_lines:seems_json", "tests/data/test_json_lines.py")
def json_is_learned_as_text(original):
    return lambda text, *, cut=False: ""


REGRESSION = "tests/train/tasks/test_regression.py"


@breaks("glassformer.data.regression:Scale.standardised", f"{REGRESSION}::test_the_units_of_the_data_do_not_matter")
def features_keep_their_units(original):
    return lambda self, rows: rows


@breaks("glassformer.train.tasks.regression:number_scores", f"{REGRESSION}::test_scores_as_written_out")
def r2_is_measured_against_the_predictions(original):
    return lambda given, wanted, names: original(wanted, given, names)


# --- objectives and loss


@breaks(f"{OBJECTIVE}:next_token", "tests/train/test_objective.py")
def each_position_predicts_itself(original):
    def next_token(batch):
        requested = original(batch)
        return requested._replace(ids=batch.tokens[:, :-1])

    return next_token


@breaks(f"{OBJECTIVE}:next_token", "tests/train/test_objective.py tests/train/test_loss.py")
def padding_is_predicted(original):
    return lambda batch: original(batch)._replace(keep=None)


@breaks(f"{OBJECTIVE}:masked_token", "tests/train/test_objective.py")
def tokens_that_can_be_read_are_predicted(original):
    return lambda batch: original(batch)._replace(keep=batch.keep)


@breaks(f"{OBJECTIVE}:without", "tests/train/test_objective.py")
def tokens_that_are_never_written_are_targets(original):
    return lambda objective, silent: objective


@breaks("glassformer.train.cross_entropy:cross_entropy", "tests/train/test_cross_entropy.py")
def labels_are_never_smoothed(original):
    def cross_entropy(logits, ids, label_smoothing=0.0, *rest, **more):
        return original(logits, ids, 0.0, *rest, **more)

    return cross_entropy


@breaks("glassformer.train.precision:LossScale.__init__", "tests/train/test_loss_scale.py")
def gradients_stay_scaled(original):
    def made(self, device):
        original(self, device)
        divide = self.scaler.unscale_

        def unscale(optimizer):
            divide(optimizer)
            for group in optimizer.param_groups:
                for parameter in group["params"]:
                    parameter.grad.mul_(self.scale)

        self.scaler.unscale_ = unscale

    return made


# --- one update


@breaks("glassformer.base.runtime:stream_of", f"tests/train/test_loop.py {RESUME}")
def dropout_falls_alike_in_every_step(original):
    return lambda *parts: original(parts[0])


@breaks("glassformer.base.runtime:seeded", "tests/train/test_loop.py")
def training_leaves_torchs_generator_moved(original):
    import contextlib

    @contextlib.contextmanager
    def seeded(*parts, device):
        torch.manual_seed(len(parts))
        yield

    return seeded


@breaks(f"{LOOP}:count_targets", "tests/train/test_loop.py")
def the_mean_is_over_rows(original):
    return lambda batch, objective, step: original(batch, objective, step) and len(batch.tokens)


@breaks("glassformer.train.schedule:Schedule.__call__", "tests/train/test_schedule.py")
def there_is_no_warm_up(original):
    return lambda self, step: original(self, max(step, self.warmup))


@breaks("glassformer.train.optimizer:Average.update", "tests/train/test_optimizer.py")
def the_average_is_the_last_weights(original):
    return lambda self: None


@breaks("glassformer.train.muon:scaled", "tests/train/test_orthogonal.py")
def a_matrix_is_made_orthogonal_at_any_size(original):
    return lambda x: x


# --- a run


@breaks("glassformer.train.run.resumable:Standing.to_state", RESUME)
def a_resumed_run_begins_its_data_anew(original):
    return lambda self: {**original(self), "step": 0}


@breaks("glassformer.data.sampler:BatchSampler.stream", RESUME)
def a_resumed_run_reads_other_batches(original):
    return lambda self, start_step=0: original(self, 0)


@breaks("glassformer.train.sample_lengths:joined", "tests/train/test_sample_lengths.py")
def what_was_trained_on_before_does_not_count(original):
    return lambda one, other: other


# --- storing


@breaks("glassformer.store.folders:sha256", STORE)
def a_flipped_bit_is_not_seen(original):
    return lambda path: "0" * 64


@breaks("glassformer.store.folders:check", STORE)
def a_file_that_lacks_bytes_is_read(original):
    from glassformer.store.folders import read_manifest

    return lambda folder, *, read=None, hashed=True: read_manifest(folder)


@breaks("glassformer.store.files:sync_file", "tests/faults/test_checkpoint_faults.py tests/store/test_files.py")
def files_are_not_synced(original):
    return lambda path: None


@breaks("glassformer.store.weights:refuse_non_finite", "tests/store/test_checkpoint.py")
def weights_that_are_no_numbers_are_kept(original):
    return lambda tensors, what: None


@breaks("glassformer.store.folders:RunLock.take", "tests/store/test_lock.py")
def two_processes_train_one_run(original):
    return lambda self: None


# --- decoding


@breaks("glassformer.decode.filters:top_k", "tests/decode/test_filters.py")
def top_k_keeps_one_too_many(original):
    return lambda k: original(k + 1)


@breaks("glassformer.decode.filters:top_p", "tests/decode/test_filters.py")
def top_p_keeps_everything(original):
    return lambda p: original(1.0)


@breaks("glassformer.decode.filters:temperature", "tests/decode/test_filters.py")
def temperature_is_turned_over(original):
    return lambda value: original(1 / value)


@breaks("glassformer.decode.choose:greedy", "tests/decode/test_generate.py")
def the_second_likeliest_token_is_written(original):
    return lambda logits, context: logits.topk(2).indices[:, 1]


@breaks("glassformer.decode.beam:length_penalty", "tests/decode/test_beam.py")
def long_answers_pay_nothing(original):
    return lambda alpha: original(0.0)


@breaks("glassformer.decode.speculative:settle", "tests/decode/test_speculative.py")
def every_guess_is_taken(original):
    return lambda guessed, place, p, stays, drawn: (guessed.ids[place], True)


@breaks("glassformer.decode.filters:no_repeat_ngram", "tests/decode/test_repeats.py tests/decode/test_filters.py")
def ngrams_repeat(original):
    return lambda n: original(n + 1)


@breaks("glassformer.cli.lines:refuse_json", "tests/cli/test_input_lines.py")
def braces_and_keys_are_translated(original):
    return lambda line, place: None


# --- serving and the explorer


@breaks("glassformer.serve.http:is_loopback", "tests/serve/test_refusals.py")
def a_stranger_is_taken_for_this_machine(original):
    return lambda *host: True


# --- checking a learner's code


@breaks(
    "glassformer.proof.check.heads:Heads.causal", "tests/proof/test_check_planted.py::test_right_part_is_not_blamed"
)
def attention_with_a_mask_of_its_own_is_blamed(original):
    return lambda self: False


@breaks("glassformer.proof.check.block:adopt", "tests/proof/test_check_planted.py::test_mistake_in_a_part_is_named")
def layers_in_a_plain_list_are_not_noticed(original):
    return lambda module: []
