"""The benchmark of language models: seconds are those of a machine on which nanoGPT's command takes 76."""

import importlib

import pytest

from documents import ROOT


@pytest.fixture
def language(monkeypatch):
    """The benchmark's module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("language")


def budget(language):
    return language.Budget("a minute", 76.0, 1.52, ())


@pytest.mark.parametrize(("its", "asked"), [(None, 76.0), (76.0, 76.0), (114.0, 114.0)])
def test_the_seconds_asked_for_are_scaled_by_nanogpts(language, its, asked):
    found = [language.Timed(1.5, 80.0, its)]
    assert language.asked_of(budget(language), found) == pytest.approx(asked)
    assert language.within(budget(language), found) == (asked > 80)


def test_they_are_scaled_by_the_mean_over_seeds(language):
    found = [language.Timed(1.5, 100.0, 90.0), language.Timed(1.5, 100.0, 110.0), language.Timed(1.5, 100.0, 103.0)]
    assert language.asked_of(budget(language), found) == pytest.approx(101.0)


@pytest.mark.parametrize(("losses", "kept"), [((1.51, 1.52), True), ((1.50, 1.55), False)])
def test_the_mean_loss_counts(language, losses, kept):
    assert language.within(budget(language), [language.Timed(each, 70.0) for each in losses]) == kept
