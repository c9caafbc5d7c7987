#!/usr/bin/env python3
"""Looks at one of two directors' dashboards in Chromium, and judges what it says of both.

    pair.py URL --read TOKEN --peer ADDRESS --role ROLE --peer-role ROLE --shots FOLDER [--faults]

Each step prints its name when it has passed; the first that fails ends the run with a screenshot
and exit code 1. With --faults it says `stop the peer` and `start the peer` and waits until the page
has noticed.
"""

import argparse
import pathlib

from playwright.sync_api import expect

from dashboard import MOVING, must, no_violation, pattern, walk


def section(run):
    heading = run.page.get_by_role("heading", name="Session synchronisation")
    return run.page.locator("section", has=heading).last


def fact(run, name):
    """What stands beside a name."""
    term = section(run).locator("dt", has_text=pattern(f"^{name}$"))
    return term.locator("xpath=following-sibling::dd[1]")


def peer(run):
    table = section(run).get_by_role("table")
    row = table.get_by_role("row").filter(has_text=run.options.peer)
    expect(row).to_have_count(1)
    return row


def cell(run, label):
    """The peer's cell in a column."""
    heads = section(run).get_by_role("columnheader").all_text_contents()
    at = next((at for at, head in enumerate(heads) if head.startswith(label)), None)
    must(at is not None, f"no column {label!r} among {heads}")
    return peer(run).locator("th, td").nth(at)


def both_directors_are_there(run):
    run.open()
    run.sign_in(run.options.read)
    expect(section(run)).to_be_visible()
    expect(section(run).locator(".badge").first).to_have_text(pattern(r"^\S synchronised$"))
    expect(fact(run, "Role")).to_have_text(run.options.role)
    expect(cell(run, "State")).to_have_text(pattern(r"^\S up$"))
    expect(cell(run, "Role")).to_have_text(run.options.peer_role)
    expect(cell(run, "Sessions")).to_have_text(pattern(MOVING))
    expect(cell(run, "Lag")).to_have_text(pattern(r"^[\d.]+\sms$"))


def reports_are_counted(run):
    name = "Reports sent" if run.options.role == "active" else "Reports received and used"
    expect(fact(run, name)).to_have_text(pattern(MOVING))
    before = fact(run, name).text_content()
    expect(fact(run, name)).not_to_have_text(before)
    expect(fact(run, "Not configured here")).to_have_text("0")
    expect(fact(run, "Datagrams rejected")).to_have_text(pattern(r", 0 of them forged$"))


def axe_finds_nothing(run):
    no_violation(run, "both directors")
    run.shot(f"pair-{run.options.role}", full=True)


def a_peer_that_dies_is_told(run):
    if not run.options.faults:
        return
    print("stop the peer", flush=True)
    expect(cell(run, "State")).to_have_text(pattern(r"^\S down$"))
    run.shot("pair-down", full=True)
    print("start the peer", flush=True)
    expect(cell(run, "State")).to_have_text(pattern(r"^\S up$"))
    expect(cell(run, "Role")).to_have_text(run.options.peer_role)


STEPS = [
    both_directors_are_there,
    reports_are_counted,
    axe_finds_nothing,
    a_peer_that_dies_is_told,
]


def options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--read", required=True)
    parser.add_argument("--peer", required=True)
    parser.add_argument("--role", required=True)
    parser.add_argument("--peer-role", required=True)
    parser.add_argument("--shots", required=True, type=pathlib.Path)
    parser.add_argument("--faults", action="store_true")
    return parser.parse_args()


def main():
    walk(options(), STEPS, "pair-failed")


if __name__ == "__main__":
    main()
