package middleware

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/scope"
)

// A Problem is a refusal, as RFC 9457 (Problem Details for HTTP APIs) describes
// one. The members of the default body are named in the comments.
type Problem struct {
	Status int    // "status"; "type" is always "about:blank" and "title" the status's own phrase (RFC 9457, section 4.2.1)
	Code   string // "code": stable, for programs
	Detail string // "detail": what was wrong and what to do, for people

	RequestID string // "request_id"; left out when empty

	// RetryAfter is the wait that the Retry-After header tells: whole seconds,
	// rounded up, at least 1. Zero means no header.
	RetryAfter time.Duration

	// Challenge is the WWW-Authenticate header, or "".
	Challenge string

	Policy  string       // "policy": the rate limit that refused
	Missing []scope.Name // "missing_scopes"; not to be written to

	OriginalStatus   int    // "original_status" and "original_location": what is left of
	OriginalLocation string // a response that was not retained
}

// The codes of the refusals. They are part of the interface: a code is added,
// never renamed.
const (
	codeBadRequest        = "bad_request"
	codeKeyInvalid        = "idempotency_key_invalid"
	codeKeyRequired       = "idempotency_key_required"
	codeAPIKeyMissing     = "api_key_missing"
	codeAPIKeyInvalid     = "api_key_invalid"
	codeInsufficientScope = "insufficient_scope"
	codeNotFound          = "not_found"
	codeMethodNotAllowed  = "method_not_allowed"
	codeInProgress        = "idempotency_in_progress"
	codeOutcomeUnknown    = "idempotency_outcome_unknown"
	codeNotRetained       = "idempotency_response_not_retained"
	codeBodyTooLarge      = "body_too_large"
	codeKeyReused         = "idempotency_key_reused"
	codeRateLimited       = "rate_limited"
	codeTooManyFailures   = "too_many_failures"
	codeTooManyConcurrent = "too_many_concurrent"
	codeInternal          = "internal"
	codeKeyStore          = "key_store_unavailable"
	codeTooManyInFlight   = "too_many_in_flight"
	codeReplyStore        = "idempotency_store_unavailable"
	codeReplyStoreFull    = "idempotency_store_full"
	codeCommitUnknown     = "idempotency_commit_unknown"
	codeRateStore         = "rate_store_unavailable"

	// Of the answers that net/http gives itself; see Harden.
	codeExpectation    = "expectation_failed"
	codeHeaderTooLarge = "header_too_large"
	codeTransferCoding = "transfer_coding_not_supported"
	codeVersion        = "http_version_not_supported"
)

