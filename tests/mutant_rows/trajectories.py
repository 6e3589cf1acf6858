"""Faults in what a model learns from episodes, and the tests that notice each."""

from __future__ import annotations

from mutant_runner import Mutant

FILES, ARRAYS = "tests/data/trajectories/test_files.py", "tests/data/trajectories/test_arrays.py"
EPISODES, SPACES = "tests/data/trajectories/test_episodes.py", "tests/data/trajectories/test_spaces.py"
WINDOWS, ROOMS = "tests/data/trajectories/test_windows.py", "tests/data/trajectories/test_rooms.py"
SETTINGS = "tests/data/trajectories/test_settings.py"
DATA, SCORES = "tests/train/sources/test_trajectory_data.py", "tests/train/score/test_actions.py"
RUN, OBJECTIVE, LOSS = (
    f"tests/train/{name}.py" for name in ("sources/test_trajectory_run", "test_objective", "test_loss")
)

# fmt: off
ROWS: list[Mutant] = [
    # files
    Mutant("a cell may hold what Python takes for a number", "data/trajectories/files.py",
        "float(plain) if NUMBER.fullmatch(plain) else", "float(plain) if plain[:1].isdigit() else",
        f"{FILES}::test_a_cell_that_is_no_number_is_named"),
    Mutant("a number too large for 32 bits is read with a warning", "data/trajectories/files.py",
        "LARGEST = float(np.finfo(np.float32).max)", "LARGEST = np.finfo(np.float32).max",
        f"{FILES}::test_a_cell_that_is_no_number_is_named"),
    Mutant("observations stand in the order of the columns", "data/trajectories/files.py",
        "return [names.index(name) for name in wanted]", "return places",
        f"{FILES}::test_columns_of_a_vector_are_in_the_order_of_their_numbers"),
    Mutant("an observation that is missing is not missed", "data/trajectories/files.py",
        "if {*wanted} != {names[place] for place in places}:", "if False:",
        f"{FILES}::test_a_fault_of_a_table_is_named_by_file_and_line"),
    Mutant("an action of one number is the number of an action", "data/trajectories/files.py",
        'whole = "action" in names', "whole = len(columns['action']) == 1",
        f"{FILES}::test_whole_numbers_in_one_column_are_numbers_of_actions"),
    Mutant("episodes of one float are one episode", "data/trajectories/files.py",
        "np.abs(ids.astype(np.float64)) >= MOST_EPISODE", "np.abs(ids.astype(np.float64)) < 0",
        f"{FILES}::test_a_fault_of_a_table_is_named_by_file_and_line"),
    Mutant("an episode comes back", "data/trajectories/files.py", "if number in seen:", "if False:",
        f"{ARRAYS}::test_a_fault_of_an_array_is_named"),
    Mutant("all arrays of a file are opened", "data/trajectories/files.py",
        'for name in file.files if name in (*NEEDED, "episode", *ENDS)]', "for name in file.files]",
        f"{ARRAYS}::test_what_is_not_needed_is_told_and_not_read"),
    Mutant("an array alone ends in an error of Python", "data/trajectories/files.py",
        "if not isinstance(file, NpzFile):", "if False:", f"{ARRAYS}::test_what_is_no_file_of_arrays_is_refused"),
    Mutant("an array of objects is called damage", "data/trajectories/files.py",
        "    except DataError:\n        raise\n", "", f"{ARRAYS}::test_a_fault_of_an_array_is_named"),
    # episodes and their scales
    Mutant("a return-to-go is discounted once", "data/trajectories/episodes.py",
        "found[at] += discount * found[at + 1]", "found[at] += found[at + 1]", EPISODES),
    Mutant("a part of the episodes has the edges of the whole", "data/trajectories/episodes.py",
        "edges = self.edges[first : last + 1] - self.edges[first]", "edges = self.edges[first : last + 1]", EPISODES),
    Mutant("scales may be of different lengths", "data/trajectories/spaces.py",
        "len(acted) > 1 or", "False or", f"{SPACES}::test_scales_that_are_none_are_refused"),
    Mutant("a deviation may be 0", "data/trajectories/spaces.py",
        "cast(\"float\", each) > least for", "True for", f"{SPACES}::test_scales_that_are_none_are_refused"),
    Mutant("true is a scale", "data/trajectories/spaces.py",
        " and not isinstance(value, bool)", "", f"{SPACES}::test_scales_that_are_none_are_refused"),
    # windows
    Mutant("an action is read before it is predicted", "data/trajectories/windows.py",
        "found[..., 2, seen.stop : seen.stop + spaces.n_acted]", "found[..., 1:, seen.stop : seen.stop + spaces.n_acted]",
        f"{WINDOWS}::test_an_action_is_read_where_it_is_done_and_nowhere_before"),
    Mutant("padding of a window is filled with its first step", "data/trajectories/windows.py",
        "    read[~real] = 0.0\n", "", f"{WINDOWS}::test_each_row_is_what_its_window_gives_alone"),
    Mutant("an action is predicted where it is read", "data/trajectories/windows.py",
        "asked[..., ASKED] = real", "asked[..., 2] = real", f"{WINDOWS}::test_a_window_by_hand"),
    Mutant("padding of a window is predicted", "data/trajectories/windows.py",
        "asked[..., ASKED] = real", "asked[..., ASKED] = True",
        f"{WINDOWS}::test_each_row_is_what_its_window_gives_alone"),
    Mutant("a window begins in the episode before", "train/sources/trajectory_data.py",
        "np.minimum(episodes.times[lasts] + 1, self.recipe.data.window)", "np.minimum(lasts + 1, self.recipe.data.window)",
        f"{DATA}::test_a_window_ends_at_a_step_and_reaches_back_to_the_beginning_of_its_episode"),
    Mutant("the last step is never drawn", "train/sources/trajectory_data.py",
        "% np.uint64(episodes.n_steps))", "% np.uint64(episodes.n_steps - 1))",
        f"{DATA}::test_windows_end_at_all_steps_equally_often"),
    Mutant("all steps draw the same windows", "train/sources/trajectory_data.py",
        "(self.recipe.training.seed, step)", "(self.recipe.training.seed, 0)",
        f"{DATA}::test_batches_are_a_function_of_recipe_and_step"),
    Mutant("a short end of an episode is not scored", "train/sources/trajectory_data.py",
        "np.minimum(last - firsts, window)", "np.minimum(last - firsts, window) // window * window",
        f"{DATA}::test_windows_of_an_evaluation_hold_each_step_once"),
    Mutant("a run that starts from another measures its own scales", "train/sources/trajectory_data.py",
        "spaces if given is None else given.reaching(spaces.scales)", "spaces",
        f"{DATA}::test_scales_are_those_of_the_training_episodes_or_those_given"),
    Mutant("returns of a split that is scored are not discounted", "train/sources/trajectory_data.py",
        "TrajectorySplit(source, spaces, source.episodes.returns_to_go(recipe.data.discount))",
        "TrajectorySplit(source, spaces, source.episodes.returns_to_go())",
        f"{DATA}::test_returns_to_go_are_discounted_as_the_recipe_says"),
    Mutant("a text is read with the spaces of a run", "train/run/beginning.py",
        "if recipe.data.layout != ACTIONS and theirs.data.layout == ACTIONS:", "if False:",
        f"{RUN}::test_a_run_on_texts_does_not_start_from_one_on_trajectories"),
    # scores, and numbers at each place
    Mutant("a score of vectors is a mean over steps", "train/score/actions.py",
        "wanted.numel(), off.item()", "len(wanted), off.item()", f"{SCORES}::test_every_step_is_scored_as_if_it_were_alone"),
    Mutant("an error is in deviations", "train/score/actions.py",
        "((given - wanted).abs() * spread).sum()", "(given - wanted).abs().sum()",
        f"{SCORES}::test_an_error_is_in_the_unit_of_the_data"),
    Mutant("a place with several numbers is one target", "train/objective.py",
        "int(self.keep.sum()) * self.ids.shape[2:].numel()", "int(self.keep.sum())",
        f"{OBJECTIVE}::test_targets_are_counted"),
    Mutant("numbers of padding are learned", "train/objective.py",
        "(batch.label_keep if batch.label_keep is not None else batch.keep) if in_places", "batch.label_keep if in_places",
        f"{LOSS}::test_padded_batch_is_the_sum_of_its_rows"),
    # the world of rooms, and what is held out
    Mutant("a wall can be walked through", "data/trajectories/rooms.py",
        'return cell if PLAN[there.row][there.column] == "#" else there', "return there", ROOMS),
    Mutant("splits begin between the same cells", "data/trajectories/rooms.py",
        "if start != goal and split == split_of(", "if start != goal and split != split_of(",
        f"{ROOMS}::test_no_split_begins_where_another_does"),
    Mutant("the dev episodes are trained on", "data/trajectories/read.py",
        "episodes.part(0, kept)", "episodes.part(0, len(episodes))",
        f"{SETTINGS}::test_the_end_of_the_training_file_is_held_out"),
    Mutant("dev episodes that are trained on are not told", "train/sources/trajectory_data.py",
        "if known := sum(each in seen for", "if known := sum(False and each in seen for",
        "tests/train/sources/test_trajectory_data.py::test_dev_episodes_that_are_trained_on_are_told"),
]
# fmt: on
