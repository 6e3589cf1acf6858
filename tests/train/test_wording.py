"""Numbers and texts as they are shown."""

import math

import pytest

from glassformer.train.records import bytes_text, duration, figure, line_interval, printable


def test_printable():
    assert printable("a ü 漢 \t\n\x00") == "a ü 漢 \ufffd⏎\ufffd"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0:00"), (59.6, "1:00"), (65.0, "1:05"), (600.0, "10:00"), (3661.0, "1:01:01"), (90061.0, "1 day, 1:01:01")],
)
def test_duration(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("steps", "interval"), [(1, 1), (20, 1), (21, 2), (40, 2), (41, 5), (1000, 50), (1001, 100), (10**6, 50_000)]
)
def test_line_interval(steps, interval):
    assert line_interval(steps) == interval
    assert steps / interval <= 20


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 19, "1.5 MiB"), (5 << 40, "5.0 TiB")]
)
def test_bytes(size, text):
    assert bytes_text(size) == text


def test_a_figure_has_the_digits_that_say_something():
    assert [figure(each) for each in (1.23456, 999999.0, 2.118932e14, -1e6, math.inf, 7)] == [
        *("1.2346", "999999.0000", "2.119e+14", "-1.000e+06", "inf", "7")
    ]
