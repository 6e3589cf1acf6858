"""What the settings of trajectories can be, by name."""

from __future__ import annotations

TRAJECTORIES = "trajectories"
"""The task that learns to act from episodes."""
ACTIONS = "actions"
"""Its layout: returns-to-go, observations and actions in turn, of which the actions are predicted."""
TRAJECTORY_SETTINGS = ("environment", "discount")
"""The settings that only trajectories have."""
ROOMS = "rooms"
"""The environment that is built in, and that makes its own episodes."""
PLACES = 3
"""Places that a step takes in a sequence: return-to-go, observation, action."""
MOST_STEPS = 2**18
"""Most steps that a model reads at once."""
MOST_EPISODES = 100_000
"""Most episodes that an environment makes for one split: about a minute of work, and 1 GB."""