// problems is the one table of refusals.
var problems = map[string]Problem{
	codeBadRequest:  {Status: 400, Detail: "The request could not be read."},
	codeKeyInvalid:  {Status: 400, Detail: "The Idempotency-Key header is not valid."},
	codeKeyRequired: {Status: 400, Detail: "This operation needs an Idempotency-Key header. Choose a value that is unique to the operation, and send the same one when you retry."},

	codeAPIKeyMissing: {Status: 401, Detail: "No API key was sent. Send the header Authorization: Bearer YOUR_API_KEY."},
	codeAPIKeyInvalid: {Status: 401, Detail: "The API key is not valid. Check that it is whole, and that it has not been revoked."},

	codeInsufficientScope: {Status: 403, Detail: "The API key lacks a scope that this operation needs."},

	codeNotFound:         {Status: 404, Detail: "There is nothing at this path."},
	codeMethodNotAllowed: {Status: 405, Detail: "This path does not answer to the request's method. The Allow header lists those it answers to."},

	codeInProgress:     {Status: 409, Detail: "The first request with this Idempotency-Key is still being worked on. Retry after the wait to get its response.", RetryAfter: time.Second},
	codeOutcomeUnknown: {Status: 409, Detail: "The first request with this Idempotency-Key was interrupted, and whether it took effect is not known. Look at the resource before you try again with a new key."},
	codeNotRetained:    {Status: 409, Detail: "The first request with this Idempotency-Key was completed, but its response was not kept: it was too large, streamed or cut short, or there was no room for it."},

	codeBodyTooLarge: {Status: 413, Detail: "The request body is too large."},
	codeKeyReused:    {Status: 422, Detail: "This Idempotency-Key was used for a different request. A key belongs to one method, path, query, content type and body; use a new key for a new operation."},

	codeRateLimited:       {Status: 429, Detail: "Too many requests. Wait as long as the Retry-After header says."},
	codeTooManyFailures:   {Status: 429, Detail: "Too many requests with an invalid API key came from this address. Wait as long as the Retry-After header says.", RetryAfter: time.Second},
	codeTooManyConcurrent: {Status: 429, Detail: "Too many requests of this organization are being worked on at once. Retry when one of them has ended.", RetryAfter: time.Second},

	codeInternal: {Status: 500, Detail: "Something went wrong on our side. Quote the request id to support."},

	codeKeyStore:        {Status: 503, Detail: "The API key cannot be checked at the moment. It has not been refused: retry after the wait.", RetryAfter: time.Second},
	codeTooManyInFlight: {Status: 503, Detail: "Too many operations of this organization are being worked on. Nothing was done: retry after the wait.", RetryAfter: time.Second},
	codeReplyStore:      {Status: 503, Detail: "The Idempotency-Key cannot be checked at the moment. Nothing was done: retry after the wait with the same key.", RetryAfter: time.Second},
	codeReplyStoreFull:  {Status: 503, Detail: "No more operations can be remembered at the moment. Nothing was done: retry after the wait with the same key.", RetryAfter: 5 * time.Second},
	codeCommitUnknown:   {Status: 503, Detail: "The operation was carried out or it was not; the database did not say. Retry with the same Idempotency-Key to find out.", RetryAfter: time.Second},
	codeRateStore:       {Status: 503, Detail: "The rate limit cannot be checked at the moment. Nothing was done: retry after the wait.", RetryAfter: time.Second},

	codeExpectation:    {Status: 417, Detail: "The only expectation that this server meets is 100-continue."},
	codeHeaderTooLarge: {Status: 431, Detail: "The header of the request is too large. Send less in it."},
	codeTransferCoding: {Status: 501, Detail: "The only transfer coding that this server reads is chunked."},
	codeVersion:        {Status: 505, Detail: "This server speaks HTTP/1.1 and, where it is offered, HTTP/2."},
}

// problem returns the table's row of a code.
func problem(code string) Problem {
	p := problems[code]
	p.Code = code
	return p
}

// WriteProblem answers with p. Handlers use it so that their refusals look like
// the stages' own; the request id is filled in, and a response that was
// committed already is left alone, with a line in the log. An empty Detail is left
// out of the body.
func WriteProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	s := stateFrom(r.Context())
	if s == nil {
		s = &state{Context: r.Context()}
	}
	s.writeProblem(w, r, p)
}

// refuse answers with p on behalf of a stage.
func (s *state) refuse(w http.ResponseWriter, r *http.Request, stage Stage, p Problem) {
	s.observe(Event{Stage: stage, Outcome: p.Code, Policy: p.Policy, Wait: p.RetryAfter})
	s.writeProblem(w, r, p)
}

func (s *state) writeProblem(w http.ResponseWriter, r *http.Request, p Problem) {
	if begun(w) {
		w.WriteHeader(p.Status) // which only logs it as superfluous
		return
	}
	p.RequestID = s.id
	h := w.Header()
	// Of this response alone, since whoever stands outside may change them in place.
	values := &[...]string{problemType, "no-store", p.Challenge, ""}
	h["Cache-Control"] = values[1:2:2]
	if p.Challenge != "" {
		h["Www-Authenticate"] = values[2:3:3]
	}
	if p.RetryAfter > 0 {
		values[3] = seconds(p.RetryAfter)
		h["Retry-After"] = values[3:]
	}
	if s.key == nil && s.http1 && r.ContentLength != 0 {
		// Somebody without a key does not get to hold the response back by not
		// sending the body that the server would read before it answers.
		h["Connection"] = []string{"close"}
	}
	if s.hooks != nil && s.hooks.Problem != nil && !s.hooked {
		// Not a second time within the hook, nor for its own panic.
		s.hooked = true
		hooked := &hookWriter{ResponseWriter: w, status: p.Status}
		s.hooks.Problem(hooked, s.attach(r), p)
		s.hooked = false
		if hooked.wrote {
			return
		}
	}
	p.writeTo(w, values[:1:1], s.hooks != nil && s.hooks.ErrorObject)
}

