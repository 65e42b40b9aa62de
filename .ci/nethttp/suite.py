#!/usr/bin/env python3
"""Run the test suites of net/http and net/http/httputil with every server handler wrapped by the project's own stages.

usage: suite.py PROJECT WRAP.go.txt [--recover] [--mux] [--dump FILE] [go test flags...]

--recover: the wrapper has Recover. The tests that wait for net/http's own log line about a panic are skipped.
--mux: the wrapper routes by method through a ServeMux. The tests that hang behind any such mux (CONNECT has no path, OPTIONS *) are skipped,
       and those that fail behind a bare one are expected differences.
--dump FILE: the output of go test -json goes there too.

WRAP.go.txt is a Go file body that assigns http.TestWrap in an init of package http_test; in it the import path of the project's packages is
MODULE/... as in the project (rewritten here). Here are four (.txt, so that no go command takes them for a package):
    wrap_recover.go.txt   RequestID and Recover                                   --recover
    wrap_auth.go.txt      ... and Authenticate with Failures, RateLimit, AnyCaller          --recover
    wrap_chain.go.txt     ... and Idempotency: the whole chain                    --recover
    wrap_api.go.txt       the same as an API with its own routing                 --recover --mux
Each pins the request id by Trust, for many tests (TestH12_*, TestH2_*) compare an answer over HTTP/1 with that over HTTP/2.

GOROOT is not touched: go's -overlay lays a server.go with a hook over the real one, and maps every non-standard package that the project's middleware needs below net/http/internal/zzlib (import paths rewritten).
Exit status 0 when no test fails but the expected differences; the last line is the count of top-level tests. -vet=off -count=1 -short.
"""
import argparse, atexit, json, os, re, shutil, subprocess, sys, tempfile
ap = argparse.ArgumentParser(usage=__doc__.split("\n")[2][7:], allow_abbrev=False)
ap.add_argument("project"); ap.add_argument("wrap")
ap.add_argument("--recover", action="store_true"); ap.add_argument("--mux", action="store_true"); ap.add_argument("--dump")
opt, flags = ap.parse_known_args()
proj, wrap = os.path.abspath(opt.project), opt.wrap
# these wait for net/http's own panic log line, which does not come when the panic is recovered before
PANIC = ["TestInterruptWithPanic", "TestHandlerPanic", "TestHandlerPanicWithHijack", "TestTimeoutHandlerPanicRecovery"]
# these hang behind any ServeMux with method patterns
MUX_HANGS = ["TestTransportProxy", "TestTransportProxyGetConnectHeader", "TestTransportProxyConnectHeader", "TestTransportCONNECTBidi", "TestConnectRequest", "TestOptionsHandler"]
# these fail behind a bare ServeMux with method patterns
MUX_FAILS = ["TestOptions", "TestServerHandlersCanHandleH2PRI", "TestServerValidatesHostHeader", "TestStarRequestMethod"]
skip = (PANIC if opt.recover else []) + (MUX_HANGS if opt.mux else [])
if skip:
    flags = ["-skip", "^(%s)$" % "|".join(skip), *flags]
goroot = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
src = goroot + "/src/"
tmp = tempfile.mkdtemp()
atexit.register(shutil.rmtree, tmp, ignore_errors=True)
overlay = {}

def put(virtual, text):
    real = os.path.join(tmp, re.sub(r"[^A-Za-z0-9_.]", "_", virtual))
    open(real, "w").write(text)
    overlay[src + virtual] = real

s = open(src + "net/http/server.go").read()
anchor = "func (sh serverHandler) ServeHTTP(rw ResponseWriter, req *Request) {"
i = s.index(anchor)
j = s.index("\thandler.ServeHTTP(rw, req)", i)
s = s[:j] + "\tif TestWrap != nil {\n\t\thandler = TestWrap(handler)\n\t}\n" + s[j:] + "\n// TestWrap wraps every server handler (overlay only).\nvar TestWrap func(Handler) Handler\n"
put("net/http/server.go", s)

out = subprocess.check_output(["go", "list", "-deps", "-json=ImportPath,Standard,Dir,GoFiles,EmbedFiles", "./middleware"], cwd=proj, text=True)
dec, pkgs = json.JSONDecoder(), []
while out.strip():
    p, n = dec.raw_decode(out.lstrip()); out = out.lstrip()[n:]
    if not p.get("Standard"):
        pkgs.append(p)
paths = sorted((p["ImportPath"] for p in pkgs), key=len, reverse=True)

def rewrite(text):
    def f(m):
        return '"net/http/internal/zzlib/%s"' % m.group(1) if m.group(1) in paths else m.group(0)
    return re.sub(r'"([A-Za-z0-9_.\-/]+)"', f, text)

for p in pkgs:
    for g in p.get("GoFiles", []):
        put("net/http/internal/zzlib/%s/%s" % (p["ImportPath"], g), rewrite(open(os.path.join(p["Dir"], g)).read()))
    for g in p.get("EmbedFiles") or []:
        put("net/http/internal/zzlib/%s/%s" % (p["ImportPath"], g), open(os.path.join(p["Dir"], g)).read())
w = rewrite(open(wrap).read())
put("net/http/zz_wrap_test.go", w)
put("net/http/httputil/zz_wrap_test.go", w.replace("package http_test", "package httputil_test"))
oj = os.path.join(tmp, "overlay.json")
json.dump({"Replace": overlay}, open(oj, "w"))
r = subprocess.run(["go", "test", "-vet=off", "-count=1", "-short", "-timeout", "280s", "-json", "-overlay", oj, *flags, "net/http", "net/http/httputil"], cwd=tmp, text=True, capture_output=True, env=dict(os.environ, GOFLAGS=""))
if opt.dump:
    open(opt.dump, "w").write(r.stdout)
failed, passed, errs = [], 0, []
for l in r.stdout.splitlines():
    try: e = json.loads(l)
    except ValueError: errs.append(l); continue
    if e.get("Action") == "build-output": errs.append(e["Output"].rstrip())
    if e.get("Test") and "/" not in e["Test"]:
        if e["Action"] == "fail": failed.append(e["Test"])
        if e["Action"] == "pass": passed += 1
print(*errs[:40], sep="\n"); print(r.stderr[:3000])
# exact-header comparisons that an extra header must change
header = {"TestTrailersServerToClient", "TestTrailersServerToClientFlush", "TestServerUndeclaredTrailers", "TestEarlyHints", "TestProcessing", "ExampleDumpResponse"}
bad = sorted(f for f in failed if f not in header | set(MUX_FAILS if opt.mux else []))
if "panic: test timed out" in r.stdout or "fatal error: " in r.stdout:
    bad.append("(the test binary ended early)")
elif r.returncode and not failed:
    bad.append("(go test failed without a failed test)")
print("expected differences:", *sorted(set(failed) - set(bad)))
print("failed:", *bad)
print(f"nethttp-suite: {passed} passed, {len(bad)} failed, {len(set(failed) - set(bad))} expected differences")
sys.exit(1 if bad or passed < 300 else 0)
