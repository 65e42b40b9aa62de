package middleware

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"regexp"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/redact"
)

// A reporter tells what happened: the log, the client by a [Problem], and those
// who observe by the [Event]. All stages of a Guard share one. It knows none of
// them.
type reporter struct {
	own       *Hooks         // of the Guard; nil leaves it to the stage outside
	shapes    *regexp.Regexp // of API keys
	keyHeader string         // that may carry an API key, beside Authorization
	proxies   *proxies
	uses      *keystore.Uses // nil without Options.Uses
	advises   bool           // by X-Should-Retry
	metadata  string         // Options.ResourceMetadata
	faults    sync.Map       // to *fault, by message
	hints     sync.Map       // that the log has
}

// hint says in the log, once, what the host may have forgotten.
func (p *reporter) hint(w http.ResponseWriter, r *http.Request, what string, attrs ...any) {
	if p.once(what) {
		p.logWith(w, r).Warn(what, attrs...)
	}
}

// once reports whether the log does not have a line yet, which the caller writes.
func (p *reporter) once(line string) bool {
	_, told := p.hints.LoadOrStore(line, true)
	return !told
}

// logWith returns the logger for what is about the response of w, with the request
// in each line. A client may have put its key into the path. The header is not
// looked at: a handler that outlives its request may be the caller.
func (p *reporter) logWith(w http.ResponseWriter, r *http.Request) *slog.Logger {
	x := exchangeOf(w)
	return p.hooks(x, r).logger().With("request_id", x.idOf(r), "method", p.method(r), "path", p.redact(r.URL.Path))
}

// contain calls a hook and logs its panic. x may be nil.
func (p *reporter) contain(x *exchange, r *http.Request, hook func()) {
	defer func() {
		if v := recover(); v != nil {
			p.logPanic(x, r, v)
		}
	}()
	hook()
}

// logPanic logs a panic while the response of x, or nil, was made.
func (p *reporter) logPanic(x *exchange, r *http.Request, v any) {
	secrets := p.secrets(x, r)
	// The first line names the goroutine and may have its labels. Arguments may
	// be bytes of a secret. What is left is the same for all requests.
	_, stack, _ := bytes.Cut(debug.Stack(), []byte("\n"))
	text := secrets.Redact(fmt.Sprintf("%+v", v))
	if text == redact.LeftOut {
		text = fmt.Sprintf("%T: %s", v, text)
	}
	p.hooks(x, r).logger().Error("panic while serving a request", "request_id", x.idOf(r), "method", p.method(r),
		"path", secrets.Redact(r.URL.Path), "panic", text,
		"stack", string(stackArguments.ReplaceAll(stack, []byte("(...)"))))
}

var stackArguments = regexp.MustCompile(`(?m)\([^()\n]*\)$`)

// fault counts the lines with one message.
type fault struct {
	next   atomic.Int64 // when the next line may be written, in nanoseconds since started; 0 before the first
	silent atomic.Int64 // lines suppressed since the last one
}

// fault logs a failure, each message at most once a second: otherwise each
// request of any client would write a line while a store fails. The error may
// quote the credentials.
func (p *reporter) fault(w http.ResponseWriter, r *http.Request, message string, err error) {
	p.sampled(w, r, slog.LevelError, message, err)
}

func (p *reporter) sampled(w http.ResponseWriter, r *http.Request, level slog.Level, message string, err error) {
	known, ok := p.faults.Load(message)
	if !ok {
		known, _ = p.faults.LoadOrStore(message, new(fault))
	}
	if unlogged, due := known.(*fault).due(); due {
		x := exchangeOf(w)
		text := p.secrets(x, r).Redact(fmt.Sprint(err))
		p.hooks(x, r).logger().Log(r.Context(), level, message,
			"error", text, "request_id", x.idOf(r), "pattern", r.Pattern, "unlogged", unlogged)
	}
}

var started = time.Now()

// due reports whether a line may be written now, and how many were suppressed.
func (f *fault) due() (unlogged int64, due bool) {
	now := int64(time.Since(started)) // monotonic: the wall clock may be set back
	next := f.next.Load()
	if next != 0 && now < next || !f.next.CompareAndSwap(next, now+int64(time.Second)) {
		f.silent.Add(1)
		return 0, false
	}
	return f.silent.Swap(0), true
}
