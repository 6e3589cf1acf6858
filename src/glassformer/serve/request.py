"""Parsing request bodies: their fields and grammars, checked, become a `Wanted`; the model is not involved yet."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, cast

from glassformer.base.errors import ConfigError, DataError, GlassformerError
from glassformer.base.registry import refuse_repeated_keys, suggestion
from glassformer.data.tokens.vocabulary import utf8
from glassformer.decode.constraints import Constraint, States, of_regex, of_schema
from glassformer.decode.filters import Filter
from glassformer.decode.settings import Sampling
from glassformer.serve import trial
from glassformer.serve.http import RefusalError, no_model
from glassformer.serve.settings import ServeConfig
from glassformer.store.files import deeper_than, refuse_constant

# Checking untrusted JSON bodies: an object of known fields, each of the right type and within its bounds.

MOST_LEVELS = 100
"""How deep lists and objects may nest. JSON read just within Python's own limit could fail to be written again."""


def read_object(body: bytes) -> dict[str, Any]:
    """Parse a body as a JSON object. Errors: `RefusalError` for anything else, and for repeated names."""
    rule = f"The body must be a JSON object of at most {MOST_LEVELS} levels"
    too_deep = RefusalError(400, f"{rule}; this one is nested deeper. Send a flatter one.")
    try:
        value: object = json.loads(
            body.decode("utf-8"), object_pairs_hook=refuse_repeated_keys, parse_constant=refuse_constant
        )
    except UnicodeDecodeError as error:
        message = f"The body must be JSON in UTF-8; byte {error.start} of this one is not UTF-8. Encode it as UTF-8."
        raise RefusalError(400, message) from None
    except RecursionError:
        raise too_deep from None
    except ValueError as error:
        message = f"The body must be a JSON object; this one cannot be read: {str(error)[:200]}. Send valid JSON."
        raise RefusalError(400, message) from None
    if deeper_than(value, MOST_LEVELS):
        raise too_deep
    if not isinstance(value, dict):
        message = f"The body must be a JSON object; this one is {shown(value)}. Send an object of fields."
        raise RefusalError(400, message)
    return cast("dict[str, Any]", value)


