"""Checks for stack settings that contradict each other, run when the config is made and not at step 500."""

from __future__ import annotations

from typing import TYPE_CHECKING

from glassformer.foundation.errors import ConfigError

if TYPE_CHECKING:
    from glassformer.model.stack_config import StackConfig

ADDS_TO_SCORES = ("alibi", "t5", "shaw")
"""Position schemes that need scores to add to."""


def check_input(config: StackConfig) -> None:
    """Refuse `embedding_norm` without a kind of norm. Errors: `ConfigError`."""
    if config.embedding_norm and config.norm == "none":
        raise ConfigError("embedding_norm=True wants a norm; got norm='none'. Leave it out, or try norm='layer'.")


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
                f"{name} belongs to feed_forward='experts'; got {name}={value!r} and feed_forward="
                f"{config.feed_forward!r}. Leave it out, or try feed_forward='experts' with n_experts=8."
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
    """Refuse a `residual_scale` out of bounds, and `final_norm` without a kind of norm. Errors: `ConfigError`."""
    if not 0.0 < config.residual_scale < float("inf"):
        raise ConfigError(
            f"residual_scale must be above 0 and finite; got {config.residual_scale}. 1.0 scales nothing."
        )
    if config.norm == "none" and config.final_norm:
        raise ConfigError("final_norm=True wants a norm; got norm='none'. Leave final_norm out, or try norm='layer'.")


def check_attention_rule(config: StackConfig) -> None:
    """Refuse settings that the attention rule or backend cannot support. Errors: `ConfigError`."""
    if config.attention_rule != "softcap" and config.softcap != type(config).softcap:
        raise ConfigError(
            f"softcap belongs to attention_rule='softcap'; got softcap={config.softcap} with attention_rule="
            f"{config.attention_rule!r}, which has no use for it. Leave it out, or try attention_rule='softcap'."
        )
    if config.attention_rule == "softcap" and not 0.0 < config.softcap < float("inf"):
        raise ConfigError(
            f"softcap must be above 0 and finite, as scores are kept within it; got {config.softcap}. Try 50.0."
        )
    if config.attention_scale is not None and not 0.0 < config.attention_scale < float("inf"):
        raise ConfigError(
            f"attention_scale must be above 0 and finite; got {config.attention_scale}. Leave it out for "
            "1 / sqrt(head width), or try 1.0."
        )
    if config.attention == "flex" and config.attention_dropout:
        raise ConfigError(
            "attention='flex' forms no weights that could be dropped; got "
            f"attention_dropout={config.attention_dropout}. Set attention_dropout=0.0, or take attention='auto'."
        )
    if config.attention_rule != "linear":
        return
    if config.attention_scale is not None:
        raise ConfigError(
            "Linear attention divides products by their sum, so that a scale of them would change nothing; got "
            f"attention_scale={config.attention_scale}. Leave it out, or take attention_rule='softmax'."
        )
    if config.positions in ADDS_TO_SCORES:
        raise ConfigError(
            f"Linear attention has no scores that positions={config.positions!r} could add to. "
            "Try positions='rotary', or attention_rule='softmax'."
        )
    if config.pattern is not None:
        raise ConfigError(
            f"Linear attention sums over all keys so far and cannot leave some out again; got {config.pattern}. "
            "Take out the pattern, or take attention_rule='softmax'."
        )
    if config.attention_dropout:
        raise ConfigError(
            "Linear attention forms no weights that could be dropped; got "
            f"attention_dropout={config.attention_dropout}. Set attention_dropout=0.0."
        )
