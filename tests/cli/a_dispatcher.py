"""Stands for the dispatcher's process in tests of start-cluster: announces itself, or does not."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

parser = argparse.ArgumentParser()
parser.add_argument("behaviour", choices=["answer", "fail", "hang", "stay"])
for name in ("host", "port", "storage", "master", "token-file"):
    parser.add_argument(f"--{name}")
parser.add_argument("--no-token", action="store_true")
parser.add_argument("-D", action="append")
given = parser.parse_args()
expected = None
if not given.no_token:
    expected = f"Bearer {Path(given.token_file).read_text().strip()}"


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        known = self.headers.get("Authorization") == expected
        content = json.dumps({"jobs": []} if known else {"errors": ["who?"]}).encode()
        self.send_response(200 if known else 401)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


if given.behaviour == "fail":
    sys.exit("The storage is broken.")
if given.behaviour == "hang":
    print("nothing to announce", flush=True)
    time.sleep(600)
if given.behaviour == "stay":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = ThreadingHTTPServer((given.host, int(given.port)), Handler)
print(f"settings {given.D}, master {given.master}", flush=True)
print(f"millpond dispatcher: http://{given.host}:{server.server_port}", flush=True)
server.serve_forever()
