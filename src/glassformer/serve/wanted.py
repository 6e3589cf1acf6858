"""Parsing request bodies: their fields, checked, become a `Wanted`; the model is not involved yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from glassformer.decode.choose.sampling import Sampling
from glassformer.foundation.errors import ConfigError
from glassformer.serve.fields import Fields, shown
from glassformer.serve.grammar import Wish, wish_of
from glassformer.serve.refusal import RefusalError
from glassformer.serve.settings import ServeConfig

DRAWN = {
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"),
    *("top_k", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram", "min_new_tokens"),
}
"""Sampling fields: the first line is OpenAI's, the second ours."""
COMPLETION = DRAWN | {
    *("model", "prompt", "max_tokens", "n", "best_of", "stream", "stream_options", "stop", "logprobs", "echo"),
    *("suffix", "logit_bias", "user", "response_format", "structured_outputs"),
}
TRANSLATION = DRAWN | {"model", "text", "max_tokens", "stop", "user", "response_format", "structured_outputs"}
USUAL_TOKENS = 16
"""The default of max_tokens for a completion, as in OpenAI's API."""
MOST_STOPS, LONGEST_STOP, MOST_BIASES, MOST_LOGPROBS = 16, 1_000, 1_024, 5


@dataclass(frozen=True)
class Wanted:
    """One request with checked fields."""

    prompts: list[str | list[int]]
    sampling: Sampling
    """Without the seed."""
    seed: int | None
    """None: a new random seed each time."""
    max_tokens: int | None
    n: int = 1
    stops: tuple[str, ...] = ()
    biases: Mapping[int, float] | None = None
    logprobs: int | None = None
    echo: bool = False
    stream: bool = False
    usage: bool = False
    """Whether a stream ends with the token counts."""
    wish: Wish | None = None
    """The grammar that each text must follow."""
    field: str = "prompt"
    """The name of the request field that held the prompts."""


def completion(body: Mapping[str, Any], model: str, size: int, config: ServeConfig) -> Wanted:
    """Parse the body of `POST /v1/completions` for a vocabulary of `size` tokens. Errors: `RefusalError`."""
    fields = Fields(body, COMPLETION)
    check_model(fields, model)
    fields.text("user")
    if fields.text("suffix"):
        fields.refuse("suffix", "This model continues a prompt and cannot use a suffix. Remove suffix.")
    prompts = prompts_of(fields, config.rows)
    n = fields.whole("n", 1, config.rows, 1)
    if fields.whole("best_of", 1, config.rows, n) != n:
        fields.refuse(
            "best_of", f"best_of must be n={n}: this server returns every text that it writes. Remove best_of."
        )
    if len(prompts) * n > config.rows:
        fields.refuse("n", f"At most {config.rows} texts are written together; got {len(prompts)} prompts and n={n}.")
    logprobs = fields.whole("logprobs", 0, MOST_LOGPROBS, 0) if fields.given("logprobs") else None
    echo = fields.switch("echo")
    if echo and logprobs is not None:
        fields.refuse("echo", "This server has no logprobs for the tokens of a prompt. Remove echo or logprobs.")
    stream = fields.switch("stream")
    return Wanted(
        prompts,
        *sampling_of(fields, usual_temperature=1.0),
        fields.whole("max_tokens", 1, config.max_new_tokens, 0) or None,
        n,
        stops_of(fields),
        fields.biases("logit_bias", size, MOST_BIASES),
        logprobs,
        echo,
        stream,
        usage_of(fields, stream),
        wish_of(fields),
    )


def translation(body: Mapping[str, Any], model: str, config: ServeConfig) -> Wanted:
    """Parse the body of `POST /v1/translate`: one answer for each text. Errors: `RefusalError`."""
    fields = Fields(body, TRANSLATION)
    check_model(fields, model)
    fields.text("user")
    texts = fields.texts("text", config.rows)
    if not texts:
        fields.refuse("text", "text must be a string or a list of at least one: the sources to answer. Give it.")
    most = fields.whole("max_tokens", 1, config.max_new_tokens, 0) or None
    drawn = sampling_of(fields, usual_temperature=0.0)
    wish = wish_of(fields)
    return Wanted(cast("list[str | list[int]]", texts), *drawn, most, stops=stops_of(fields), wish=wish, field="text")


