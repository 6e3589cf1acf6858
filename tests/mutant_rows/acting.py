"""Faults in acting: what a model of trajectories reads, does and is told in an environment."""

from __future__ import annotations

from mutant_runner import Mutant

ROLLOUT = "tests/control/test_rollout.py"
READS = f"{ROLLOUT}::test_it_reads_what_training_would_read_of_its_own_episode"
WORLD = "tests/control/test_world.py"
THEIRS = "tests/parity/test_decision_transformer.py"
COMMAND = "tests/cli/test_rollout.py"

# fmt: off
ROWS: list[Mutant] = [
    Mutant("what is asked for stays, whatever was got", "control/rollout.py",
        "(each.to_go[-1] - each.rewards[-1]) / agent.discount", "each.to_go[-1]", READS),
    Mutant("a rollout forgets the discount", "control/rollout.py",
        "(each.to_go[-1] - each.rewards[-1]) / agent.discount", "(each.to_go[-1] - each.rewards[-1])", READS),
    Mutant("an agent reads one step less than it was trained to", "control/rollout.py",
        "max(0, step + 1 - agent.window)", "max(0, step + 1 - max(1, agent.window - 1))", READS),
    Mutant("time begins anew with each window", "control/rollout.py",
        "np.arange(first, step + 1)", "np.arange(step + 1 - first)", READS),
    Mutant("the action is read where the return-to-go stands", "control/rollout.py",
        "[:, : ASKED - PLACES + 1]", "[:, : ASKED - PLACES]", READS),
    Mutant("draws do not follow the seed", "control/rollout.py",
        "numbers(each.seed, 0, block)[place]", "float(np.random.random())", f"{ROLLOUT}::test_draws_depend_on_the_seed_and_follow_the_probabilities"),
    Mutant("those beside it share a draw", "control/rollout.py",
        "numbers(each.seed, 0, block)[place] for each in episodes", "numbers(len(episodes), 0, block)[place] for each in episodes",
        f"{ROLLOUT}::test_an_episode_does_not_depend_on_those_beside_it"),
    Mutant("the temperature is ignored", "control/rollout.py",
        "if agent.temperature == 0:", "if True:", f"{ROLLOUT}::test_draws_depend_on_the_seed_and_follow_the_probabilities"),
    Mutant("worlds are left open", "control/rollout.py",
        "            if each.ended or cut or step + 1 == most_steps:\n                world.close()\n",
        "            if each.ended or cut or step + 1 == most_steps:\n                pass\n",
        f"{ROLLOUT}::test_most_steps_end_an_episode_and_every_world_is_closed"),
    Mutant("only as many are played as fit side by side", "control/rollout.py",
        "for first in range(0, len(wanted), AT_ONCE):", "for first in (0,):",
        f"{ROLLOUT}::test_more_than_fit_side_by_side_are_all_played"),
    Mutant("unit actions are mapped to half the bounds", "control/world.py",
        "(action + 1) / 2 * (self.high - self.low)", "(action + 1) / 4 * (self.high - self.low)", f"{WORLD}::test_actions_are_kept_within_bounds_and_unit_actions_mapped_to_them"),
    Mutant("actions leave the bounds", "control/world.py",
        "return np.clip(action, self.low, self.high).astype(np.float32)", "return action.astype(np.float32)",
        f"{WORLD}::test_actions_are_kept_within_bounds_and_unit_actions_mapped_to_them"),
    Mutant("numbered actions begin at 0 everywhere", "control/world.py",
        "action + self.first_action if isinstance(action, int) else action", "action",
        f"{WORLD}::test_observations_are_flat_and_actions_may_begin_elsewhere"),
    Mutant("a model may act anywhere", "control/world.py",
        "if world.n_observed != spaces.n_observed or not (acts == ours or knows_less):", "if False:",
        f"{WORLD}::test_the_environment_must_be_that_of_the_episodes"),
    Mutant("a step knows its own action", "data/trajectories/windows.py",
        "    found[..., 2, seen.stop", "    found[..., ASKED, seen.stop", THEIRS),
    Mutant("time counts from the beginning of a window", "data/trajectories/windows.py",
        "waves(times)[..., None, :]", "waves(times - times[..., :1])[..., None, :]", THEIRS),
    Mutant("another environment is kept with new episodes", "train/recipe.py",
        'if chosen.get("data.train") is not None else [])', "if False else [])", f"{COMMAND}::test_mistakes_get_one_message"),
    Mutant("what is asked for is not read", "data/trajectories/windows.py",
        "found[..., 0, PLACES] = to_go / scales.to_go", "found[..., 0, PLACES] = 0.0", "tests/learn/test_acting.py"),
    Mutant("only the first of all actions is learned", "data/trajectories/windows.py",
        "asked[..., ASKED] = real", "asked[:, :1, ASKED] = real[:, :1]", "tests/learn/test_acting.py"),
]
# fmt: on
