"""Debian's Chromium as both browser tests use it: how it is started, and how long it may take."""

from playwright.sync_api import expect

# How long, in milliseconds, what should come about may take on a busy machine. A page that had to
# wait for an answer asks less often: up to 15 seconds go by before it asks again.
SLOW = 90_000


def start(playwright, *arguments):
    """A browser; `expect` and its contexts wait for SLOW, not for Playwright's 5 and 30 seconds."""
    expect.set_options(timeout=SLOW)
    return playwright.chromium.launch(
        executable_path="/usr/bin/chromium",
        args=["--no-sandbox", "--disable-dev-shm-usage", *arguments],
        timeout=4 * SLOW,
    )


def profile(browser, **options):
    """A new browser profile, not signed in."""
    context = browser.new_context(**options)
    context.set_default_timeout(SLOW)
    return context
