// Package codes has the refusals of the stages: their codes, and what stands in
// each.
package codes

import "time"

// Row is what a refusal says, where the stage adds nothing.
type Row struct {
	Status     int
	Detail     string
	RetryAfter time.Duration
	Again      Advice // whether to send the request again, with the same Idempotency-Key
}

// Advice is what X-Should-Retry says, a field that the SDKs of OpenAI and
// Anthropic obey. "" leaves it out: the client decides.
type Advice string

const (
	InVain Advice = "false" // a repeat gets no other answer, whenever it comes
	Helps  Advice = "true"  // nothing was decided yet
)

// Final is the advice on a stored response of a handler. Clients repeat these
// statuses, and get the same one.
func Final(status int) Advice {
	if status == 408 || status == 409 || status == 425 || status == 429 || status >= 500 {
		return InVain
	}
	return ""
}

// The codes of the refusals. They are part of the interface: a code is added,
// never renamed.
const (
	BadRequest         = "bad_request"
	SeveralCredentials = "several_credentials"
	KeyInvalid         = "idempotency_key_invalid"
	KeyRequired        = "idempotency_key_required"
	APIKeyMissing      = "api_key_missing"
	APIKeyInvalid      = "api_key_invalid"
	InsufficientScope  = "insufficient_scope"
	AddressNotAllowed  = "address_not_allowed"
	CallerNotAccepted  = "caller_not_accepted"
	QuotaExceeded      = "quota_exceeded"
	NotFound           = "not_found"
	MethodNotAllowed   = "method_not_allowed"
	InProgress         = "idempotency_in_progress"
	OutcomeUnknown     = "idempotency_outcome_unknown"
	NotRetained        = "idempotency_response_not_retained"
	Constraint         = "constraint_violated"
	BodyTooLarge       = "body_too_large"
	KeyReused          = "idempotency_key_reused"
	RateLimited        = "rate_limited"
	TooManyFailures    = "too_many_failures"
	TooManyConcurrent  = "too_many_concurrent"
	Internal           = "internal"
	KeyStore           = "key_store_unavailable"
	TooManyInFlight    = "too_many_in_flight"
	ReplyStore         = "idempotency_store_unavailable"
	ReplyStoreFull     = "idempotency_store_full"
	CommitUnknown      = "idempotency_commit_unknown"
	Interrupted        = "idempotency_interrupted"
	RateStore          = "rate_store_unavailable"

	// Of the answers that net/http gives itself; see RequestIDListener.
	Expectation    = "expectation_failed"
	HeaderTooLarge = "header_too_large"
	TransferCoding = "transfer_coding_not_supported"
	Version        = "http_version_not_supported"
)

