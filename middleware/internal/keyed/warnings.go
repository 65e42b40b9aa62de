package keyed

import (
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/sallyport-go/sallyport/idem"
)

// Warnings tell the operator what handlers and adapters do wrong. All stages
// with one Runner share them: some routers apply a stage anew for each request.
type Warnings struct {
	once func(warning string) bool // reports whether the log does not have it yet

	// falses has the last keys whose stored reply is known to be false, and until
	// when.
	falses *lru.Cache[idem.Key, time.Time]
}

// NewWarnings returns Warnings of which once says which are due.
func NewWarnings(once func(warning string) bool) *Warnings {
	falses, _ := lru.New[idem.Key, time.Time](1024) // an error only for a size that is not positive
	return &Warnings{once, falses}
}

// retried are statuses with which a handler tells the client to retry.
var retried = []int{
	http.StatusTooEarly, http.StatusTooManyRequests,
	http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
}

// stored warns of a stored response that cannot be meant: once a route and
// status of one that tells the client to retry, and once a route of one that the
// handler did not write.
func (t *Warnings) stored(log func() *slog.Logger, r *http.Request, status int, kept, empty bool) {
	switch {
	case kept && slices.Contains(retried, status) && t.first(strconv.Itoa(status), r):
		log().Warn("a handler answered a keyed request with a status that asks for a retry, and the response was "+
			"stored: a retry with the same Idempotency-Key gets it again. If nothing happened before it, call "+
			"middleware.Execution.Free, or name the status in IdempotencyOptions.FreeOn. What runs in an "+
			"http.TimeoutHandler may have happened: take IdempotencyOptions.Timeout in its place",
			"status", status, "pattern", r.Pattern)
	case empty && t.first("empty", r):
		log().Warn("the handler of a keyed request wrote nothing, and an empty 200 was stored. If it wrote its "+
			"response elsewhere, an adapter between router and stage hands on the request and not the writer: "+
			"hand on both. If it is meant, call WriteHeader", "pattern", r.Pattern)
	}
}

// unretained warns, once a route and reason, of a response that repeats do not
// get.
func (t *Warnings) unretained(log func() *slog.Logger, r *http.Request, why string) {
	if t.first(why, r) {
		log().Warn("the response to a keyed request is not retained, and repeats get 409",
			"reason", why, "pattern", r.Pattern)
	}
}

// first reports whether the log has this warning for the route not yet.
func (t *Warnings) first(what string, r *http.Request) bool {
	return t.once(what + " " + r.Method + " " + r.Pattern)
}

// late reports a response that was written after the stage had ended. An empty
// 200 was stored and sent, which is not what the handler decided.
func (t *Warnings) late(log func() *slog.Logger, key idem.Key, retention time.Duration) {
	log().Error("the response to a keyed request was written after the Idempotent stage had ended; the client got " +
		"an empty 200, and repeats get 409. An adapter lets the router write its errors too late: write them inside " +
		"the handler that the stage wraps, or put the stage around the whole router")
	t.addFalse(key, retention)
}

// past reports a response that the client got in place of the handler's.
func (t *Warnings) past(log func() *slog.Logger) {
	log().Error("the response to a keyed request was sent past the Idempotent stage, " +
		"so it was not stored, and repeats get 409. An adapter between router and stage hands on the request " +
		"and not the writer, or a writer of which some methods go past the stage")
}

// addFalse remembers a key whose stored reply is false, so that it is not
// repeated.
func (t *Warnings) addFalse(key idem.Key, retention time.Duration) {
	t.falses.Add(key, time.Now().Add(retention))
}

// IsFalse reports whether the stored reply of a key is known to be false.
func (t *Warnings) IsFalse(key idem.Key) bool {
	until, known := t.falses.Peek(key)
	return known && time.Now().Before(until)
}
