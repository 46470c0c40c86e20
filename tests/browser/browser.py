"""Debian's chromium without a window, driven by selenium: what a user of the dashboard sees and does."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import missing

QUIET = [
    "--headless=new",
    "--no-sandbox",  # of the browser: tests run as root in containers
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
]
TIMEOUT_S = 30


class Browser:
    """One window. Methods wait until what they name is there."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def reset(self) -> None:
        """As after the start: nothing open, nothing kept, the size of a laptop, light."""
        self.driver.get("about:blank")
        self._command("Storage.clearDataForOrigin", origin="*", storageTypes="all")
        self.resize(1440, 900)
        self.prefer("light")
        self.driver.get_log("browser")

    def open(self, url: str) -> None:
        self.driver.get(
            "about:blank"
        )  # else another part behind # alone would not load the page anew
        self.driver.get(url)

    def resize(self, width: int, height: int) -> None:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._command("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """What the system of the user prefers: "light" or "dark"."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self._command("Emulation.setEmulatedMedia", features=[feature])

    def background(self) -> list[int]:
        """Red, green and blue of the page."""
        color = self.run("return getComputedStyle(document.body).backgroundColor")
        return [int(part) for part in re.findall(r"\d+", color)[:3]]

    def find(self, css: str) -> Any:
        """The first visible element that fits."""
        return self.until(lambda: self._visible(css), f"{css} does not appear")

    def all(self, css: str) -> list[Any]:
        return list(self.driver.find_elements("css selector", css))

    def text(self, css: str) -> str:
        return str(self.find(css).text)

    def click(self, css: str) -> None:
        from selenium.common.exceptions import WebDriverException

        def clicked() -> bool:
            try:
                self.find(css).click()
            except WebDriverException:
                return False  # redrawn at this moment, or something is still above it
            return True

        self.until(clicked, f"{css} cannot be clicked")

    def type(self, css: str, text: str) -> None:
        self.find(css).send_keys(text)

    def see(self, text: str, css: str = "body") -> None:
        """Waits until the element shows the text."""
        self.until(lambda: text in self._text_now(css), f"{css} does not show {text!r}", css)

    def gone(self, css: str) -> None:
        self.until(lambda: not self._visible(css), f"{css} stays")

    def run(self, script: str, *arguments: Any) -> Any:
        return self.driver.execute_script(script, *arguments)

    def module(self, name: str, expression: str) -> Any:
        """Evaluates an expression in which `m` is one of the page's modules."""
        script = f"""
            const done = arguments[0];
            import("/static/{name}")
              .then((m) => done({expression}), (error) => done("failed: " + error));
        """
        return self.driver.execute_async_script(script)

    def until(self, condition: Callable[[], Any], problem: str, css: str = "body") -> Any:
        from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
        from selenium.webdriver.support.wait import WebDriverWait

        wait = WebDriverWait(
            self.driver, TIMEOUT_S, 0.05, ignored_exceptions=[StaleElementReferenceException]
        )
        try:
            return wait.until(lambda _: condition())
        except TimeoutException:
            shown = self._text_now(css)[:2000]
            raise AssertionError(f"{problem}; the page shows:\n{shown}") from None

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.driver.save_screenshot(str(path))

    def errors(self) -> list[str]:
        """What the console complained of, but for requests that were refused or not answered."""
        return [
            entry["message"]
            for entry in self.driver.get_log("browser")
            if entry["level"] == "SEVERE" and "Failed to load resource" not in entry["message"]
        ]

    def _command(self, name: str, **parameters: Any) -> None:
        self.driver.execute_cdp_cmd(name, parameters)

    def _visible(self, css: str) -> Any:
        return next((one for one in self.all(css) if one.is_displayed()), None)

    def _text_now(self, css: str) -> str:
        return " ".join(str(one.text) for one in self.all(css))


@contextmanager
def chromium(profile: Path, width: int = 1440, height: int = 900) -> Iterator[Browser]:
    """A browser with a profile of its own, in an empty folder. Missing: a skip at home, a failure in CI."""
    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    try:
        from selenium import webdriver
    except ImportError:
        missing("selenium", "pip install selenium")
        raise
    if program is None or driver_program is None:
        missing("chromium", "apt-get install chromium chromium-driver")
    options = webdriver.ChromeOptions()
    options.binary_location = str(program)
    for flag in (*QUIET, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=str(driver_program), env=_environment())
    driver = webdriver.Chrome(options=options, service=service)
    try:
        driver.set_script_timeout(TIMEOUT_S)
        yield Browser(driver)
    finally:
        driver.quit()


def _environment() -> dict[str, str]:
    """Without proxies: all that the dashboard needs is on this machine."""
    return {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
