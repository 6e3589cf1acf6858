"""What a CUDA device is asked for where it refuses to record; its driver is played here."""

from __future__ import annotations

import contextlib
import warnings

import pytest
import torch

from glassformer.fast.graphs import Cuda


@pytest.fixture
def driver(monkeypatch):
    """Refuses with `error` whatever is recorded, after it was run; counts what it was asked."""

    class Driver:
        error: Exception | None = None
        requested = 0

        @contextlib.contextmanager
        def graph(self, *_, **__):
            Driver.requested += 1
            yield
            if Driver.error is not None:
                raise Driver.error

    made = Driver()
    for name in ("CUDAGraph", "Stream", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: made)
    monkeypatch.setattr(torch.cuda, "stream", lambda _: contextlib.nullcontext())
    monkeypatch.setattr(torch.cuda, "graph", made.graph)
    made.replay = lambda: None
    yield made
    Driver.error, Driver.requested = None, 0


def test_what_is_recorded_is_done_again(driver):
    done = []
    assert Cuda(torch.device("cuda", 1)).record(lambda: done.append(1)) is driver.replay
    assert done == [1]


def test_a_refusal_is_told_once_and_not_asked_again(driver):
    type(driver).error, cuda, work = RuntimeError("operation not permitted\nmore"), Cuda(torch.device("cuda")), list
    with pytest.warns(UserWarning, match=r"cannot be a CUDA graph here, .* one by one: operation not permitted$"):
        assert cuda.record(work) is work
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cuda.record(work) is work
    assert driver.requested == 1


def test_the_first_of_two_errors_is_told(driver, monkeypatch):
    def fails():
        raise RuntimeError("this asks")

    @contextlib.contextmanager
    def graph(*_, **__):
        try:
            yield
        finally:
            raise RuntimeError("the capture has failed")

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with pytest.warns(UserWarning, match="one by one: this asks$"):
        Cuda(torch.device("cuda")).record(fails)


def test_no_memory_is_no_refusal(driver):
    type(driver).error = torch.OutOfMemoryError("none left")
    with pytest.raises(torch.OutOfMemoryError):
        Cuda(torch.device("cuda")).record(list)
