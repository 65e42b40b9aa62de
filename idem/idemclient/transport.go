// Package idemclient is for programs that call an API with Idempotency-Keys. It
// sends a request again until it is answered, always under one key.
//
//	client := &http.Client{Transport: &idemclient.Transport{}}
//
//	send := func(ctx context.Context, job, body string) error {
//		ctx = idemclient.WithKey(ctx, job) // also when the job starts again
//		r, err := http.NewRequestWithContext(ctx, "POST", parcels, strings.NewReader(body))
//		if err != nil {
//			return err
//		}
//		res, err := client.Do(r)
//		if unknown, ok := errors.AsType[*idemclient.UnknownError](err); ok {
//			return fmt.Errorf("run job %s again: %w", unknown.Key, err)
//		}
//		if err != nil {
//			return err
//		}
//		defer res.Body.Close()
//		answer, err := io.ReadAll(res.Body)
//		fmt.Printf("%s: %s\n", res.Status, answer)
//		return err
//	}
//
//	if err := send(ctx, "job-4711", `{"to":"Lisbon"}`); err != nil {
//		log.Print(err)
//	}
//
// A POST without a key gets a new one, which is in the response's Request. All
// tries keep it, and so does a redirect with 307 or 308, also to another host:
// set http.Client.CheckRedirect where that must not be. Another call of Do makes
// another key: a program that itself repeats calls needs [WithKey]. Requests with
// other methods, safe ones aside, are sent once, unless WithKey, their header or
// [Transport.Methods] gives them a key.
//
// # What is repeated
//
// A try without a whole answer is, and so are the statuses 408, 425, 429, 500,
// 502, 503 and 504, 409 with Retry-After, and a refusal with X-Should-Retry: true.
// X-Should-Retry: false and Idempotent-Replayed: true make an answer final.
//
// The wait is what Retry-After asks for, and random time on top: up to half a
// second before the second try, twice as much before each further one. A wait
// for which the context's deadline leaves no time is not begun.
//
// A Transport sends at most 1.2 times as many tries as requests, and 10 more,
// and one more a minute ([Transport.RetryShare]). Not counted is what
// http.Transport itself repeats, when a connection turns out to be closed.
//
// # What became of a request with a key
//
//   - A success: it was done, once.
//   - A status 4xx other than 409: it was refused.
//   - 409 or 5xx: see what the API says of the code. Send the request again
//     with the same key, or not at all.
//   - An [UnknownError]: it may have been done. A 4xx after a try that may have
//     been done gives one too.
//   - Another error: it was not done. A redirect to a GET that then fails is an
//     error of the GET.
//
// http.Client.Timeout turns an UnknownError into one of its own with the same
// text: use the deadline of a context.
//
// # Bodies
//
// Each try sends the same body, from Request.GetBody, or kept in memory: of one
// with more than [Transport.MaxBody] bytes nothing is sent, and the error says so.
// A response whose Content-Length is at most MaxBody is read before it is
// returned, so that one that breaks off is repeated. All others are streams. If
// that of a request with a key breaks off, Read returns an UnknownError.
package idemclient

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// A Transport is an [http.RoundTripper] that repeats requests with an
// Idempotency-Key and those with safe methods. The zero Transport is ready to
// use. It is safe for concurrent use, and must not be copied.
type Transport struct {
	// Base sends each try; nil means http.DefaultTransport. A server that does
	// not answer holds a try for TryTimeout.
	Base http.RoundTripper

	// TryTimeout is how long a try may take, to the end of the response's body
	// where that is kept, and else to its head; 0 means a minute. A negative one
	// leaves it to Base and the context.
	TryTimeout time.Duration

	// Methods are those whose requests get a new key if they have none: nil means
	// POST alone, an empty list that is not nil means none. The API must take an
	// Idempotency-Key with each.
	Methods []string

	// MaxTries is how often a request is sent at most; 0 means 4.
	MaxTries int

	// MaxWait is the longest Retry-After to wait for, and the longest wait of
	// the Transport's own; 0 means a minute. An answer that asks for a longer
	// wait is returned at once.
	MaxWait time.Duration

	// MaxBody is how many bytes of a request's or a response's body are kept in
	// memory; 0 means 1 MiB. A longer request without GetBody is not sent; a
	// longer response is a stream. See Bodies in the package comment.
	MaxBody int64

	// RetryShare is how many retries each request adds to the budget; 0 means
	// 0.2. The budget begins with 10 and holds at most 10; each minute adds one.
	// Use one Transport for each API.
	RetryShare float64

	mu   sync.Mutex
	debt float64   // the retries that the budget lacks
	last time.Time // when it was paid
}

