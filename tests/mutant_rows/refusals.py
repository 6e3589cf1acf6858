"""Faults in what is refused before any work is done, and in what a run says of itself at its start."""

from __future__ import annotations

from mutant_runner import Mutant

TYPED, RUNTIME = "tests/foundation/test_typed.py", "tests/foundation/test_runtime.py"
CON, SAM = "tests/data/test_config.py", "tests/data/test_sampler.py"
ARGUMENTS = "tests/model/test_wrong_arguments.py"
OUT, LIMITS = "tests/cli/test_out.py", "tests/cli/test_limits.py"
ANSWER, USE = "tests/decode/test_answer.py", "tests/train/finished/test_use.py"
PREPARE, PRECISION = "tests/train/sources/test_prepare.py", "tests/train/test_precision.py"
CHOSEN, GOLDEN = "tests/train/run/test_chosen.py", "tests/train/test_golden.py"
OPENMP = "tests/foundation/test_openmp.py"

# fmt: off
ROWS: list[Mutant] = [
    # types and bounds
    Mutant("True is a number", "foundation/typed.py", "if isinstance(value, bool):", "if False:", TYPED),
    Mutant("a whole number is no float", "foundation/typed.py",
        "or (isinstance(value, int) and float in allowed)", "or False", TYPED),
    Mutant("a stack takes any type", "model/stack_config.py",
        "check_types(self)\n        check_counts(self, *COUNTS)", "check_counts(self, *COUNTS)", TYPED),
    Mutant("a norm may divide by nothing", "model/stack_config.py",
        "if not 0.0 < self.norm_eps < float", "if not -9.0 < self.norm_eps < float", "tests/model/test_deepnorm.py"),
    Mutant("a setting that there is not ends in an error of Python", "train/recipe.py",
        "if name not in known:", "if False:", "tests/train/test_override.py::test_override_knows_its_settings"),
    Mutant("a scale that is set counts as missing", "proof/doctor/heads.py",
        '{"d_model": D}, place.config.attention_scale)', '{"d_model": D}, None)',
        "tests/proof/test_doctor_breaks.py::test_healthy_run_has_no_failure[t5-scale]"),
    Mutant("a long number breaks its own message", "foundation/bounds.py",
        "value.bit_length() > 99", "value.bit_length() > 99999", TYPED),
    Mutant("a task may write without end", "data/config.py",
        "if size * self.max_length > MOST_SYMBOLS:", "if False:", CON),
    Mutant("a vocabulary may have any size", "data/config.py",
        'at_most(self, "tokenizer", MOST_ENTRIES, "vocab_size")', "pass", CON),
    Mutant("what a task does not read is ignored", "data/config.py",
        "for name in sorted({*unused(self.task)} & {*given}):", "for name in ():", CON),
    Mutant("evaluate ignores settings of other splits", "cli/evaluate.py",
        "if section == \"data\" and whose in SPLITS and whose != split:", "if False:",
        f"{LIMITS}::test_evaluate_refuses_what_would_change_nothing"),
    # arguments
    Mutant("text is a row of ids", "data/rows.py",
        "not isinstance(value, str | bytes) and len(value) >= 0", "len(value) >= 0", ARGUMENTS),
    Mutant("half an id is an id", "data/rows.py",
        'np.frombuffer(array("q", chain.from_iterable(rows)), np.int64)',
        "np.fromiter(chain.from_iterable(rows), np.int64)", ARGUMENTS),
    Mutant("a model reads a row without a batch", "foundation/tensors.py",
        "given.dtype in IDS and given.ndim == 2", "given.dtype in IDS", ARGUMENTS),
    Mutant("a model reads nothing", "foundation/tensors.py",
        "if given.shape[1] == 0:", "if False:", ARGUMENTS),
    Mutant("a model reads ids that are floats", "foundation/tensors.py",
        "is_ids = given.dtype in IDS and", "is_ids =", ARGUMENTS),
    Mutant("a limit may be half a token", "decode/rows.py", "not is_of(limit, (int,)) or", "", ARGUMENTS),
    # where a run goes
    Mutant("a run may go below a file", "cli/runs.py", "if there != out and not there.is_dir():", "if False:", OUT),
    Mutant("a folder of others is taken for writable", "cli/runs.py",
        "not os.access(there, os.W_OK | os.X_OK)", "False", OUT),
    Mutant("a name is measured in letters", "cli/runs.py",
        "size = len(os.fsencode(text))", "size = len(text)", OUT),
    Mutant("a folder with a recipe is a run", "cli/runs.py",
        'for name in ("recipe.toml", LOCK):', 'for name in ("recipe.toml",):', OUT),
    Mutant("notes among the samples are deleted", "cli/runs.py",
        "if not WRITTEN.fullmatch(place):", 'if "/" not in place and not WRITTEN.fullmatch(place):', OUT),
    Mutant("the folder one is in is deleted", "cli/runs.py",
        "if out.resolve() in (Path.cwd(), *Path.cwd().parents):", "if False:", OUT),
    # lines
    Mutant("a line that is too long costs the answers before it", "train/finished/use.py",
        "    if group:\n        yield group\n    if broken",
        "    if group and broken is None:\n        yield group\n    if broken", USE),
    Mutant("a cut answer names the wrong limit", "decode/answer.py",
        "else Limit(longest, MODELS)", "else Limit(longest, limit.name)", ANSWER),
    Mutant("a pair that was left out shifts the lines", "data/pairs.py",
        "            lines.append(number)", "            lines.append(len(pairs))",
        f"{PREPARE}::test_the_line_is_that_of_the_file_also_where_pairs_were_left_out"),
    Mutant("the recipe's pool is not the sampler's", "train/sources/pairs_data.py",
        "training.pool,\n        lambda", "None,\n        lambda", f"{PREPARE}::test_pool_of_the_sampler_is_the_recipes"),
    # what is chosen
    Mutant("OMP_NUM_THREADS is not asked", "foundation/runtime.py",
        "threads = asked or wished or", "threads = asked or", RUNTIME),
    Mutant("the last of a list of threads counts", "foundation/openmp.py", "int(numbers[0])", "int(numbers[-1])", OPENMP),
    Mutant("OpenMP complains of an empty variable", "foundation/openmp.py", "            del os.environ[name]\n", "            pass\n",
        f"{OPENMP}::test_a_command_speaks_before_openmp_does"),
    Mutant("OpenMP complains before a command does", "cli/main.py", "    check_environment()  # before a verb imports torch\n", "",
        f"{OPENMP}::test_a_command_speaks_before_openmp_does"),
    Mutant("threads of decoding are fixed by training", "train/run/changes.py",
        '"training.track", "decode.threads")', '"training.track")', "tests/train/finished/test_loading.py::test_a_resume_may_give_other_threads"),
    Mutant("bfloat16 is always timed second", "train/precision.py",
        "if number % 2 == 0 else BOTH[::-1]", "", PRECISION),
    Mutant("noise chooses bfloat16", "train/precision.py", "WORTH_IT = 1.15", "WORTH_IT = 1.0", PRECISION),
    Mutant("one reason stands for all lengths", "train/run/chosen.py",
        "picked.setdefault(name, why)", "picked or picked.setdefault(name, why)", CHOSEN),
    Mutant("linear attention picks one thing and says another", "attend/linear.py",
        'return "reference", f"{T} x {S}', 'return "sums", f"{T} x {S}', CHOSEN),
    # golden losses
    Mutant("the optimizer forgets as torch's own does", "train/optim/optimizer.py",
        "[*matrices, *others], lr=rate, betas=betas", "[*matrices, *others], lr=rate, betas=(0.9, 0.999)", GOLDEN),
    Mutant("the warm-up is a step longer", "train/settings.py",
        "self.steps, self.warmup, self.min", "self.steps, self.warmup + 1, self.min", GOLDEN),
    Mutant("the embedding begins a little smaller", "model/initialize.py",
        "embedding=lambda d_model: d_model**-0.5", "embedding=lambda d_model: 0.99 * d_model**-0.5", GOLDEN),
]
# fmt: on
