#!/usr/bin/env python3
"""Runs the tests of net/http and net/http/httputil with every server handler behind the project's stages.

usage: suite.py [WRAP [flags of go test…]]    for example: suite.py chain -run Trailer

Without a WRAP it runs both of wrap.go.txt, each about a minute: chain (all pieces) and api (the same as an API with its
own routing). Their answers have a pinned request id, for many tests compare an answer over HTTP/1 with that over HTTP/2.

GOROOT is not touched: go's -overlay lays a server.go with a hook over the real one, and maps every package that the
stages need, and that is not of Go, below net/http/internal/zzlib.
The status is 0 if no test fails but the expected differences; each wrap ends with the count of its top-level tests.
"""
import json, os, re, subprocess, sys, tempfile
wraps, flags = sys.argv[1:2] or ["chain", "api"], sys.argv[2:]
here = os.path.dirname(os.path.abspath(__file__))
# These wait for net/http's own line about a panic, and the panic is recovered before.
PANIC = ["TestInterruptWithPanic", "TestHandlerPanic", "TestHandlerPanicWithHijack", "TestTimeoutHandlerPanicRecovery"]
# These hang behind any ServeMux with patterns of a method: CONNECT has no path, OPTIONS has *.
MUX_HANGS = ["TestTransportProxy", "TestTransportProxyGetConnectHeader", "TestTransportProxyConnectHeader",
             "TestTransportCONNECTBidi", "TestConnectRequest", "TestOptionsHandler"]
# These fail behind a bare ServeMux with patterns of a method; those of CONNECT are new in Go 1.27.
MUX_FAILS = {"TestOptions", "TestServerHandlersCanHandleH2PRI", "TestServerValidatesHostHeader", "TestStarRequestMethod",
             "TestServerCONNECTSuccess", "TestServerCONNECTFailure"}
# These compare all header fields.
HEADER = {"TestTrailersServerToClient", "TestTrailersServerToClientFlush", "TestServerUndeclaredTrailers", "TestEarlyHints",
          "TestProcessing", "ExampleDumpResponse"}
goroot = subprocess.check_output(["go", "env", "GOROOT"], text=True).strip()
src = goroot + "/src/"
folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
tmp = folder.name
# A Go that came as a module must not be overlaid, as nothing below the cache of modules.
env = dict(os.environ, GOFLAGS="", GOTOOLCHAIN="local", GOMODCACHE=tmp + "/modules")
overlay = {}


def put(virtual, text):
    real = os.path.join(tmp, re.sub(r"[^A-Za-z0-9_.]", "_", virtual))
    with open(real, "w") as f:
        f.write(text)
    overlay[src + virtual] = real


server = open(src + "net/http/server.go").read()
i = server.index("func (sh serverHandler) ServeHTTP(rw ResponseWriter, req *Request) {")
i = server.index("\thandler.ServeHTTP(rw, req)", i)
put("net/http/server.go", server[:i] + "\tif TestWrap != nil {\n\t\thandler = TestWrap(handler)\n\t}\n" + server[i:] +
    "\n// TestWrap wraps every server handler.\nvar TestWrap func(Handler) Handler\n")

wrap = open(here + "/wrap.go.txt").read()
listed = "{{if not .Standard}}{{range .GoFiles}}%s{{end}}{{range .EmbedFiles}}%s{{end}}{{end}}".replace(
    "%s", "{{$.ImportPath}}\t{{$.Dir}}\t{{.}}\n")
out = subprocess.check_output(["go", "list", "-deps", "-f", listed, *re.findall(r'^\t"([^"]+)"$', wrap, re.M)],
                              cwd=here + "/../..", text=True)
files = [line.split("\t") for line in out.split("\n") if line]
paths = {path for path, _, _ in files}


def moved(text):
    return re.sub(r'"([A-Za-z0-9_.\-/]+)"',
                  lambda m: '"net/http/internal/zzlib/%s"' % m[1] if m[1] in paths else m[0], text)


for path, directory, name in files:
    text = open(os.path.join(directory, name)).read()
    put("net/http/internal/zzlib/%s/%s" % (path, name), moved(text) if name.endswith(".go") else text)
put("net/http/zz_wrap_test.go", moved(wrap))
put("net/http/httputil/zz_wrap_test.go", moved(wrap).replace("package http_test", "package httputil_test"))
with open(tmp + "/overlay.json", "w") as f:
    json.dump({"Replace": overlay}, f)

status = 0
for wrap in wraps:
    mux = wrap == "api"
    skip = "^(%s)$" % "|".join(PANIC + (MUX_HANGS if mux else []))
    r = subprocess.run([goroot + "/bin/go", "test", "-vet=off", "-count=1", "-short", "-timeout", "15m", "-json", "-overlay",
                        tmp + "/overlay.json", "-skip", skip, *flags, "net/http", "net/http/httputil"],
                       cwd=tmp, text=True, capture_output=True, env=dict(env, WRAP=wrap))
    failed, passed, said = set(), 0, {"go test": r.stderr}
    for line in r.stdout.splitlines():
        e = json.loads(line)
        test = e.get("Test", "go test").split("/")[0]
        said[test] = said.get(test, "") + e.get("Output", "")
        if e.get("Test") and "/" not in e["Test"]:
            if e["Action"] == "fail":
                failed.add(e["Test"])
            passed += e["Action"] == "pass"
    expected = failed & (HEADER | MUX_FAILS if mux else HEADER)
    bad = failed - expected
    if r.returncode and not failed or re.search("panic: test timed out|fatal error: ", r.stdout):
        bad.add("go test")
    if bad:
        print(*(said[test][-5000:] for test in bad), sep="\n")
        print("failed:", *sorted(bad))
    print("%s: %d passed, %d failed, %d expected differences" % (wrap, passed, len(bad), len(expected)))
    if bad or passed < (1 if flags else 600):
        status = 1
sys.exit(status)
