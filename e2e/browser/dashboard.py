#!/usr/bin/env python3
"""Uses a director's dashboard in Chromium as an operator would, and judges it.

    dashboard.py URL --read TOKEN --operate TOKEN --service NAME --shots FOLDER [--restart]
                 [--pictures]

Each step prints its name and how long it took when it has passed; the first that fails ends the
run with a screenshot and exit code 1. With --restart it says `stop the director` and `start the
director` and waits until the page has noticed. With --pictures it leaves one of each page with
some seconds of traffic, for documents.
"""

import argparse
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, Route, expect, sync_playwright

import chromium

PAGES = ["", "services", "workers", "elephants", "events", "config"]
TITLES = ["Overview", "Services", "Workers", "Elephants", "Events", "Configuration"]
EVIL = '<img src=x onerror="document.title=1">'
# A rate that is not zero: `45.2 kpps`, `0.98/s`.
MOVING = r"^[\d.]*[1-9]"


class Run:
    """A browser with one page, and what it complained about."""

    def __init__(self, browser, options):
        self.options = options
        self.browser = browser
        self.complaints = []
        self.context = None
        self.page: Page = None

    def open(self, width=1360, height=900, scheme="light"):
        """A new browser profile, not signed in."""
        if self.context:
            self.context.close()
        self.context = chromium.profile(
            self.browser,
            viewport={"width": width, "height": height},
            color_scheme=scheme,
            reduced_motion="reduce",
            ignore_https_errors=True,
        )
        self.page = self.context.new_page()
        self.page.on("console", self.heard)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.goto(self.options.url)

    def heard(self, message):
        # A browser reports each answer of 400 and more, also those that a step is about.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(message.text)

    def sign_in(self, token):
        field = self.page.get_by_label("Token", exact=True)
        field.fill(token)
        field.press("Enter")
        expect(self.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()

    def go(self, name):
        """Opens a page by its address and waits until it shows something."""
        self.page.goto(f"{self.options.url}/#/{name}")
        expect(self.page.locator("#view h1")).to_be_visible()
        expect(self.page.locator("#view section").first).to_be_visible()

    def figure(self, name):
        tile = self.page.locator("section.tile", has=self.page.get_by_role("heading", name=name))
        return tile.locator(".figure")

    def shot(self, name, full=False):
        self.page.screenshot(path=self.options.shots / f"{name}.png", full_page=full)

    def api(self, method, path, token, body=None, epoch=None):
        """A request of somebody else."""
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        if epoch:
            headers["If-Match"] = f'"{epoch}"'
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.options.url + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=chromium.SLOW / 1000) as answer:
            return json.load(answer)

    def active(self):
        """What has the keyboard's focus, in words."""
        return self.page.evaluate(
            "(() => { const it = document.activeElement; return it.id || it.ariaLabel "
            "|| it.textContent.trim().slice(0, 80); })()"
        )

    def tab_to(self, text, most=60):
        """Presses Tab until something whose text begins so has the focus."""
        for _ in range(most):
            self.page.keyboard.press("Tab")
            if self.active().startswith(text):
                return
        raise AssertionError(f"the keyboard does not reach {text!r}; it is at {self.active()!r}")


def must(holds, text):
    if not holds:
        raise AssertionError(text)


def a_token_is_asked_for(run):
    run.open()
    page = run.page
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
    no_violation(run, "sign in")
    page.get_by_label("Token", exact=True).fill("nothing of the kind")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert").filter(has_text="does not know this token")).to_be_visible()
    run.sign_in(run.options.read)
    must(run.options.read not in page.url, "the token is in the address")
    kept = page.evaluate("JSON.stringify([localStorage, document.cookie])")
    must(run.options.read not in kept, f"the token is kept for longer than the tab: {kept}")


# Notes what a page says when one of its scripts has not come: two seconds later it is another page,
# which may be before anybody looks.
NOTE_BREAKS = """
addEventListener("error", () => setTimeout(() => {
  const view = document.getElementById("view");
  if (view?.checkVisibility()) sessionStorage.setItem("said", view.textContent);
}), true);
"""