// begun reports whether the response is committed, where a writer of this package
// knows.
func begun(w http.ResponseWriter) bool {
	for {
		switch t := w.(type) {
		case interface{ core() *writer }:
			if t.core().committed {
				return true
			}
			w = t.core().below
		case *recorder:
			return t.status != 0
		case interface{ Unwrap() http.ResponseWriter }:
			w = t.Unwrap()
		default:
			return false
		}
	}
}

// hookWriter notices whether a Problem hook wrote anything. A hook that begins with
// the body means the problem's status: a refusal is never an implicit 200.
type hookWriter struct {
	http.ResponseWriter
	status int
	wrote  bool
}

func (w *hookWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *hookWriter) WriteHeader(status int) {
	w.wrote = true
	w.ResponseWriter.WriteHeader(status)
}

func (w *hookWriter) Write(p []byte) (int, error) {
	if !w.wrote {
		w.WriteHeader(w.status)
	}
	return w.ResponseWriter.Write(p)
}

func (w *hookWriter) FlushError() error {
	if !w.wrote {
		w.WriteHeader(w.status)
	}
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// WriteTo writes p as application/problem+json.
func (p Problem) WriteTo(w http.ResponseWriter) { p.writeTo(w, []string{problemType}, false) }

func (p *Problem) writeTo(w http.ResponseWriter, contentType []string, errorObject bool) {
	h := w.Header()
	h["Content-Type"] = contentType
	delete(h, "Content-Length") // of a response that the handler had in mind before
	body := bodies.Get().(*[]byte)
	*body = p.append((*body)[:0], errorObject)
	w.WriteHeader(p.Status)
	_, _ = w.Write(*body) // the client has left: nobody to tell
	if cap(*body) <= 4<<10 {
		bodies.Put(body)
	}
}

const problemType = "application/problem+json"

var bodies = sync.Pool{New: func() any {
	body := make([]byte, 0, 512)
	return &body
}}

// append writes the body by hand: a refusal has to be cheaper than what it
// refuses, and encoding/json would cost more than the rest of the stage.
func (p *Problem) append(b []byte, errorObject bool) []byte {
	b = append(b, `{"type":"about:blank","title":"`...)
	b = append(b, http.StatusText(p.Status)...)
	b = append(b, `","status":`...)
	b = strconv.AppendInt(b, int64(p.Status), 10)
	if p.Detail != "" {
		b = append(b, `,"detail":`...)
		b = appendString(b, p.Detail)
	}
	b = append(b, `,"code":`...)
	b = appendString(b, p.Code)
	if p.RequestID != "" {
		b = append(b, `,"request_id":`...)
		b = appendString(b, p.RequestID)
	}
	if p.Policy != "" {
		b = append(b, `,"policy":`...)
		b = appendString(b, p.Policy)
	}
	if len(p.Missing) > 0 {
		b = append(b, `,"missing_scopes":[`...)
		for i, name := range p.Missing {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendString(b, string(name))
		}
		b = append(b, ']')
	}
	if p.OriginalStatus != 0 {
		b = append(b, `,"original_status":`...)
		b = strconv.AppendInt(b, int64(p.OriginalStatus), 10)
	}
	if p.OriginalLocation != "" {
		b = append(b, `,"original_location":`...)
		b = appendString(b, p.OriginalLocation)
	}
	if errorObject {
		b = append(b, `,"error":{"type":`...)
		b = appendString(b, errorType(p.Status))
		b = append(b, `,"code":`...)
		b = appendString(b, p.Code)
		b = append(b, `,"message":`...)
		b = appendString(b, p.Detail)
		b = append(b, '}')
	}
	return append(b, '}', '\n')
}

// errorType sorts statuses the way clients of "error" objects switch on them.
func errorType(status int) string {
	switch {
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status == http.StatusConflict || status == http.StatusUnprocessableEntity:
		return "idempotency_error"
	case status < 500:
		return "invalid_request_error"
	}
	return "api_error"
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c-0x20 >= utf8.RuneSelf-0x20 || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// seconds formats a wait for Retry-After: RFC 9110 wants whole seconds, clients
// retry at once on 0, and rounding down would send them back too early.
func seconds(d time.Duration) string {
	return strconv.FormatInt(max(ceilSeconds(d), 1), 10)
}

func quote(s string) string { return strconv.Quote(s) }

// Codes returns the codes of all refusals, sorted.
func Codes() []string {
	codes := make([]string, 0, len(problems))
	for code := range problems {
		codes = append(codes, code)
	}
	slices.Sort(codes)
	return codes
}
