"""Parsing request bodies: their fields, checked, become a `Wanted`; the model is not involved yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from glassformer.base.errors import ConfigError
from glassformer.decode.choose.sampling import Sampling
from glassformer.serve.fields import Fields, shown
from glassformer.serve.grammar import Wish, wish_of
from glassformer.serve.refusal import RefusalError, no_model
from glassformer.serve.settings import ServeConfig

DRAWN = {
    *("temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"),
    *("top_k", "min_p", "typical_p", "repetition_penalty", "no_repeat_ngram", "min_new_tokens"),
}
"""Sampling fields: the first line is OpenAI's, the second ours."""
COMPLETION = DRAWN | {
    *("model", "prompt", "max_tokens", "n", "stream", "stream_options", "stop", "logprobs", "echo"),
    *("logit_bias", "user", "response_format", "structured_outputs"),
}
UNSUPPORTED = ("best_of", "suffix")
"""Fields of OpenAI's completions that are refused, except with a value that asks for nothing."""
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
    """0, with `echo` alone: nothing is written, and the answer is the prompt."""
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
    fields = Fields(body, COMPLETION, UNSUPPORTED)
    check_model(fields, model)
    fields.text("user")
    prompts = prompts_of(fields, config.rows)
    n = fields.whole("n", 1, config.rows, 1)
    refuse_unsupported(fields, n)
    if len(prompts) * n > config.rows:
        came = f"got {len(prompts)} prompts and n={n}"
        fields.refuse("n", f"At most {config.rows} texts are written together; {came}. Ask for fewer.")
    logprobs = fields.whole("logprobs", 0, MOST_LOGPROBS, 0) if fields.given("logprobs") else None
    echo = fields.switch("echo")
    most = fields.whole("max_tokens", 0 if echo else 1, config.max_new_tokens, -1)
    stream = fields.switch("stream")
    return Wanted(
        prompts,
        *sampling_of(fields, usual_temperature=1.0),
        None if most < 0 else most,
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
        came = "nothing" if fields.body.get("text") is None else "[]"
        fields.refuse("text", f"text must be a source to answer, or a list of at least one; got {came}. Give one.")
    most = fields.whole("max_tokens", 1, config.max_new_tokens, 0) or None
    drawn = sampling_of(fields, usual_temperature=0.0)
    wish = wish_of(fields)
    return Wanted(cast("list[str | list[int]]", texts), *drawn, most, stops=stops_of(fields), wish=wish, field="text")


def check_model(fields: Fields, model: str) -> None:
    """Refuse any model name but that of the served model. Errors: `RefusalError` 404."""
    asked = fields.text("model")
    if asked is not None and asked != model:
        raise no_model(asked, model)


def refuse_unsupported(fields: Fields, n: int) -> None:
    """Refuse fields that have no effect here, unless their value has none in OpenAI's API either."""
    best = fields.body.get("best_of")
    if best is not None and not (type(best) is int and best in (1, n)):
        rule = "best_of is not supported: this server returns every text that it writes"
        fields.refuse("best_of", f"{rule}; got best_of={shown(best)} and n={n}. Use n, and remove best_of.")
    if (suffix := fields.body.get("suffix")) not in (None, ""):
        rule = "suffix is not supported: the model continues a prompt, and reads nothing behind it"
        fields.refuse("suffix", f"{rule}; got {shown(suffix)}. Remove suffix.")


def prompts_of(fields: Fields, most: int) -> list[str | list[int]]:
    """Return the prompts as a list; the field holds a text, a list of token ids, or a list of either.

    Without it the prompt is empty: a text is written from its beginning, as in OpenAI's API.
    """
    value: Any = fields.body.get("prompt")
    if value is None:
        return [""]
    if isinstance(value, str):
        return [value]
    values = cast("list[object]", value if isinstance(value, list) else [])
    if is_ids(values):
        return [value]
    if not values or not all(isinstance(each, str) or is_ids(each) for each in values):
        kinds = "a text, a list of token ids, or a list of texts or of lists of ids, no list empty"
        fields.refuse("prompt", f'prompt must be {kinds}; got {shown(value)}. Change it; "" begins a new text.')
    if len(values) > most:
        fields.refuse("prompt", f"A request may have at most {most} prompts; got {len(values)}. Send several requests.")
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
    if wrong := [len(each) for each in stops if not 0 < len(each) <= LONGEST_STOP]:
        rule = f"Each text of stop must have from 1 to {LONGEST_STOP} characters"
        fields.refuse("stop", f"{rule}; got one of {wrong[0]}. Remove or change it.")
    return tuple(stops)


def sampling_of(fields: Fields, usual_temperature: float) -> tuple[Sampling, int | None]:
    """Return the sampling settings, and the seed if one is given, within the bounds of `Sampling`.

    With temperature 0, top_p has no effect (the most likely token is in every nucleus); it is ignored rather than
    refused, because clients send both.
    """
    temperature = fields.number("temperature", 0, 2, usual_temperature)
    seed = fields.whole("seed", 0, 2**64 - 1, 0) if fields.given("seed") else None
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
        rule, came = "stream_options must be an object, and needs stream=true", f"got {shown(options)}"
        came += "" if stream else ", and no stream=true"
        fields.refuse("stream_options", f"{rule}; {came}. Remove stream_options, or change them.")
    inner = Fields(cast("dict[str, Any]", options), {"include_usage"}, {"include_obfuscation"}, of="stream_options")
    if inner.switch("include_obfuscation"):
        rule = "include_obfuscation is not supported; got true"
        fields.refuse("stream_options", f"{rule}. Remove include_obfuscation.")
    return inner.switch("include_usage")
