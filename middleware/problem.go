package middleware

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/ratefields"
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
	Missing []scope.Name // "missing_scopes"

	OriginalStatus   int    // "original_status" and "original_location": what is left of
	OriginalLocation string // a response that was not retained

	key  string // id of the API key that is refused, for the Event only
	head *head  // nil, or of a Problem with this status, detail and code
}

// The codes of the refusals. They are part of the interface: a code is added,
// never renamed.
const (
	codeBadRequest         = "bad_request"
	codeSeveralCredentials = "several_credentials"
	codeKeyInvalid         = "idempotency_key_invalid"
	codeKeyRequired        = "idempotency_key_required"
	codeAPIKeyMissing      = "api_key_missing"
	codeAPIKeyInvalid      = "api_key_invalid"
	codeInsufficientScope  = "insufficient_scope"
	codeAddressNotAllowed  = "address_not_allowed"
	codeCallerNotAccepted  = "caller_not_accepted"
	codeNotFound           = "not_found"
	codeMethodNotAllowed   = "method_not_allowed"
	codeInProgress         = "idempotency_in_progress"
	codeOutcomeUnknown     = "idempotency_outcome_unknown"
	codeNotRetained        = "idempotency_response_not_retained"
	codeBodyTooLarge       = "body_too_large"
	codeKeyReused          = "idempotency_key_reused"
	codeRateLimited        = "rate_limited"
	codeTooManyFailures    = "too_many_failures"
	codeTooManyConcurrent  = "too_many_concurrent"
	codeInternal           = "internal"
	codeKeyStore           = "key_store_unavailable"
	codeTooManyInFlight    = "too_many_in_flight"
	codeReplyStore         = "idempotency_store_unavailable"
	codeReplyStoreFull     = "idempotency_store_full"
	codeCommitUnknown      = "idempotency_commit_unknown"
	codeRateStore          = "rate_store_unavailable"

	// Of the answers that net/http gives itself; see RequestIDListener.
	codeExpectation    = "expectation_failed"
	codeHeaderTooLarge = "header_too_large"
	codeTransferCoding = "transfer_coding_not_supported"
	codeVersion        = "http_version_not_supported"
)

// problems is the one table of refusals.
var problems = complete(map[string]*Problem{
	codeBadRequest:         {Status: 400, Detail: "The request could not be read."},
	codeSeveralCredentials: {Status: 400, Detail: "The request carries credentials of several kinds. Send one kind."},
	codeKeyInvalid:         {Status: 400, Detail: "The Idempotency-Key header is not valid."},
	codeKeyRequired:        {Status: 400, Detail: "This operation needs an Idempotency-Key header. Choose a value that is unique to the operation, and send the same one when you retry."},

	codeAPIKeyMissing: {Status: 401, Detail: "No credentials were sent. Send the header Authorization: Bearer YOUR_API_KEY."},
	codeAPIKeyInvalid: {Status: 401, Detail: "The API key is not valid. Check that it is whole, and that it has not been revoked."},

	codeInsufficientScope: {Status: 403, Detail: "The credentials lack a scope that this operation needs."},
	codeAddressNotAllowed: {Status: 403, Detail: "The API key may not be used from this address. Its owner has named the networks that it may be used from."},
	codeCallerNotAccepted: {Status: 403, Detail: "The credentials are valid, but what they say about the caller cannot be used here: the organization, a scope or another field is missing or not known."},

	codeNotFound:         {Status: 404, Detail: "There is nothing at this path."},
	codeMethodNotAllowed: {Status: 405, Detail: "This path does not answer to the request's method. The Allow header lists those it answers to."},

	codeInProgress:     {Status: 409, Detail: "The first request with this Idempotency-Key is still being worked on. Retry after the wait to get its response.", RetryAfter: time.Second},
	codeOutcomeUnknown: {Status: 409, Detail: "The first request with this Idempotency-Key was interrupted, and whether it took effect is not known. Look at the resource before you try again with a new key."},
	codeNotRetained:    {Status: 409, Detail: "The first request with this Idempotency-Key was completed, but its response was not kept: it was too large, streamed, cut short or secret, or there was no room for it."},

	codeBodyTooLarge: {Status: 413, Detail: "The request body is too large."},
	codeKeyReused:    {Status: 422, Detail: "This Idempotency-Key was used for a different request. A key belongs to one method, host, path, query, Range, content type and body; use a new key for a new operation."},

	codeRateLimited:       {Status: 429, Detail: "Too many requests. Wait as long as the Retry-After header says."},
	codeTooManyFailures:   {Status: 429, Detail: "Too many requests with an invalid API key came from this address. Wait as long as the Retry-After header says.", RetryAfter: time.Second},
	codeTooManyConcurrent: {Status: 429, Detail: "Too many requests of this organization are being worked on at once. Retry when one of them has ended.", RetryAfter: time.Second},

	codeInternal: {Status: 500, Detail: "Something went wrong on our side. Quote the request id to support."},

	codeKeyStore:        {Status: 503, Detail: "The credentials cannot be checked at the moment. They have not been refused: retry after the wait.", RetryAfter: time.Second},
	codeTooManyInFlight: {Status: 503, Detail: "Too many operations of this organization are being worked on. Nothing was done: retry after the wait.", RetryAfter: time.Second},
	codeReplyStore:      {Status: 503, Detail: "The Idempotency-Key cannot be checked at the moment. Nothing was done: retry after the wait with the same key.", RetryAfter: time.Second},
	codeReplyStoreFull:  {Status: 503, Detail: "No more operations can be remembered at the moment. Nothing was done: retry after the wait with the same key.", RetryAfter: 5 * time.Second},
	codeCommitUnknown:   {Status: 503, Detail: "The operation was carried out or it was not; the database did not say. Retry with the same Idempotency-Key to find out.", RetryAfter: time.Second},
	codeRateStore:       {Status: 503, Detail: "The rate limit cannot be checked at the moment. Nothing was done: retry after the wait.", RetryAfter: time.Second},

	codeExpectation:    {Status: 417, Detail: "The only expectation that this server meets is 100-continue."},
	codeHeaderTooLarge: {Status: 431, Detail: "The header of the request is too large. Send less in it."},
	codeTransferCoding: {Status: 501, Detail: "The only transfer coding that this server reads is chunked."},
	codeVersion:        {Status: 505, Detail: "This server speaks HTTP/1.1 and, where it is offered, HTTP/2."},
})

