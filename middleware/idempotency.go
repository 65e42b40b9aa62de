package middleware

import (
	"cmp"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/middleware/internal/keyed"
)

// IdempotencyOptions configure [Guard.Idempotent] and the idempotent routes of
// an [API]. In [RouteOptions] a field that is zero has the API's value.
type IdempotencyOptions struct {
	// Runner decides who runs and who waits, and has the store, the durations
	// and the limits of that. Nil means one on an idem.Memory, both with their
	// defaults; [Guard.Options] returns it. Its replies end with the process,
	// and no other replica has them: a line at level info says so.
	Runner *idem.Runner

	// Off takes all routes out of idempotency that have no Runner of their own:
	// an Idempotency-Key is ignored. The other fields must be zero.
	Off bool

	// Methods are the methods that are made idempotent; nil means POST. On others
	// the header is ignored. GET and HEAD are refused: they are idempotent.
	Methods []string

	// Required refuses requests without an Idempotency-Key with 400. What the
	// API requires, every idempotent route requires.
	Required bool

	// Partition returns a further part of what an Idempotency-Key belongs to,
	// beside tenant and subject: a project, or the name of the service where
	// several share a store. It may call [CallerFrom] and read the body: the
	// handler still gets all of it.
	Partition func(*http.Request) string

	// CanonicalHost returns the name of a service that has several hosts. A
	// repeat to another host is another request, and gets 422. Nil keeps the
	// host as sent.
	CanonicalHost func(host string) string

	// JSONByValue compares bodies of the types application/json and +json by
	// their value: members in another order, other spaces and escapes, 1.0 for 1,
	// and other parameters of the type are the same request. A body with a member
	// twice, in whatever letter case, with more than 100 levels or more than 64 KiB
	// is compared by its bytes. Leave it off unless a protocol asks for it: a
	// client that uses an Idempotency-Key for a second create, with the same value
	// in other bytes, gets the response of the first in place of a 422.
	//
	// To find a value takes 20 times the bytes of the body for a moment. They
	// count in MaxBodies, for four bodies at a time: the next waits up to a
	// second, and then gets 503.
	//
	// It can be switched on and off while a fleet serves: a repeat is compared as
	// the first request was. A version of this package without the option gives
	// 422 to repeats of what was stored by value: update all processes first.
	JSONByValue bool

	// MismatchStatus is the status for an Idempotency-Key that was used for
	// another request: 422 or 409; 0 means 422, as in the draft of the IETF.
	MismatchStatus int

	// EchoKey puts the Idempotency-Key of the request on each response of the
	// stage and its handler.
	EchoKey bool

	// MaxBody is the largest body that a request with an Idempotency-Key may have,
	// in bytes; 0 means 1 MiB. The body is in memory while the handler runs.
	MaxBody int64

	// MaxBodies is how many bytes all such bodies, and all responses that are
	// recorded while they stream, may take in this process: at least twice
	// MaxBody; 0 means 256 MiB. One tenant gets at most half: as much as it
	// leaves free. Beyond that its requests get 503, and its streams are
	// not recorded any more. A body of less than 4 KiB does not count, and one
	// whose Content-Length is over 256 KiB does before it is read. A route without
	// MaxBodies of its own shares the API's.
	MaxBodies int64

	// MaxResponse is the largest response body that is retained, in bytes; 0
	// means 1 MiB. A larger one is sent whole, once, and repeats get 409. In
	// joined mode it is in memory until it is sent.
	MaxResponse int

	// Streaming adds media types to those whose responses stream from the
	// handler's first flush on: text/event-stream, application/x-ndjson,
	// application/json-seq and multipart/x-mixed-replace. All others are held back
	// until they are saved. A route with an empty list that is not nil adds none
	// of the API's; so it is with FreeOn.
	Streaming []string

	// Timeout is how long the handler's context lives, which does not end when
	// the client leaves; 0 means 30 s. For a response that streams it begins
	// anew with each write, Context.Deadline returns none, and a client that takes
	// nothing for so long is cut off. A handler that limits a stream by a longer
	// timeout of its own derives that context after the first flush: before it,
	// package context sees that this Timeout is shorter.
	//
	// A handler that returns after its context has ended, by Timeout or by a
	// lost claim, may have stopped half-way. Its response counts only if it is
	//
	//   - a 4xx, or a 5xx unless the claim was lost,
	//   - one whose status was set after the end, and is not the 200 that layers
	//     and routers send for a handler that says nothing, or
	//   - one whose status was set before the end: 204, 304, or another with a
	//     Content-Length that the body has.
	//
	// Otherwise the client gets 503. In lease mode the code is
	// idempotency_interrupted, and repeats get 409. In joined mode the
	// transaction is rolled back, and a repeat runs. A stream is aborted.
	Timeout time.Duration

	// FreeOn are statuses by which a handler says that nothing happened: the
	// Idempotency-Key is free, and a repeat runs the handler again. By default
	// there is none, except in joined mode (see [Guard.Idempotent]): a handler may
	// have created something before it passed on the 429 of another service.
	// A 5xx frees no key whose claim was lost; [Execution.Free] does, for a request.
	FreeOn []int
}

