# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium under test: Debian's, driven by selenium; always ended."""
import os
import shutil

import pytest

from voxeld_process import PATIENCE

# Chromium's own sandbox needs rights that a container and root do not have; it loads only pages of
# the daemon under test.
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
         "--hide-scrollbars", "--force-color-profile=srgb", "--no-first-run",
         "--disable-background-networking", "--disable-component-update")
DESKTOP, PHONE = (1280, 900), (360, 740)


class Browser:
    """One tab.  `page(url)` loads it, `run(script)` is its answer to `script`."""

    def __init__(self, driver):
        self.driver = driver

    def page(self, url):
        self.driver.get(url)

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def errors(self):
        """What the console has said since the last call: mistakes of scripts, files that did not
        load, violations of the policy."""
        return [entry["message"] for entry in self.driver.get_log("browser")
                if entry["level"] in ("SEVERE", "WARNING")]

    def looks(self, size=DESKTOP, dark=False, scale=1):
        width, height = size
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 500})
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [
            {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]})

    def scripts(self, allowed):
        self.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": not allowed})

    def picture(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        assert self.driver.save_screenshot(str(path))

    def close(self):
        self.driver.quit()


def open_browser(name):
    """Skips the test `name` where there is no Chromium."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip(f"SKIPPED {name}: no chromium and chromedriver on this machine "
                    "(deploy/install-deps --browser gets them)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in FLAGS:
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # A proxy of the environment must not see requests to the loopback.
    os.environ["NO_PROXY"] = os.environ["no_proxy"] = "127.0.0.1,localhost"
    started = webdriver.Chrome(options=options, service=Service(driver))
    started.set_page_load_timeout(PATIENCE)
    started.set_script_timeout(PATIENCE)
    return Browser(started)