def check_model(fields: Fields, model: str) -> None:
    """Refuse any model name but that of the served model. Errors: `RefusalError` 404."""
    asked = fields.text("model")
    if asked is not None and asked != model:
        message = f"This server has no model {asked[:60]!r}; its only model is {model!r}."
        raise RefusalError(404, message, param="model", code="model_not_found")


def prompts_of(fields: Fields, most: int) -> list[str | list[int]]:
    """Return the prompts as a list; the field holds a text, a list of token ids, or a list of either."""
    value: Any = fields.body.get("prompt")
    if isinstance(value, str):
        return [value]
    values = cast("list[object]", value if isinstance(value, list) else [])
    if is_ids(values):
        return [value]
    if not values or not all(isinstance(each, str) or is_ids(each) for each in values):
        kinds = "a text, a list of token ids, or a list of texts or of lists of ids"
        fields.refuse("prompt", f"prompt must be {kinds}; got {'nothing' if value is None else shown(value)}.")
    if len(values) > most:
        fields.refuse("prompt", f"A request may have at most {most} prompts; got {len(values)}.")
    return value


def is_ids(value: object) -> bool:
    """Whether a value is a list of at least one id."""
    return isinstance(value, list) and bool(value) and all(is_id(each) for each in cast("list[object]", value))


def is_id(value: object) -> bool:
    """Whether a value may be a token id."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31


def stops_of(fields: Fields) -> tuple[str, ...]:
    """Return the stop texts; an empty one is refused, as it would end a text at once."""
    stops = fields.texts("stop", MOST_STOPS)
    if any(not 0 < len(each) <= LONGEST_STOP for each in stops):
        fields.refuse("stop", f"Each text of stop must have from 1 to {LONGEST_STOP} characters.")
    return tuple(stops)


def sampling_of(fields: Fields, usual_temperature: float) -> tuple[Sampling, int | None]:
    """Return the sampling settings, and the seed if one is given.

    With temperature 0, top_p has no effect (the most likely token is in every nucleus); it is ignored rather than
    refused, because clients send both.
    """
    temperature = fields.number("temperature", 0, 2, usual_temperature)
    seed = fields.whole("seed", -(2**63), 2**64 - 1, 0) % 2**64 if fields.given("seed") else None
    top_p = fields.number("top_p", 0, 1, 1.0)
    if top_p == 0:
        fields.refuse("top_p", "top_p must be above 0, so that some token can be sampled; got 0. Try 0.9.")
    settings: dict[str, Any] = {
        "temperature": temperature,
        "top_p": top_p if temperature else 1.0,
        "presence_penalty": fields.number("presence_penalty", -2, 2, 0.0),
        "frequency_penalty": fields.number("frequency_penalty", -2, 2, 0.0),
        "top_k": fields.whole("top_k", 1, 2**31 - 1, 0) or None,
        "min_p": fields.number("min_p", 0, 1, 0.0),
        "typical_p": fields.number("typical_p", 0, 1, 1.0),
        "repetition_penalty": fields.number("repetition_penalty", 0, 100, 1.0),
        "no_repeat_ngram": fields.whole("no_repeat_ngram", 1, 2**31 - 1, 0) or None,
        "min_new_tokens": fields.whole("min_new_tokens", 0, 2**31 - 1, 0),
    }
    try:
        return Sampling(**settings), seed
    except ConfigError as error:
        raise RefusalError(400, str(error), param=error.setting) from None


def usage_of(fields: Fields, stream: bool) -> bool:
    """Return whether a stream ends with the token counts."""
    options: Any = fields.body.get("stream_options")
    if options is None:
        return False
    if not isinstance(options, dict) or not stream:
        fields.refuse("stream_options", "stream_options must be an object, and needs stream=true.")
    inner = Fields(cast("dict[str, Any]", options), {"include_usage", "include_obfuscation"})
    inner.switch("include_obfuscation")
    return inner.switch("include_usage")
