"""A server of the contract on http.server. It prints its port."""

import json
import sys
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer

CALLERS = {
    "acme_live_kR8vTq2mXw4ZpLs9": ("org_1", {"account:read", "tasks:read", "tasks:write"}),
    "acme_live_Nn3bHc7yDf1GjQe5": ("org_1", set()),
    "acme_live_Wd6uKz0oBa8RiVt2": ("org_1", {"chat:read", "chat:write"}),
    "acme_live_Rx4sMe9pYg7CnJo1": ("org_1", {"account:read", "tasks:read"}),
    "acme_live_Ft5wLq3kUv2HbZd8": ("org_1", {"tasks:write"}),
    "acme_live_Ov7jPy6aSn4XcGm0": ("org_2", {"account:read", "tasks:read", "tasks:write"}),
}
SCOPES = {
    ("GET", "/api/v1/account"): "account:read",
    ("GET", "/api/v1/tasks"): "tasks:read",
    ("POST", "/api/v1/tasks"): "tasks:write",
}
lock = threading.Lock()
tasks, replies, windows = [], {}, {}


def admit(org):
    """Return how many seconds to wait, or 0."""
    now = time.monotonic()
    with lock:
        start, used = windows.get(org, (now, 0))
        if now - start >= 1:
            start, used = now, 0
        windows[org] = (start, used + 1)
        return 0 if used < 40 else int(1 - (now - start)) + 1


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        pass

    def end_headers(self):
        self.send_header("Svc-Request-Id", uuid.uuid4().hex)
        super().end_headers()

    def reply(self, status, body, **headers):
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        if status >= 400:
            self.send_header("Connection", "close")
            self.close_connection = True
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def answer(self):
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in CALLERS:
            return self.reply(401, {"error": "unauthorized"}, WWW_Authenticate="Bearer")
        org, scopes = CALLERS[token]
        wait = admit(org)
        if wait:
            return self.reply(429, {"error": "slow down"}, Retry_After=str(wait))
        method = "GET" if self.command == "HEAD" else self.command
        path = self.path.partition("?")[0]
        scope = SCOPES.get((method, path))
        if scope is None:
            return self.reply(404, {"error": "not found"})
        if scope not in scopes:
            return self.reply(403, {"error": "forbidden"})
        if path == "/api/v1/account":
            return self.reply(200, {"organization": org})
        if method == "GET":
            with lock:
                mine = [{"id": t["id"], "title": t["title"]} for t in reversed(tasks) if t["org"] == org]
            return self.reply(200, {"object": "list", "data": mine})
        if self.headers.get("Transfer-Encoding"):
            return self.reply(411, {"error": "Content-Length is missing"})
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        try:
            title = json.loads(body)["title"] if len(body) == length else None
        except (ValueError, KeyError, TypeError):
            title = None
        if not title:
            return self.reply(400, {"error": "bad body"})
        self.create(org, title)

    def create(self, org, title):
        key = self.headers.get("Idempotency-Key")
        with lock:
            stored = replies.get((org, key)) if key else None
            if stored is None:
                stored = {"id": str(uuid.uuid4()), "title": title, "org": org}
                tasks.append(stored)
                if key:
                    replies[(org, key)] = stored
        self.reply(201, {"id": stored["id"], "title": stored["title"]}, Location="/api/v1/tasks/" + stored["id"])

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_PROPFIND = answer


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # clients that leave


class Single(HTTPServer):
    """Takes one connection at a time, as servers for development do."""

    handle_error = Server.handle_error


if __name__ == "__main__":
    kind = Server
    if sys.argv[1:] == ["single"]:
        kind, Handler.protocol_version = Single, "HTTP/1.0"
    server = kind(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
    server.serve_forever()