def a_page_that_breaks_off_is_loaded_again(run):
    refused = []

    def refuse_once(route: Route):
        if refused:
            return route.continue_()
        refused.append(route.request.url)
        return route.abort()

    run.page.route("**/assets/workers.js", refuse_once)
    run.page.add_init_script(NOTE_BREAKS)
    run.page.reload(wait_until="commit")
    expect(run.page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    said = run.page.evaluate("sessionStorage.getItem('said')")
    must("did not come whole" in (said or ""), f"the page said: {said}")
    must(len(refused) == 1, f"{refused}")
    run.page.unroute_all(behavior="wait")


def each_page_loads(run):
    for name, title in zip(PAGES, TITLES):
        run.go(name)
        expect(run.page).to_have_title(f"{title} – Sluice")
        expect(run.page.locator("nav a[aria-current]")).to_have_count(1)
    run.go(f"services/{run.options.service}")
    expect(run.page.get_by_role("rowheader").first).to_be_visible()
    run.go("services")
    run.page.get_by_role("searchbox").fill("no such service")
    expect(run.page.get_by_text("No service is like that.")).to_be_visible()
    run.page.get_by_role("searchbox").fill(run.options.service)
    expect(run.page.get_by_role("link", name=run.options.service, exact=True)).to_be_visible()


def figures_follow_the_traffic(run):
    run.go("")
    for name in ("Packets", "Traffic", "New connections"):
        figure = run.figure(name)
        expect(figure).to_have_text(pattern(MOVING))
        before = figure.text_content()
        expect(figure).not_to_have_text(before)
    expect(run.page.locator(".plot path.line").first).to_have_attribute("d", pattern("M.*L"))
    run.go("workers")
    expect(run.page.get_by_text("cycles a packet").first).to_be_visible()


def a_spread_flow_is_told(run):
    """Over whom, since when, what it gains, and what brings it to its owner."""
    run.go("elephants")
    table = run.page.get_by_role("table", name="Flows that several workers process")
    row = table.get_by_role("row", name=pattern(r"udp .*:40000 > "))
    expect(row).to_have_count(1)
    heads = table.get_by_role("columnheader").all_text_contents()
    cell = lambda name: row.locator("th, td").nth(heads.index(name))
    expect(cell("By")).to_have_text("operator")
    owner = cell("Owner").text_content()
    expect(cell("Helpers")).to_have_text("1" if owner == "0" else "0")
    expect(cell("Since")).to_have_text(pattern(r"^\d\d:\d\d \(.*s\)$|min"))
    expect(cell("Packets, before → now")).to_have_text(pattern("pps → .*[1-9].*pps"))
    expect(cell("Traffic, before → now")).to_have_text(pattern("bit/s → .*[1-9].*bit/s"))
    expect(cell("Owner busy, before → now")).to_have_text(pattern("%.* → .*%"))
    expect(cell("By helpers")).to_have_text(pattern(r"[1-9].*%"))
    expect(cell("Dealt")).to_have_text(pattern(MOVING))
    expect(cell("Brought to the owner by")).to_have_text(pattern("^software: .*AF_XDP"))


def pattern(text):
    import re

    return re.compile(text, re.DOTALL)


def plots_are_read_by_keyboard_and_pointer(run):
    run.go("")
    plot = run.page.get_by_role("slider", name="Traffic")
    expect(plot.locator("path.line").first).to_have_attribute("d", pattern("M.*L"))
    plot.focus()
    plot.press("ArrowLeft")
    plot.press("ArrowLeft")
    said = plot.get_attribute("aria-valuetext")
    must("to real servers" in said and "bit/s" in said, said)
    expect(run.page.locator(".bubble").first).to_be_visible()
    plot.press("Escape")
    expect(run.page.locator(".bubble").first).to_be_hidden()
    box = plot.bounding_box()
    run.page.mouse.move(box["x"] + box["width"] - 30, box["y"] + 40)
    expect(run.page.locator(".bubble").first).to_be_visible()


def who_may_only_look_cannot_change(run):
    run.go(f"services/{run.options.service}")
    expect(run.page.get_by_role("rowheader").first).to_be_visible()
    expect(run.page.get_by_role("button", name="Change")).to_have_count(0)
    expect(run.page.get_by_text("may look")).to_be_visible()
    run.go("config")
    expect(run.page.get_by_role("button", name="Compare")).to_have_count(0)


def names_are_never_markup(run):
    def poisoned(route: Route):
        answer = route.fetch()
        data = answer.json()
        data["services"][0]["name"] = EVIL
        route.fulfill(response=answer, json=data)

    run.page.route("**/v1/services", poisoned)
    run.go("services")
    expect(run.page.get_by_role("link", name=EVIL)).to_be_visible()
    run.page.get_by_role("link", name=EVIL).click()
    expect(run.page.get_by_role("heading", name=EVIL)).to_be_visible()
    must(run.page.locator("#view img").count() == 0, "a name became an image")
    run.page.unroute_all(behavior="wait")


def violations(run):
    """What axe finds while the director answers: what is old is paler."""
    fresh = run.page.locator("body:not(.stale)")
    for _ in range(10):
        expect(fresh).to_have_count(1)
        found = Axe().run(run.page).response["violations"]
        if fresh.count() == 1:
            break
    return found


def no_violation(run, where):
    found = violations(run)
    # `region`: all text lies within landmarks. axe calls it moderate.
    bad = [it for it in found if it["impact"] in ("serious", "critical") or it["id"] == "region"]
    first = [(it["id"], it["nodes"][0]) for it in bad]
    told = [(name, node["html"][:200], node["failureSummary"]) for name, node in first]
    must(not bad, f"axe in {where}: {told}")


def axe_finds_nothing_serious(run):
    for scheme in ("light", "dark"):
        run.page.emulate_media(color_scheme=scheme)
        for name in [*PAGES, f"services/{run.options.service}"]:
            run.go(name)
            no_violation(run, f"{name} ({scheme})")
    run.page.emulate_media(color_scheme="light")


def it_is_light_and_dark(run):
    run.go("")
    colour = "getComputedStyle(document.querySelector('.tile')).backgroundColor"
    ground = lambda: run.page.evaluate(colour)
    light = ground()
    run.page.emulate_media(color_scheme="dark")
    dark = ground()
    must(light != dark, f"{light} in both")
    switch = run.page.get_by_role("button", name="Colours")
    switch.click()
    expect(switch).to_have_text("Colours: light")
    must(ground() == light, "the switch does not make it light")
    run.page.reload()
    expect(switch).to_have_text("Colours: light")
    switch.click()
    run.page.emulate_media(color_scheme="light")
    must(ground() == dark, "the switch does not make it dark")
    switch.click()
    expect(switch).to_have_text("Colours: as the system")


def draining_by_keyboard_alone(run):
    """From the top of the page to a drained real server, without a pointer."""
    run.open()
    run.sign_in(run.options.operate)
    page = run.page
    page.reload()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    page.keyboard.press("Tab")
    must(run.active() == "skip", f"the first stop is {run.active()!r}")
    page.keyboard.press("Enter")
    must(run.active() == "main", f"the skip link leads to {run.active()!r}")
    page.reload()
    expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
    run.tab_to("Services")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Services", level=1)).to_be_focused()
    expect(page.get_by_role("link", name=run.options.service, exact=True)).to_be_visible()
    run.tab_to(run.options.service)
    page.keyboard.press("Enter")
    first = page.get_by_role("row").nth(1)
    expect(first.get_by_role("button")).to_be_visible()
    run.tab_to("Change ")
    page.keyboard.press("Enter")
    dialogue = page.get_by_role("dialog")
    expect(dialogue.get_by_role("radio", name="As configured")).to_be_focused()
    no_violation(run, "the dialogue")
    for _ in range(12):
        page.keyboard.press("Tab")
        inside = page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
        must(inside, f"Tab leaves the dialogue for {run.active()!r}")
    page.keyboard.press("Escape")
    expect(dialogue).to_have_count(0)
    expect(first.get_by_role("button")).to_be_focused()
    page.keyboard.press("Enter")
    expect(dialogue.get_by_role("radio", name="As configured")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(dialogue.get_by_role("radio", name="Drain")).to_be_checked()
    expect(dialogue.get_by_text("It gets no new sessions")).to_be_visible()
    run.shot("dialogue")
    run.tab_to("Drain it")
    page.keyboard.press("Enter")
    expect(dialogue).to_have_count(0)
    expect(page.locator("#told")).to_contain_text("epoch")
    expect(first).to_contain_text("draining")


def a_change_in_between_is_not_overwritten(run):
    page = run.page
    first = page.get_by_role("row").nth(1)
    name = first.get_by_role("rowheader").text_content()
    path = f"/v1/config/services/{run.options.service}/reals/{name}"
    first.get_by_role("button").click()
    dialogue = page.get_by_role("dialog")
    expect(dialogue.get_by_role("radio", name="Drain")).to_be_checked()
    run.api("PATCH", path, run.options.operate, {"weight": 3})
    dialogue.get_by_role("radio", name="As configured").check()
    dialogue.get_by_role("button", name="Change").click()
    expect(dialogue.get_by_role("alert")).to_contain_text("Somebody else changed")
    expect(first).to_contain_text("draining")
    dialogue.get_by_role("button", name="Look again").click()
    expect(dialogue.get_by_label("Weight")).to_have_value("3")
    dialogue.get_by_label("Weight").fill("70000")
    dialogue.get_by_role("button", name="Change").click()
    expect(dialogue.get_by_role("alert")).to_contain_text("/weight")
    dialogue.get_by_label("Weight").fill("")
    dialogue.get_by_role("radio", name="As configured").check()
    dialogue.get_by_role("button", name="Change").click()
    expect(dialogue).to_have_count(0)
    expect(first).to_contain_text("up")
    run.go("config")
    expect(page.get_by_text("Every real server is as configured.")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_text("A reload would change nothing")).to_be_visible()
    page.locator("details summary").first.click()
    expect(page.locator("details pre").first).to_contain_text(run.options.service)


def events_come_by_themselves(run):
    run.go("events")
    way = run.page.locator("p.about span").last
    expect(way).to_have_text("live")


def it_fits_a_phone(run):
    run.open(375, 812)
    run.sign_in(run.options.operate)
    expect(run.page.get_by_role("link", name="Services", exact=True)).to_be_hidden()
    run.page.get_by_role("button", name="Menu").click()
    run.page.get_by_role("link", name="Services", exact=True).click()
    expect(run.page.get_by_role("heading", name="Services", level=1)).to_be_visible()
    for name in [*PAGES, f"services/{run.options.service}"]:
        run.go(name)
        # Also when the next figures have come, which it asks for each second.
        for _ in range(3):
            width = run.page.evaluate("document.documentElement.scrollWidth")
            must(width <= 375, f"{name or 'overview'} is {width} pixels wide")
            run.page.wait_for_timeout(500)
        run.shot(f"phone-{name.replace('/', '-') or 'overview'}", full=True)


def pictures(run):
    if not run.options.pictures:
        return
    run.open()
    run.sign_in(run.options.operate)
    for scheme in ("light", "dark"):
        run.page.emulate_media(color_scheme=scheme)
        for name in [*PAGES, f"services/{run.options.service}"]:
            run.go(name)
            run.page.get_by_role("button", name="5 min", exact=True).click() if name == "" else None
            run.page.wait_for_timeout(4500)
            run.shot(f"{name.replace('/', '-') or 'overview'}-{scheme}", full=name != "")
    run.page.emulate_media(color_scheme="light")


def a_director_that_went_away_is_waited_for(run):
    if not run.options.restart:
        return
    run.go("")
    expect(run.figure("Sessions")).not_to_have_text("–")
    print("stop the director", flush=True)
    banner = run.page.locator("#banner")
    expect(banner).to_contain_text("Not connected")
    print("start the director", flush=True)
    expect(banner).to_be_hidden()
    expect(run.page.locator("#link")).to_have_text("● connected")
    expect(run.page.get_by_text("up for")).to_be_visible()


STEPS = [
    a_token_is_asked_for,
    a_page_that_breaks_off_is_loaded_again,
    each_page_loads,
    figures_follow_the_traffic,
    a_spread_flow_is_told,
    plots_are_read_by_keyboard_and_pointer,
    who_may_only_look_cannot_change,
    names_are_never_markup,
    axe_finds_nothing_serious,
    it_is_light_and_dark,
    draining_by_keyboard_alone,
    a_change_in_between_is_not_overwritten,
    events_come_by_themselves,
    it_fits_a_phone,
    pictures,
    a_director_that_went_away_is_waited_for,
]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--read", required=True)
    parser.add_argument("--operate", required=True)
    parser.add_argument("--service", required=True)
    parser.add_argument("--shots", required=True, type=pathlib.Path)
    parser.add_argument("--restart", action="store_true")
    parser.add_argument("--pictures", action="store_true")
    return parser.parse_args()


def walk(given, steps, failed="failed"):
    """Takes steps in a browser. The first that fails ends the program, with a screenshot."""
    given.shots.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = chromium.start(playwright)
        run = Run(browser, given)
        for step in steps:
            begun = time.monotonic()
            try:
                step(run)
                must(not run.complaints, f"the browser complained: {run.complaints}")
            except Exception as error:
                run.shot(failed)
                print(f"failed: {step.__name__}: {str(error)[:3000]}", flush=True)
                sys.exit(1)
            print(f"passed: {step.__name__} ({time.monotonic() - begun:.1f} s)", flush=True)
        browser.close()
    print("all steps passed", flush=True)


def main():
    walk(options(), STEPS)


if __name__ == "__main__":
    main()
