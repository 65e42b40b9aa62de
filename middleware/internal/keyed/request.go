package keyed

import (
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/repeat"
	"github.com/sallyport-go/sallyport/middleware/internal/response"
)

// Stage is what the requests of an Idempotent stage share.
type Stage struct {
	MaxBody     int64 // bytes of a request's body
	Bodies      *Bodies
	MaxResponse int           // bytes of a response's body that are retained
	Timeout     time.Duration // of the handler
	Retention   time.Duration // of a stored response
	Join        bool          // each run is a transaction
	FreeOn      []int         // statuses by which a handler says that nothing happened
	OriginalID  string        // header of a replay that has the id of the first response
	Streaming   []string      // media types whose responses are sent as they are flushed, beside the usual ones
	Warnings    *Warnings
	Advises     bool // by ShouldRetry
	JSONByValue bool // a first request with a body of JSON is known by its value

	// The functions get the writer and the request that the stage was given.

	// Log returns a logger whose lines say which request they are about.
	Log func(http.ResponseWriter, *http.Request) *slog.Logger
	// Failed logs what became of a transaction, and why.
	Failed func(w http.ResponseWriter, r *http.Request, level slog.Level, what string, err error)
	// Panicked logs a panic of the handler.
	Panicked func(w http.ResponseWriter, r *http.Request, p any)
	// Answer500 writes the response for a panic.
	Answer500 func(http.ResponseWriter, *http.Request)
}

// usualStreaming are the media types that stream everywhere.
var usualStreaming = []string{
	"text/event-stream", "application/x-ndjson", "application/json-seq", "multipart/x-mixed-replace",
}

// streams reports whether responses of a Content-Type are sent as they are
// flushed.
func (s *Stage) streams(contentType string) bool {
	mediaType, _, _ := strings.Cut(contentType, ";")
	mediaType = strings.TrimSpace(mediaType)
	is := func(t string) bool { return strings.EqualFold(t, mediaType) }
	return slices.ContainsFunc(usualStreaming, is) || slices.ContainsFunc(s.Streaming, is)
}

// Request is a request with an Idempotency-Key.
type Request struct {
	Stage     *Stage
	W         http.ResponseWriter
	R         *http.Request
	Response  *response.Writer // of R, or of the request that it is made in
	Key       idem.Key
	Body      Body
	Content   repeat.Content // but for its body
	Execution *idem.Execution
	Attempt   int // of the execution, 1 or more

	Waiting time.Time // when it began to wait for the first one with its key; zero if it did not
	Dropped bool      // its body was released meanwhile

	byBytes, byValue [32]byte // byValue is zero until it is needed, and where there is none
	compared         bool     // both are known
}

// ReadBody reads the whole body, on the account of a tenant; see [Bodies.Read].
func (q *Request) ReadBody(tenant string) error {
	return q.Stage.Bodies.Read(&q.Body, tenant, q.W, q.R, q.Stage.MaxBody)
}

// Fingerprint returns what the request is known by where it is the first with
// its key.
func (q *Request) Fingerprint() [32]byte {
	q.Content.Body = q.Body.Bytes
	q.byBytes = q.Content.Fingerprint()
	if q.Stage.JSONByValue && q.compare() {
		return q.byValue
	}
	return q.byBytes
}

// Other returns the fingerprint that the request would have at a stage with
// another JSONByValue, if there is one. No bytes have a fingerprint by value, so
// a record needs no mark of its form: it has the one or the other.
func (q *Request) Other() (f [32]byte, ok bool) {
	if ok = q.compare(); ok && !q.Stage.JSONByValue {
		return q.byValue, true
	}
	return q.byBytes, ok
}

// compare reports whether there is a fingerprint by value.
func (q *Request) compare() bool {
	if !q.compared {
		q.compared = true
		q.byValue, _ = q.Content.ByValue()
	}
	return q.byValue != [32]byte{}
}

// waitingBody is the largest body that a request keeps while it waits for the
// first one with its key.
const waitingBody = 16 << 10

// Wait is called when the request is about to wait. It releases a large body:
// many may wait. Should the first request free the key, such a request is told
// to come again.
func (q *Request) Wait() {
	if q.Waiting.IsZero() {
		q.Waiting = time.Now()
	}
	if len(q.Body.Bytes) > waitingBody {
		q.compare() // now, while the body is there
		q.Content.Body = nil
		q.Body.Release()
		q.Dropped = true
	}
}

func (q *Request) log() *slog.Logger { return q.Stage.Log(q.W, q.R) }
