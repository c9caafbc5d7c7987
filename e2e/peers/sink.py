"""HTTP that answers a PUT with the SHA-256 of what it got: `sink.py PORT`, both families."""

import hashlib
import http.server
import socket
import sys


class Sink(http.server.BaseHTTPRequestHandler):
    def do_PUT(self):
        self.send_response_only(100)  # curl waits for this before it sends much
        self.end_headers()
        digest, left = hashlib.sha256(), int(self.headers["Content-Length"])
        while left > 0 and (part := self.rfile.read(min(left, 1 << 16))):
            digest.update(part)
            left -= len(part)
        answer = digest.hexdigest().encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_):
        pass


class Both(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6  # a wildcard of both families unless told otherwise


server = Both(("::", int(sys.argv[1])), Sink)
print("listening", flush=True)
server.serve_forever()