def shown(value: object) -> str:
    """Return a short text of a JSON value, for messages."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 99:
        return f"a number of {value.bit_length()} bits"
    long = isinstance(value, dict | list) and len(cast("Any", value)) > 8
    text = "a long list or object" if long else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def give(name: str) -> str:
    """Return what to do about the wrong value of a field that may be left out."""
    return f"Give such a value, or leave {name} out."


class Fields:
    """The fields of one body; each getter checks what it returns. Errors: `RefusalError` 400 naming the field."""

    def __init__(
        self,
        body: Mapping[str, Any],
        known: Collection[str],
        neutral: Collection[str] = (),
        *,
        of: str = "this request",
    ) -> None:
        """`neutral`: fields that may be there with a value that asks for nothing; the caller checks it."""
        self.body = body
        for name in body:
            if name not in known and name not in neutral:
                what = f"{name[:60]!r} is not a field of {of}. Remove it, or use another."
                self.refuse(name[:60], f"{what} {suggestion(name[:60], known)}")

    def refuse(self, name: str, message: str, code: str | None = None) -> NoReturn:
        """Raise `RefusalError` 400 for a field."""
        raise RefusalError(400, message, param=name, code=code)

    def given(self, name: str) -> bool:
        """Whether a field is present and not null."""
        return self.body.get(name) is not None

    def number(self, name: str, least: int, most: int, usual: float) -> float:
        """Return a number within bounds, both inclusive; `usual` if the field is absent."""
        return float(self._within(name, least, most, usual, int | float, "a number"))

    def whole(self, name: str, least: int, most: int, usual: int) -> int:
        """Return an integer within bounds, both inclusive; `usual` if the field is absent."""
        return self._within(name, least, most, usual, int, "a whole number")

    def _within(self, name: str, least: int, most: int, usual: Any, kind: Any, what: str) -> Any:
        if not self.given(name):
            return usual
        value = self.body[name]
        if isinstance(value, bool) or not isinstance(value, kind) or not least <= value <= most:
            self.refuse(name, f"{name} must be {what} from {least} to {most}; got {shown(value)}. {give(name)}")
        return value

    def switch(self, name: str) -> bool:
        """Return a boolean; False if the field is absent."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, bool):
            self.refuse(name, f"{name} must be true or false; got {shown(value)}. {give(name)}")
        return bool(value)

    def text(self, name: str) -> str | None:
        """Return a string; None if the field is absent."""
        value = self.body.get(name)
        if value is not None and not isinstance(value, str):
            self.refuse(name, f"{name} must be a string; got {shown(value)}. {give(name)}")
        return value

    def texts(self, name: str, most: int) -> list[str]:
        """Return the list of at most `most` strings; one string becomes a list, and an absent field an empty one."""
        value = self.body.get(name)
        if value is None:
            return []
        values: Any = [value] if isinstance(value, str) else value
        rule = f"{name} must be a string or a list of at most {most} strings"
        if not isinstance(values, list) or not all(isinstance(each, str) for each in cast("list[object]", values)):
            self.refuse(name, f"{rule}; got {shown(value)}. Change it.")
        found = cast("list[str]", values)
        if len(found) > most:
            self.refuse(name, f"{rule}; got {len(found)}. Give fewer.")
        try:
            for each in found:
                utf8(each)
        except DataError as error:
            self.refuse(name, f"{name}: {error}")
        return found

    def biases(self, name: str, size: int, most: int) -> dict[int, float]:
        """Return numbers from -100 to 100 by token id; JSON writes the ids as strings."""
        value = self.body.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict) or len(cast("Any", value)) > most:
            rule = f"{name} must be an object of at most {most} numbers by token id"
            self.refuse(name, f"{rule}; got {shown(value)}. {give(name)}")
        found: dict[int, float] = {}
        for id, bias in cast("dict[str, object]", value).items():
            if not (id.isascii() and id.isdecimal() and len(id) < 10 and int(id) < size):
                rule = f"Token ids in {name} must be from 0 to {size - 1}"
                self.refuse(name, f"{rule}; got {id[:40]!r}. Use the ids of this model's tokenizer.")
            if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
                rule = f"Numbers in {name} must be from -100 to 100; got {shown(bias)} for id {id}"
                self.refuse(name, f"{rule}. Change it, or leave the id out.")
            if int(id) in found:
                self.refuse(name, f"{name} has id {int(id)} twice. Give it once.")
            found[int(id)] = float(bias)
        return found


# Grammars of requests: read from their fields and first built in a process of their own, where they do no harm.

LONGEST = 65_536
"""The most characters of an expression or a schema."""
SECONDS = 2.0
"""The time limit for building a grammar; a slower one is refused."""
KINDS = "text, json_object or json_schema"


class GrammarField(NamedTuple):
    """The grammar that a request asks for: a regular expression or a JSON schema (as JSON), and its field."""

    field: str
    regex: str = ""
    schema: str = ""


def constraint_of(fields: Fields) -> GrammarField | None:
    """Return what `response_format` (OpenAI's field) or `structured_outputs` (vLLM's) asks for."""
    one, other = response_format(fields), structured_outputs(fields)
    if one and other:
        rule = "A text follows either response_format or structured_outputs; got both"
        fields.refuse("structured_outputs", f"{rule}. Give only one.")
    if (constraint := one or other) is None:
        return None
    name, text = constraint.field, constraint.regex + constraint.schema
    if len(text) > LONGEST:
        fields.refuse(name, f"{name} may have at most {LONGEST} characters; got {len(text)}. Give a shorter one.")
    if any("\ud800" <= each <= "\udfff" for each in text):
        fields.refuse(name, f"{name} must be valid Unicode; this one has half of a surrogate pair. Remove it.")
    return constraint


