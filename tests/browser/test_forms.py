"""The form of a deployment in Prefect's web interface: short at first, checked, and it starts a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from selenium.common.exceptions import TimeoutException
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement

from shardmill.infra.dataset.catalog import Catalog
from tests.browser.conftest import Browser
from tests.prefect_server.server import RunningServer
from tests.samples.sources.image_folders import write_image_folder


def _open_form(browser: Browser, server: RunningServer, deployment: str) -> None:
    found = server.get(f"/deployments/name/{deployment}")
    browser.resize(1280, 2000)
    browser.driver.get(f"{server.ui_url}/deployments/deployment/{found['id']}/run")
    browser.find("//*[normalize-space()='Parameters']")


def _field(browser: Browser, name: str) -> WebElement:
    box = "following::*[self::input or self::textarea][1]"
    return browser.find(f"//label[normalize-space()='{name}']/{box}")


def _labels(browser: Browser) -> list[str]:
    return [
        str(text)
        for text in browser.run("return [...document.querySelectorAll('label')].map(l=>l.innerText)")
    ]


def _runs_of(server: RunningServer, source: Path) -> list[dict[str, Any]]:
    """The flow runs that prepare this source."""
    runs = server.post("/flow_runs/filter", sort="EXPECTED_START_TIME_DESC", limit=50)
    return [run for run in runs if run["parameters"].get("source") == str(source)]


def _submit(browser: Browser) -> None:
    browser.find("//button[normalize-space()='Submit']").click()


def _submit_until_started(browser: Browser, server: RunningServer, source: Path) -> None:
    """Submit as a person does, again when SQLite was locked.

    The server says 503 then. Prefect's page says "Oops" if that was its answer to the request for a run, and
    nothing at all if it was the answer to the check of the parameters before it.
    """
    oops = "//*[contains(@class, 'p-toast__card-container')][contains(., 'Oops.')]"
    for _ in range(10):
        _submit(browser)
        try:
            shown = browser.find(f"//button[normalize-space()='View run'] | {oops}", 30)
        except TimeoutException:
            if _runs_of(server, source):
                return
            continue
        if shown.tag_name == "button":
            return
        # Toasts slide while they appear, so a click at a place on the screen may meet another one.
        close = browser.find(f"{oops}//*[contains(@class, 'p-toast__close-btn')]")
        browser.driver.execute_script("arguments[0].click()", close)
    raise AssertionError("the server was busy ten times")


def test_the_form_starts_a_run(browser: Browser, shardmill_up: RunningServer, tmp_path: Path) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=5)
    _open_form(browser, shardmill_up, "prepare/prepare")
    _field(browser, "source").send_keys(str(source))
    _field(browser, "dataset").send_keys("from-the-form")
    _submit_until_started(browser, shardmill_up, source)
    (run,) = _runs_of(shardmill_up, source)
    browser.driver.get(shardmill_up.page(run["id"]))
    browser.find("//*[normalize-space()='Completed']", 120)
    browser.find("//*[normalize-space()='prepare-from-the-form']")
    assert "from-the-form" in Catalog(shardmill_up.root).datasets()


def test_the_form_refuses_a_wrong_value_until_it_is_corrected(
    browser: Browser, shardmill_up: RunningServer, tmp_path: Path
) -> None:
    source = write_image_folder(tmp_path / "photos", per_class=5)
    _open_form(browser, shardmill_up, "prepare/prepare")
    _field(browser, "source").send_keys(str(source))
    _field(browser, "dataset").send_keys("not a name")
    _submit(browser)
    browser.find("//*[contains(text(), \"'not a name' does not match\")]")
    assert browser.driver.current_url.endswith("/run"), "the form is still open"

    _field(browser, "dataset").send_keys(Keys.CONTROL, "a")
    _field(browser, "dataset").send_keys("corrected")
    _submit_until_started(browser, shardmill_up, source)
    assert [run["parameters"]["dataset"] for run in _runs_of(shardmill_up, source)] == ["corrected"]


def test_the_form_of_training_is_folded_and_begins_with_what_matters(
    browser: Browser, shardmill_up: RunningServer
) -> None:
    _open_form(browser, shardmill_up, "train/train")
    assert len(_labels(browser)) < 25, "the settings are closed"
    browser.find("//*[normalize-space()='TrainConfig' and not(*)]").click()
    browser.find("//label[contains(normalize-space(), 'Model')]")
    groups = [label.removesuffix(" (Optional)") for label in _labels(browser)]
    first = groups.index("Model")
    assert groups[first : first + 3] == ["Model", "Run", "Data"]
    assert "Epochs" not in groups, "each group is closed"
    browser.find("//*[normalize-space()='RunSettings' and not(*)]").click()
    epochs = _field(browser, "Epochs (Optional)")
    epochs.clear()
    epochs.send_keys("9999999")
    _field(browser, "dataset").send_keys("photos")
    _submit(browser)
    browser.find("//*[contains(text(), '9999999 is greater than the maximum of 1000000')]")