// orElse returns o with the values of other in its zero fields.
func (o IdempotencyOptions) orElse(other IdempotencyOptions) IdempotencyOptions {
	fields, values := reflect.ValueOf(&o).Elem(), reflect.ValueOf(other)
	for i := range fields.NumField() {
		if fields.Field(i).IsZero() {
			fields.Field(i).Set(values.Field(i))
		}
	}
	return o
}

// defaultMaxBodies is MaxBodies where neither an API nor a route says one.
const defaultMaxBodies = 256 << 20

func (o IdempotencyOptions) withDefaults() IdempotencyOptions {
	if o.Off {
		return o // validate refuses what is set
	}
	return o.orElse(IdempotencyOptions{
		Methods: []string{http.MethodPost}, MismatchStatus: http.StatusUnprocessableEntity,
		MaxBody: 1 << 20, MaxBodies: defaultMaxBodies, MaxResponse: 1 << 20, Timeout: 30 * time.Second,
	})
}

func (o IdempotencyOptions) validate() error {
	var m mistakes
	m.when(o.Off && !reflect.DeepEqual(o, IdempotencyOptions{Off: true}), "it is Off, and another field is set")
	m.when(o.Methods != nil && len(o.Methods) == 0, "the field Methods is empty and not nil")
	for _, method := range o.Methods {
		m.when(!validToken(method) || method != strings.ToUpper(method),
			"%q in Methods is not a method; methods are in capital letters", method)
		m.when(method == http.MethodGet || method == http.MethodHead,
			"leave %s out of Methods: it is idempotent by itself", method)
	}
	m.when(o.MaxBody < 0 || o.MaxBodies < 0 || o.MaxResponse < 0 || o.Timeout < 0,
		"MaxBody, MaxBodies, MaxResponse or Timeout is negative")
	m.when(cmp.Or(o.MaxBodies, defaultMaxBodies)/2 < o.MaxBody,
		"MaxBodies, which is 256 MiB if it is 0, is smaller than twice MaxBody")
	statuses := []int{0, http.StatusConflict, http.StatusUnprocessableEntity}
	m.when(!slices.Contains(statuses, o.MismatchStatus), "MismatchStatus is %d; it is 422 or 409", o.MismatchStatus)
	for _, mediaType := range o.Streaming {
		main, sub, _ := strings.Cut(mediaType, "/")
		m.when(!validToken(main) || !validToken(sub), "%q in Streaming is not a media type without parameters", mediaType)
	}
	for _, status := range o.FreeOn {
		m.when(status < 400 || status > 599, "FreeOn has %d, which is no status of a failure", status)
	}
	return errors.Join(m...)
}

// idempotency is an IdempotencyOptions made ready.
type idempotency struct {
	IdempotencyOptions
	stage   keyed.Stage
	wait    time.Duration // the longest that a request may wait, run and be settled
	ignored sync.Once     // the log has that a key was ignored
}
