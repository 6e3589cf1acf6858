"""A setting of a search that was given where nothing is searched is refused, not ignored."""

import pytest

from glassformer.base.errors import ConfigError
from glassformer.cli.arguments import refuse_idle_search
from glassformer.train.settings import DecodeConfig


@pytest.mark.parametrize(("name", "own", "scored", "message"), [
    ("diversity", {"beam": 4}, True, "there is only one, so 0.5 would have no effect. Set decode.beam_groups"),
    ("length_penalty", {"length_penalty": 2.0}, False, r"decode.beam is 1, so 2.0 would .* Set decode.beam"),
    ("diversity", {"beam": 4, "beam_groups": 2}, False, None),
    ("length_penalty", {"beam": 4}, False, None),
    ("length_penalty", {}, True, None),
    ("beam", {}, False, None),
])  # fmt: skip
def test_what_is_searched_decides(name, own, scored, message):
    if message is None:
        refuse_idle_search(DecodeConfig(**own), {f"decode.{name}"}, scored=scored)
        return
    with pytest.raises(ConfigError, match=message):
        refuse_idle_search(DecodeConfig(**own), {f"decode.{name}"}, scored=scored)
    refuse_idle_search(DecodeConfig(**own), {}, scored=scored)