// Table is the one table of refusals.
var Table = map[string]Row{
	BadRequest:         {Status: 400, Detail: "The request could not be read."},
	SeveralCredentials: {Status: 400, Detail: "The request carries credentials of several kinds. Send one kind."},
	KeyInvalid:         {Status: 400, Detail: "The Idempotency-Key header is not valid."},
	KeyRequired: {Status: 400, Detail: "This operation needs an Idempotency-Key header. " +
		"Choose a value that is unique to the operation, and send the same one when you retry."},

	APIKeyMissing: {Status: 401, Detail: "No credentials were sent. Send the header Authorization: Bearer YOUR_API_KEY."},
	APIKeyInvalid: {Status: 401, Detail: "The API key is not valid. Check that it is whole, " +
		"and that it has not been revoked."},

	InsufficientScope: {Status: 403, Detail: "The credentials lack a scope that this operation needs."},
	AddressNotAllowed: {Status: 403, Detail: "The API key may not be used from this address. " +
		"Its owner has named the networks that it may be used from."},
	CallerNotAccepted: {Status: 403, Detail: "The credentials are valid, but what they say about the caller cannot be " +
		"used here: the organization, a scope or another field is missing or not known."},
	QuotaExceeded: {Status: 403, Detail: "The units that may be used in this period do not suffice for the request. " +
		"The member resets_at says when the next period begins; without it there is none. Nothing was done.",
		Again: InVain},

	NotFound: {Status: 404, Detail: "There is nothing at this path."},
	MethodNotAllowed: {Status: 405, Detail: "This path does not answer to the request's method. " +
		"The Allow header lists those it answers to."},

	InProgress: {Status: 409, Detail: "The first request with this Idempotency-Key is still being worked on. " +
		"Retry after the wait to get its response.", RetryAfter: time.Second, Again: Helps},
	OutcomeUnknown: {Status: 409, Detail: "The first request with this Idempotency-Key was interrupted, " +
		"and whether it took effect is not known. Wait a minute, then look at the resource before you try again with a " +
		"new Idempotency-Key.",
		Again: InVain},
	NotRetained: {Status: 409, Detail: "The response to the first request with this Idempotency-Key cannot be " +
		"returned: it was a stream, cut short, too large or secret, there was no room for it, or it cannot be read any " +
		"more. The request is not carried out again.", Again: InVain},
	Constraint: {Status: 409, Detail: "The request breaks a rule of the data, such as a name that is to be unique, " +
		"and nothing of it was kept. Change it. The Idempotency-Key can be used again.", Again: InVain},

	BodyTooLarge: {Status: 413, Detail: "The request body is too large."},
	KeyReused: {Status: 422, Detail: "This Idempotency-Key was used for a different request. " +
		"It belongs to one method, host, path, query, Range, content type and body; use a new one for a new operation.",
		Again: InVain},

	RateLimited: {Status: 429, Detail: "Too many requests. Wait as long as the Retry-After header says.", Again: Helps},
	TooManyFailures: {Status: 429, Detail: "Too many requests with an invalid API key came from this address. " +
		"Wait as long as the Retry-After header says.", RetryAfter: time.Second},
	TooManyConcurrent: {Status: 429, Detail: "Too many requests of this organization are being worked on at once. " +
		"Retry when one of them has ended.", RetryAfter: time.Second, Again: Helps},

	Internal: {Status: 500, Detail: "Something went wrong on our side. Quote the request id to support."},

	KeyStore: {Status: 503, Detail: "The credentials cannot be checked at the moment. " +
		"They have not been refused: retry after the wait.", RetryAfter: time.Second, Again: Helps},
	TooManyInFlight: {Status: 503, Detail: "Too many operations of this organization are being worked on. " +
		"Nothing was done: retry after the wait.", RetryAfter: time.Second, Again: Helps},
	ReplyStore: {Status: 503, Detail: "The Idempotency-Key cannot be checked at the moment. " +
		"Nothing was done: retry after the wait with the same key.", RetryAfter: time.Second, Again: Helps},
	ReplyStoreFull: {Status: 503, Detail: "No more operations can be remembered at the moment. " +
		"Nothing was done: retry after the wait with the same Idempotency-Key.", RetryAfter: 5 * time.Second, Again: Helps},
	CommitUnknown: {Status: 503, Detail: "The operation was carried out or it was not; the database did not say. " +
		"Retry with the same Idempotency-Key to find out.", RetryAfter: time.Second, Again: Helps},
	Interrupted: {Status: 503, Detail: "The operation was interrupted, and whether it took effect is not known. " +
		"Look at the resource before you send the request again with a new Idempotency-Key.", Again: InVain},
	RateStore: {Status: 503, Detail: "The rate limit cannot be checked at the moment. " +
		"Nothing was done: retry after the wait.", RetryAfter: time.Second, Again: Helps},

	Expectation:    {Status: 417, Detail: "The only expectation that this server meets is 100-continue."},
	HeaderTooLarge: {Status: 431, Detail: "The header of the request is too large. Send less in it."},
	TransferCoding: {Status: 501, Detail: "The only transfer coding that this server reads is chunked."},
	Version:        {Status: 505, Detail: "This server speaks HTTP/1.1 and, where it is offered, HTTP/2."},
}
