"""A service behind a Gateway: python3 service.py PORT, with GATEWAY_SECRET in hexadecimal."""
import hashlib, hmac, http.server, json, os, sys, time
from urllib.parse import unquote

SECRET = bytes.fromhex(os.environ["GATEWAY_SECRET"])
FIELDS = ["Request", "Organization", "Environment", "Key", "Subject", "Scopes"]


def caller(method, path, headers):
    """Returns who calls, or None unless a Gateway has signed this request."""
    fields = [headers.get_all("Svc-Caller-" + name, [""]) for name in FIELDS]
    signatures = headers.get_all("Svc-Caller-Signature", [""])
    if any(len(values) > 1 for values in fields + [signatures]):
        return None
    expires, _, sent = signatures[0].partition(".")
    text = "\n".join([expires, method, path] + [values[0] for values in fields])
    want = hmac.new(SECRET, text.encode("latin-1"), hashlib.sha256).hexdigest()
    if not hmac.compare_digest(want.encode(), sent.encode("latin-1")) or int(expires) < time.time():
        return None
    return {name: unquote(values[0]) for name, values in zip(FIELDS, fields)}


class Service(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        who = caller(self.command, self.requestline.split()[1], self.headers)  # self.path has one slash for two
        self.answer(200 if who else 401, who or {"code": "api_key_missing"})

    do_POST = do_PUT = do_DELETE = do_PATCH = do_GET

    def answer(self, status, body):
        text = json.dumps(body).encode()
        if "Transfer-Encoding" in self.headers:
            self.close_connection = True  # its chunks, which nobody reads, would be the next request
        else:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Svc-Request-Id", self.headers.get("Svc-Request-Id", ""))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Service).serve_forever()