const (
	budget    = 10 // the retries of a full one
	firstWait = 500 * time.Millisecond
)

// RoundTrip sends the request until it is answered. If nothing was done, or the
// request has no key, the error is that of Base, of the context or of the
// request. Otherwise it is an [*UnknownError].
func (t *Transport) RoundTrip(req *http.Request) (*http.Response, error) {
	key, err := t.keyOf(req)
	if err == nil && key == "" && !safe(req.Method) {
		return t.base().RoundTrip(req)
	}
	if key != "" && (req.URL == nil || req.URL.Host == "") {
		err = errors.New("idemclient: the request's URL has no host: begin it with https:// and the host")
	}
	for name, values := range req.Header {
		if slices.ContainsFunc(values, hasControl) {
			err = fmt.Errorf("idemclient: the header %s has a control character, such as a newline at its end", name)
		}
	}
	o := &operation{Transport: t, key: key}
	o.request = req.WithContext(context.WithValue(req.Context(), operationKey{}, o))
	if from := redirected(req); key != "" && from != nil {
		o.open = from.open && from.key == key // its tries may have been done before the redirect
	}
	if err == nil {
		err = o.keepBody()
	}
	if err != nil {
		if req.Body != nil {
			req.Body.Close()
		}
		return nil, err
	}
	if key != "" {
		o.request.Header = http.Header{keyField: {key}}
		maps.Copy(o.request.Header, req.Header)
	}
	t.pay(-cmp.Or(t.RetryShare, 0.2))
	return o.run()
}