def response_format(fields: Fields) -> GrammarField | None:
    """Return the schema in {"type": "json_schema", "json_schema": {"name": ..., "schema": {...}}}.

    For {"type": "json_object"}, return the schema of any object; for {"type": "text"}, None.
    """
    name = "response_format"
    inner = inside(fields, name, {"type", "json_schema"})
    kind = None if inner is None else inner.text("type")
    if inner is None or kind == "text":
        return None
    if kind == "json_object":
        return GrammarField(name, schema='{"type": "object"}')
    if kind != "json_schema":
        fields.refuse(name, f"The type of response_format must be {KINDS}; got {shown(kind)}. Give one of these.")
    schema = inside(inner, "json_schema", {"name", "description", "schema", "strict"})
    if schema is None or not schema.given("schema"):
        needs = '{"json_schema": {"name": ..., "schema": {...}}}'
        fields.refuse(name, f"response_format of type json_schema needs {needs}; got no schema. Give one.")
    for each in ("name", "description"):
        schema.text(each)
    schema.switch("strict")
    return GrammarField(name, schema=written_out(schema, "schema"))


def structured_outputs(fields: Fields) -> GrammarField | None:
    """Return the expression in {"regex": ...} or the schema in {"json": ...}."""
    name = "structured_outputs"
    inner = inside(fields, name, {"regex", "json"})
    if inner is None:
        return None
    if inner.given("regex") == inner.given("json"):
        came = "both" if inner.given("json") else "none"
        fields.refuse(name, f"structured_outputs takes either regex or json; got {came}. Give exactly one of them.")
    if inner.given("json"):
        return GrammarField(name, schema=written_out(inner, "json"))
    return GrammarField(name, regex=inner.text("regex") or "()")


def inside(fields: Fields, name: str, known: set[str]) -> Fields | None:
    """Return the fields of an object that is a field's value, or None if the field is absent."""
    value: Any = fields.body.get(name)
    if value is None:
        return None
    if not isinstance(value, dict):
        fields.refuse(name, f"{name} must be an object; got {shown(value)}. {give(name)}")
    return Fields(cast("dict[str, Any]", value), known, of=name)


def written_out(fields: Fields, name: str) -> str:
    """Return a schema as JSON text, whether it was sent as JSON or as a string of JSON."""
    value = fields.body[name]
    return value if isinstance(value, str) else json.dumps(value)


def followed(constraint: GrammarField, states: States) -> Filter:
    """Build the filter of a wish in up to `SECONDS`. Errors: `RefusalError` 400 for an invalid or too large grammar."""
    try:
        grammar = of_regex(constraint.regex) if constraint.regex else of_schema(constraint.schema)
        check_small(constraint.field, grammar.text)
        return Constraint(states, grammar).filter
    except GlassformerError as error:
        raise RefusalError(400, str(error), param=constraint.field) from None


def check_small(field: str, grammar: str) -> None:
    """Build the grammar in a separate process first, as some small ones take hours and all memory.

    Errors: `RefusalError` 400.
    """
    command = [sys.executable, "-P", str(Path(trial.__file__))]
    try:
        quick = subprocess.run(command, input=grammar.encode(), timeout=SECONDS, check=False).returncode == 0
    except subprocess.TimeoutExpired:
        quick = False
    if not quick:
        message = f"The grammar must be built within {SECONDS:g} seconds; this one was not. Use a simpler one."
        raise RefusalError(400, message, param=field, code="grammar_too_large")


# The two kinds of bodies.

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
    constraint: GrammarField | None = None
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
    best = fields.body.get("best_of")
    if best is not None and not (type(best) is int and best in (1, n)):
        rule = "best_of is not supported: this server returns every text that it writes"
        fields.refuse("best_of", f"{rule}; got best_of={shown(best)} and n={n}. Use n, and remove best_of.")
    if (suffix := fields.body.get("suffix")) not in (None, ""):
        rule = "suffix is not supported: the model continues a prompt, and reads nothing behind it"
        fields.refuse("suffix", f"{rule}; got {shown(suffix)}. Remove suffix.")
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
        constraint_of(fields),
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
    constraint = constraint_of(fields)
    return Wanted(
        cast("list[str | list[int]]", texts), *drawn, most, stops=stops_of(fields), constraint=constraint, field="text"
    )


def check_model(fields: Fields, model: str) -> None:
    """Refuse any model name but that of the served model. Errors: `RefusalError` 404."""
    requested = fields.text("model")
    if requested is not None and requested != model:
        raise no_model(requested, model)


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
    if not isinstance(value, list) or not value:
        return False
    return all(type(each) is int and 0 <= each < 2**31 for each in cast("list[object]", value))


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
