"""Checks for stack settings that contradict each other, run when the config is made and not at step 500."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.base.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.nn.stack_config import StackConfig

ADDS_TO_SCORES = ("alibi", "t5", "shaw")
"""Position schemes that need scores to add to."""


def check_input(config: StackConfig) -> None:
    """Refuse `embedding_norm` without a kind of norm. Errors: `ConfigError`."""
    if config.embedding_norm and config.norm == "none":
        raise ConfigError(
            "embedding_norm=True needs a norm; got norm='none'. Set embedding_norm=False, or try norm='layer'."
        )


def check_experts(config: StackConfig) -> None:
    """Refuse a mixture without experts, and expert settings without a mixture. Errors: `ConfigError`."""
    if (config.feed_forward == "experts") != (config.n_experts is not None):
        raise ConfigError(
            f"feed_forward='experts' and n_experts go together; got feed_forward={config.feed_forward!r} and "
            f"n_experts={config.n_experts}. Try feed_forward='experts' with n_experts=8, or feed_forward='plain' "
            "without n_experts."
        )
    for name in ("experts_per_token", "expert", "balance_loss", "router_z_loss"):
        value, default = getattr(config, name), type(config).__dataclass_fields__[name].default
        if config.n_experts is None and value != default:
            raise ConfigError(
                f"{name} belongs to feed_forward='experts'; got {name}={value!r} and "
                f"feed_forward={config.feed_forward!r}. Remove {name}, or try feed_forward='experts' with "
                "n_experts=8."
            )
    for name in ("balance_loss", "router_z_loss"):
        if not 0.0 <= getattr(config, name) < float("inf"):
            raise ConfigError(f"{name} must be at least 0 and finite; got {getattr(config, name)}. Try {name}=0.01.")
    if config.n_experts is not None and config.experts_per_token > config.n_experts:
        raise ConfigError(
            f"experts_per_token ({config.experts_per_token}) must be at most n_experts ({config.n_experts}); "
            f"try experts_per_token={min(2, config.n_experts)}."
        )


def check_residual(config: StackConfig) -> None:
    """Refuse a `residual_scale` out of bounds, and what has no norm or no sum of its own. Errors: `ConfigError`."""
    if not 0.0 < config.residual_scale < float("inf"):
        raise ConfigError(
            f"residual_scale must be above 0 and finite; got {config.residual_scale}. Try residual_scale=1.0, which "
            "scales nothing."
        )
    if config.norm == "none" and config.final_norm:
        raise ConfigError("final_norm=True needs a norm; got norm='none'. Remove final_norm, or try norm='layer'.")
    if config.parallel_branches and (config.norm_placement == "post" or config.residual_scale != 1.0):
        raise ConfigError(
            "parallel_branches=True adds all branches to the block's input, in one sum; got "
            f"norm_placement={config.norm_placement!r} and residual_scale={config.residual_scale}, which would change "
            "it after the first. Try norm_placement='pre' with residual_scale=1.0."
        )


def check_attention_rule(config: StackConfig) -> None:
    """Refuse settings that the attention rule or backend cannot support. Errors: `ConfigError`."""
    if config.attention_rule != "softcap" and config.softcap != type(config).softcap:
        raise ConfigError(
            f"softcap belongs to attention_rule='softcap'; got softcap={config.softcap} with "
            f"attention_rule={config.attention_rule!r}, which does not use it. Remove softcap, or try "
            "attention_rule='softcap'."
        )
    if config.attention_rule == "softcap" and not 0.0 < config.softcap < float("inf"):
        raise ConfigError(
            f"softcap, the bound on the scores, must be above 0 and finite; got {config.softcap}. Try softcap=50.0."
        )
    if config.attention_scale is not None and not 0.0 < config.attention_scale < float("inf"):
        raise ConfigError(
            f"attention_scale must be above 0 and finite; got {config.attention_scale}. Remove it to get 1 / "
            "sqrt(head width), or try attention_scale=1.0."
        )
    if config.attention == "flex" and config.attention_dropout:
        raise ConfigError(
            "attention='flex' does not store attention weights, so it cannot drop any; got "
            f"attention_dropout={config.attention_dropout}. Set attention_dropout=0.0, or try attention='auto'."
        )
    if config.attention_rule != "linear":
        return
    if config.attention_scale is not None:
        raise ConfigError(
            "Linear attention divides its products by their sum, so a scale would cancel out; got "
            f"attention_scale={config.attention_scale}. Remove attention_scale, or try attention_rule='softmax'."
        )
    if config.positions in ADDS_TO_SCORES:
        raise ConfigError(
            f"positions={config.positions!r} adds to attention scores, and linear attention has none. Try "
            "positions='rotary', or attention_rule='softmax'."
        )
    if config.pattern is not None:
        raise ConfigError(
            f"Linear attention reads all keys so far, so it cannot have a sparse pattern; got {config.pattern}. Remove "
            "these settings, or try attention_rule='softmax'."
        )
    if config.attention_dropout:
        raise ConfigError(
            "Linear attention never computes attention weights, so it cannot drop any; got "
            f"attention_dropout={config.attention_dropout}. Set attention_dropout=0.0."
        )