// hasControl reports whether no http.Transport sends this value of a header.
func hasControl(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// CloseIdleConnections closes those of Base, for http.Client.
func (t *Transport) CloseIdleConnections() {
	if closer, ok := t.base().(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

func (t *Transport) maxBody() int64 { return cmp.Or(t.MaxBody, 1<<20) }

// pay takes retries from the budget, and reports whether it has them. It gets
// one back each minute, so that a client of few requests has one too.
func (t *Transport) pay(retries float64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.debt, t.last = max(0, t.debt-now.Sub(t.last).Minutes()), now
	if t.debt+retries > budget {
		return false
	}
	t.debt = max(0, t.debt+retries)
	return true
}

// operationKey is for the operation in the context of its tries, where the
// request that a redirect leads to finds it.
type operationKey struct{}

// redirected returns the operation whose answer led to the request, or nil. What
// stands around a Transport may have replaced the response's Request or Body.
func redirected(req *http.Request) *operation {
	if req.Response == nil {
		return nil
	}
	if body, ok := req.Response.Body.(*body); ok {
		return body.o
	}
	if req.Response.Request == nil {
		return nil
	}
	o, _ := req.Response.Request.Context().Value(operationKey{}).(*operation)
	return o
}

// operation is one request, however often it is sent.
type operation struct {
	*Transport
	key     string
	request *http.Request // the caller's with the key; each try sends a copy
	tries   int
	open    bool // an earlier try may have taken effect, and its answer is not returned
}

// keepBody keeps a body that can be read only once. It fails if the context has
// ended, or the length is not the one declared.
func (o *operation) keepBody() error {
	req, from := o.request, o.request.Body
	if from == nil || from == http.NoBody || req.GetBody != nil {
		return context.Cause(req.Context())
	}
	stop := context.AfterFunc(req.Context(), func() { from.Close() })
	body, err := io.ReadAll(http.MaxBytesReader(nil, from, o.maxBody()))
	if !stop() || err != nil {
		return fmt.Errorf("idemclient: the request's body cannot be kept to be sent again; for one over %d bytes set "+
			"Request.GetBody or Transport.MaxBody: %w", o.maxBody(), cmp.Or(context.Cause(req.Context()), err))
	}
	from.Close()
	if declared := req.ContentLength; declared > 0 && declared != int64(len(body)) {
		return fmt.Errorf("idemclient: Request.ContentLength is %d and the body has %d bytes", declared, len(body))
	}
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, err = req.GetBody()
	return err
}

func (o *operation) run() (*http.Response, error) {
	for {
		res, err := o.try()
		wait, again := o.wait(res, err)
		if !again {
			return o.result(res, err)
		}
		if err == nil {
			begun, known := mayHaveBegun[res.StatusCode]
			o.open = o.open || begun || !known
			discard(res)
		}
		select {
		case <-time.After(wait):
		case <-o.request.Context().Done():
			return o.result(nil, context.Cause(o.request.Context()))
		}
	}
}

// try sends the request once. With a connection it may have taken effect; with
// a second one http.Transport has repeated it of its own. Of a Base that says
// nothing about connections the worst is believed.
func (o *operation) try() (*http.Response, error) {
	var asked, got atomic.Int32
	ctx, end := context.WithCancel(o.request.Context())
	most := cmp.Or(o.TryTimeout, time.Minute)
	if most < 0 {
		most = math.MaxInt64
	}
	late := time.AfterFunc(most, end)
	r := o.request.WithContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { asked.Add(1) },
		GotConn: func(httptrace.GotConnInfo) { got.Add(1) },
	}))
	if o.tries++; o.tries > 1 && r.Body != nil && r.GetBody != nil {
		var err error
		if r.Body, err = r.GetBody(); err != nil {
			late.Stop()
			end()
			return nil, err
		}
	}
	res, err := o.base().RoundTrip(r)
	if err == nil {
		res.Request = r
		err = o.hold(res, end)
	}
	if !late.Stop() {
		err = fmt.Errorf("idemclient: no whole answer in %v", most)
	}
	if err != nil {
		end()
	}
	o.open = o.open || got.Load() > 1 || err != nil && (got.Load() == 1 || asked.Load() == 0)
	return res, err
}

// wait returns how long to wait before the next try, if there is to be one.
func (o *operation) wait(res *http.Response, err error) (time.Duration, bool) {
	most := cmp.Or(o.MaxWait, time.Minute)
	wait := rand.N(max(1, min(most, firstWait<<min(o.tries-1, 10)))) // full jitter
	if err == nil {
		after := retryAfter(res.Header.Get("Retry-After"))
		if !worthRepeating(res) || after > most {
			return 0, false
		}
		wait += after
	}
	ctx := o.request.Context()
	deadline, ends := ctx.Deadline()
	return wait, ctx.Err() == nil && o.tries < cmp.Or(o.MaxTries, 4) &&
		(!ends || time.Until(deadline) > wait) && o.pay(1)
}

// result is what the caller gets. A refusal does not tell what became of an
// earlier try, unless it is the stored answer.
func (o *operation) result(res *http.Response, err error) (*http.Response, error) {
	refused := err == nil && res.StatusCode/100 == 4 && res.StatusCode != http.StatusConflict && !replayed(res)
	switch {
	case err == nil && (o.key == "" || !o.open || !refused):
		return res, nil
	case o.key == "" || !o.open:
		return nil, err
	case refused:
		discard(res)
		err = fmt.Errorf("the last answer was %s", res.Status)
	}
	return nil, o.unknown(err)
}

func (o *operation) unknown(err error) error { return &UnknownError{o.key, o.tries, err} }
