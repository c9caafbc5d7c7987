#!/usr/bin/env python3
"""What pages elsewhere can do in Chromium to a director whose control socket is forwarded.

    foreign.py SOCKET

Stands in for `ssh -L 18080:SOCKET`: whoever connects to port 18080 of this machine talks to the
socket. A page of another site tries to change the configuration and to read it, by its own name and
by a name of its own that leads to the director's port (DNS rebinding). Then the dashboard is opened
by a link from that page, and must work. The first step that fails ends the run with exit code 1.
"""

import http.client
import http.server
import json
import socket
import sys
import threading

from playwright.sync_api import expect, sync_playwright

import chromium

FORWARDED, SITE = 18080, 18081
SERVICE = {"protocol": "tcp", "vip": "198.51.100.77", "port": 80, "mode": "nat"}
BODY = json.dumps({"service": [dict(SERVICE, name="evil")]})
PAGE = f"""<!doctype html><title>evil</title>
<a id="link" href="http://localhost:{FORWARDED}/">dashboard</a>
<form id="form" method="post" enctype="text/plain" target="frame"
  action="http://localhost:{FORWARDED}/v1/config/apply"><input name="x"></form>
<iframe name="frame"></iframe>"""


def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
    except OSError:
        pass
    finally:
        for end in (one, other):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def forward(path):
    """What `ssh -L` does."""
    listener = socket.create_server(("127.0.0.1", FORWARDED))

    def accept():
        while True:
            client, _ = listener.accept()
            server = socket.socket(socket.AF_UNIX)
            server.connect(path)
            for ends in ((client, server), (server, client)):
                threading.Thread(target=pump, args=ends, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


class Site(http.server.BaseHTTPRequestHandler):
    """The other site."""

    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_):
        pass


def must(holds, text):
    if not holds:
        raise AssertionError(text)


def names(path):
    """The services that there are, as the socket tells itself."""
    connection = http.client.HTTPConnection("director")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(path)
    connection.request("GET", "/v1/config")
    objects = json.load(connection.getresponse())["objects"]
    return [it["name"] for it in objects if it["kind"] == "service"]


# Asks from within the page; what cannot be read is told as such.
ASK = """async ([url, options]) => {
    try {
        const answer = await fetch(url, options);
        return `${answer.type} ${answer.status}`;
    } catch (error) { return String(error); }
}"""


def main():
    path = sys.argv[1]
    forward(path)
    site = http.server.ThreadingHTTPServer(("127.0.0.1", SITE), Site)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = chromium.start(
            playwright, "--host-resolver-rules=MAP evil.example 127.0.0.1"
        )
        page = chromium.profile(browser).new_page()
        director = f"http://localhost:{FORWARDED}"
        page.goto(f"http://evil.example:{SITE}/")
        for kind in ("text/plain", "application/x-www-form-urlencoded"):
            options = {"method": "POST", "mode": "no-cors", "body": BODY}
            options["headers"] = {"Content-Type": kind}
            page.evaluate(ASK, [f"{director}/v1/config/apply", options])
        page.evaluate(ASK, [f"{director}/v1/config/reload", {"method": "POST", "mode": "no-cors"}])
        said = page.evaluate(ASK, [f"{director}/v1/config", {}])
        must("TypeError" in said, f"another site reads: {said}")
        page.evaluate("document.getElementById('form').submit()")
        page.wait_for_timeout(500)
        must("evil" not in names(path), "another site made a service")
        print("another site changes and reads nothing")
        answer = page.goto(f"http://evil.example:{FORWARDED}/v1/config")
        must(answer.status == 403, f"a name that was pointed here reads: {answer.status}")
        for target, options in (
            ("/v1/config", {}),
            ("/v1/status", {}),
            ("/v1/config/apply", {"method": "POST", "body": BODY,
                                  "headers": {"Content-Type": "application/json"}}),
        ):
            said = page.evaluate(ASK, [target, options])
            must(said == "basic 403", f"a name that was pointed here: {target}: {said}")
        must("evil" not in names(path), "a name that was pointed here made a service")
        print("a name that was pointed here changes and reads nothing")
        page.goto(f"http://evil.example:{SITE}/")
        page.click("#link")
        expect(page.get_by_role("heading", name="Overview", level=1)).to_be_visible()
        said = page.evaluate(ASK, ["/v1/config/services/own", {
            "method": "PUT", "body": json.dumps(SERVICE),
            "headers": {"Content-Type": "application/json"}}])
        must(said == "basic 200" and "own" in names(path), f"the dashboard's own: {said}")
        print("the dashboard works")
        browser.close()


if __name__ == "__main__":
    main()
