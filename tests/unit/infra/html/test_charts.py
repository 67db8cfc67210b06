"""The charts: valid SVG that says what it was given, whatever it was given."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from shardmill.infra.html import charts

_SVG = "{http://www.w3.org/2000/svg}"


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{_SVG}text")]


def widths(svg: str) -> list[float]:
    bars = [bar for bar in ElementTree.fromstring(svg).iter(f"{_SVG}rect") if bar.get("height") == "18"]
    return [float(bar.get("width", "")) for bar in bars]


def test_bars_are_as_long_as_their_counts() -> None:
    svg = charts.stacked_bars("Balance", {"train": {"cat": 30, "dog": 10}, "test": {"cat": 0, "dog": 10}})
    cat_train, cat_test, dog_train, dog_test = widths(svg)
    assert cat_test == 0
    assert cat_train == pytest.approx(3 * dog_train, abs=0.1)
    assert dog_train == dog_test
    assert {"Balance", "train", "test", "cat", "dog", "30", "20"} <= set(texts(svg))


def test_of_many_classes_the_extremes_are_shown() -> None:
    svg = charts.stacked_bars("Balance", {"train": {f"c{number:03d}": number for number in range(1, 201)}})
    shown = set(texts(svg))
    assert {"c200", "c001"} <= shown
    assert "c100" not in shown
    assert any("140 classes" in text for text in shown)


def test_names_stay_text() -> None:
    svg = charts.stacked_bars("<script>", {"a&b": {'"><script>x</script>': 1}})
    assert "<script>" not in svg.replace("&lt;script&gt;", "")
    assert "a&b" in texts(svg)


@pytest.mark.parametrize("points", [[], [(1.0, 0.5)], [(1.0, 0.5), (2.0, 0.5)], [(1.0, 0.5), (9.0, 0.1)]])
def test_curves_of_few_points_lie_inside_the_picture(points: list[charts.Point]) -> None:
    root = ElementTree.fromstring(charts.panels("Run", [charts.Panel("Loss", {"train": points})], "step"))
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    circles = list(root.iter(f"{_SVG}circle"))
    assert len(circles) == len(points)
    for circle in circles:
        assert 0 <= float(circle.get("cx", "")) <= width
        assert 0 <= float(circle.get("cy", "")) <= height


def test_a_larger_value_stands_higher() -> None:
    root = ElementTree.fromstring(
        charts.panels("Run", [charts.Panel("Loss", {"train": [(0, 1.0), (1, 2.0)]})], "step")
    )
    low, high = (float(circle.get("cy", "")) for circle in root.iter(f"{_SVG}circle"))
    assert high < low


def test_panels_share_colours_and_the_axis() -> None:
    shown = [
        charts.Panel("loss <1>", {"train": [(0, 1.0), (8, 0.5)], "validation": [(8, 0.7)]}),
        charts.Panel("accuracy", {"validation": [(8, 0.7)]}),
        charts.Panel("learning rate", {"train": [(0, 1e-5), (8, 12345.0)]}),
    ]
    root = ElementTree.fromstring(charts.panels("Training", shown, "step"))
    lines = [line.get("stroke") for line in root.iter(f"{_SVG}polyline")]
    assert lines[0] == lines[3] != lines[1] == lines[2]
    words = texts(charts.panels("Training", shown, "step"))
    assert {"loss <1>", "accuracy", "12,345", "1.0e-05"} <= set(words)
    width, height = float(root.get("width", "")), float(root.get("height", ""))
    for circle in root.iter(f"{_SVG}circle"):
        assert 0 <= float(circle.get("cx", "")) <= width
        assert 0 <= float(circle.get("cy", "")) <= height


def test_grouped_bars_have_a_scale_a_group_and_names_stay_text() -> None:
    bars = [charts.Bar("<b>", 1.0, "1 µs", '"&', is_marked=True), charts.Bar("c", 2.0, "2 µs")]
    svg = charts.grouped_bars("x < y", {"alone": bars, "together": [charts.Bar("a&b", 5000.0, "5,000")]})
    assert {"<b>", "x < y", "a&b", "alone", "together"} <= set(texts(svg))
    shown = [bar for bar in ElementTree.fromstring(svg).iter(f"{_SVG}rect") if bar.get("rx") == "2"]
    half, whole, other = (float(bar.get("width", "")) for bar in shown)
    assert 2 * half == whole == other
    assert shown[0].get("fill") != shown[1].get("fill")


def test_a_chart_without_bars_is_a_picture() -> None:
    assert {"none"} <= set(texts(charts.grouped_bars("x", {"none": []})))
