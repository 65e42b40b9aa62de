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
	JSONByValue bool // a first request whose body has a value is known by it

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
	Attempt   int    // of the execution, 1 or more
	Units     *Units // that its operation uses; nil for none

	Waiting time.Time // when it began to wait for the first one with its key; zero if it did not
	Dropped bool      // its body was released meanwhile

	byBytes, byValue [32]byte // byValue is zero where there is none
	valued           bool     // byValue is known
}

// Fingerprint returns what the request is known by where it is the first with
// its key. The error is that of [Body.Compute].
func (q *Request) Fingerprint() (f [32]byte, err error) {
	q.Content.Body = q.Body.Bytes
	q.byBytes = q.Content.Fingerprint()
	if q.Stage.JSONByValue {
		if err = q.findValue(); q.byValue != [32]byte{} {
			return q.byValue, nil
		}
	}
	return q.byBytes, err
}

// Repeats reports whether the request is the same as the first with its key,
// which has a fingerprint of the one or the other kind, whatever JSONByValue is
// here. The error is that of [Body.Compute].
func (q *Request) Repeats(first [32]byte) (same bool, err error) {
	if repeat.IsByValue(first) {
		err = q.findValue()
	}
	return first == q.byBytes || first == q.byValue, err
}

func (q *Request) findValue() (err error) {
	if room := q.Content.ValueRoom(); room > 0 && !q.valued {
		err = q.Body.Compute(q.R.Context(), room, func() { q.byValue, _ = q.Content.ByValue() })
		q.valued = err == nil
	}
	return err
}

// waitingBody is the largest body that a request keeps while it waits for the
// first one with its key, unless it has a value, which may be asked for then.
const waitingBody = 16 << 10

// Wait is called when the request is about to wait. It releases a large body:
// many may wait. Should the first request free the key, such a request is told
// to come again.
func (q *Request) Wait() {
	if q.Waiting.IsZero() {
		q.Waiting = time.Now()
	}
	if len(q.Body.Bytes) > waitingBody && q.Content.ValueRoom() == 0 {
		q.Content.Body = nil
		q.Body.Release()
		q.Dropped = true
	}
}

func (q *Request) log() *slog.Logger { return q.Stage.Log(q.W, q.R) }
