"""Compiled steps: the numbers of the model, code that lengths are no part of, and a compiler that must be there."""

import json
import os
import shutil
from pathlib import Path

import pytest

from decode.stepping import SHAPES
from fresh import printed
from glassformer.base.errors import ConfigError
from glassformer.fast.compiled import CompiledStack, compile_steps
from glassformer.fast.decoding import for_decoding
from glassformer.nn.ensemble import Ensemble
from glassformer.nn.stack import Stack
from specimens import model, native_cpp

compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="no C++ compiler is here")
STEPPING = Path(__file__).parents[1] / "decode" / "stepping.py"


def compared(kind):
    # What another version of the library compiled and torch kept would bring that version's guards with it.
    fresh = {**os.environ, "TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    return json.loads(printed(STEPPING, kind, env=fresh))


@pytest.mark.slow
@compiler
def test_a_compiled_step_is_the_step_and_how_long_a_text_is_has_no_part_in_it():
    found = compared("lengths")
    assert found["worst"] <= 1e-12
    begun, prompt, steps, fewer_rows = found["graphs"]
    assert (begun, prompt, steps, fewer_rows) == (0, 0, 1, 1), "a prompt is read as before, all steps by one code"


@compiler
@pytest.mark.slow
def test_rows_with_padding_have_one_code_too():
    found = compared("padded")
    assert found["worst"] <= 1e-12
    assert found["graphs"] == 1


@compiler
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # torch's own, of its compiler
def test_weights_are_shared_and_the_model_goes_on_as_it_was():
    made = model("encoder-decoder")
    ready = for_decoding(made, "float32", compile=True)
    assert ready is not made
    assert all(a is b for a, b in zip(made.parameters(), ready.parameters(), strict=True))
    assert type(made.reader) is not type(ready.reader)


@compiler
@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
def test_members_of_an_ensemble_go_on_as_they_were_where_our_cpp_is_off(monkeypatch):
    monkeypatch.setenv("GLASSFORMER_FAST", "0")
    made = Ensemble([model("decoder"), model("decoder")])
    ready = for_decoding(made, compile=True)
    assert {type(each.reader) for each in made.members} == {Stack}
    assert {type(each.reader) for each in ready.members} == {CompiledStack}


def test_a_machine_without_a_compiler_is_told(monkeypatch):
    from torch._inductor import cpp_builder, exc

    def none_found():
        raise exc.InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none_found)
    with pytest.raises(
        ConfigError,
        match=r"decode\.compile needs a C\+\+ compiler; neither g\+\+ nor clang\+\+ was found\. Install one",
    ):
        compile_steps(model("decoder"))


@compiler
@pytest.mark.slow
@pytest.mark.parametrize("shape", ["decoder", "encoder-decoder"])
def test_a_server_that_is_warm_compiles_no_more(shape):
    before, after = compared(f"warmed {shape}")["graphs"]
    assert before == after == 2, "steps of one row and of several"


@compiler
@pytest.mark.slow
@pytest.mark.parametrize("kind", SHAPES)
def test_texts_are_those_of_the_model(kind):
    found = compared(kind)
    assert found.pop("graphs") > 0, "something was compiled"
    assert all(found.values()), found


@compiler
@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16", pytest.param("int8", marks=native_cpp)])
def test_prepared_weights_are_compiled_too(precision):
    found = compared(precision)
    assert found["graphs"] == 1, "one code for any number of rows"
    assert found["worst"] <= 0.05