func complete(problems map[string]*Problem) map[string]*Problem {
	for code, p := range problems {
		p.Code = code
		p.makeHead()
	}
	return problems
}

// refusal returns a copy of the table's row of a code.
func refusal(code string) *Problem {
	p := *problems[code]
	return &p
}

func (p *Problem) of(key *keystore.Key) *Problem {
	p.key = key.ID
	return p
}

// Error makes a *Problem an error, so that an [Authenticator] can return one.
func (p *Problem) Error() string { return "middleware: " + p.Code + ": " + p.Detail }

const problemType = "application/problem+json"

// append writes the body by hand, because encoding/json would cost more than
// the rest of the stage.
func (p *Problem) append(b []byte) []byte {
	if h := p.head; h != nil && h.status == p.Status && h.detail == p.Detail && h.code == p.Code {
		b = append(b, h.body...)
	} else {
		b = p.appendHead(b)
	}
	b = appendMember(b, "request_id", p.RequestID)
	b = appendMember(b, "policy", p.Policy)
	for i, name := range p.Missing {
		b = append(b, [...]string{`,"missing_scopes":[`, `,`}[min(i, 1)]...)
		b = appendString(b, string(name))
	}
	if len(p.Missing) > 0 {
		b = append(b, ']')
	}
	if p.OriginalStatus != 0 {
		b = strconv.AppendInt(append(b, `,"original_status":`...), int64(p.OriginalStatus), 10)
	}
	b = appendMember(b, "original_location", p.OriginalLocation)
	return append(b, '}', '\n')
}

func (p *Problem) appendHead(b []byte) []byte {
	b = append(b, `{"type":"about:blank"`...)
	b = appendMember(b, "title", http.StatusText(p.Status))
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Status), 10)
	b = appendMember(b, "detail", p.Detail)
	return appendMember(b, "code", p.Code)
}

// A head is the start of a body, made in advance for the problems that are sent
// often: a refusal has to be cheaper than what it refuses. It depends on
// nothing but these fields.
type head struct {
	status       int
	detail, code string
	body         string
}

func (p *Problem) makeHead() {
	p.head = &head{p.Status, p.Detail, p.Code, string(p.appendHead(nil))}
}

// appendMember appends a member of an object, unless its value is "".
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value)
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
	return strconv.FormatInt(max(ratefields.CeilSeconds(d), 1), 10)
}

// Codes returns the codes of all refusals with their statuses.
func Codes() map[string]int {
	codes := make(map[string]int, len(problems))
	for code, p := range problems {
		codes[code] = p.Status
	}
	return codes
}
