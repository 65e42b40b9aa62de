package rules

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Target is what is checked.
type Target struct {
	URL      string // http or https, with the path that all routes have in front, if any
	HTTP2URL string // where HTTP/2 is spoken; "" means URL
	RootCAs  *x509.CertPool

	Full, None, Sandbox, Other, Revoked string // keys; "" when there is none

	Read       string // path of a GET that a key with all scopes may call; "" means /api/v1/account
	Create     string // path of a POST that creates; "" when there is none
	CreateType string // "" means application/json
	CreateBody string

	RequestIDHeader string // "" means Svc-Request-Id
	Server          bool   // what no handler sees is the target's own as well
}

// A Session checks one target. Its rules are checked one at a time.
type Session struct {
	target Target
	base   *url.URL
	client *http.Client // HTTP/1.1
	http2  *http.Client // nil when the server does not speak it
	have   needs

	mu       sync.Mutex
	ids      map[string]bool
	repeated []string
}

// Open makes sure that the target can be reached. It returns all mistakes of the target at once.
func Open(ctx context.Context, t Target) (*Session, error) {
	t.Read = cmp.Or(t.Read, "/api/v1/account")
	t.RequestIDHeader = cmp.Or(t.RequestIDHeader, "Svc-Request-Id")
	t.CreateType = cmp.Or(t.CreateType, "application/json")
	base, err := url.Parse(t.URL)
	if err != nil {
		return nil, err
	}
	var mistakes []error
	if base.Scheme != "http" && base.Scheme != "https" || base.Host == "" {
		mistakes = append(mistakes, fmt.Errorf("%q is not the URL of a server", t.URL))
	}
	for _, path := range []string{t.Read, t.Create} {
		if path != "" && !strings.HasPrefix(path, "/") {
			mistakes = append(mistakes, fmt.Errorf("the path %q does not begin with a slash", path))
		}
	}
	for _, key := range []string{t.Full, t.None, t.Sandbox, t.Other, t.Revoked} {
		if key != "" && len(key) < 8 {
			mistakes = append(mistakes, errors.New("a key is too short to be one"))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	t.URL = strings.TrimRight(t.URL, "/")
	if t.HTTP2URL == "" {
		t.HTTP2URL = t.URL
	}
	s := &Session{target: t, base: base, client: newClient(t.RootCAs, false), ids: make(map[string]bool)}
	if _, err := s.exchange(ctx, s.client, t.URL, request{method: "GET", path: t.Read}); err != nil {
		s.Close()
		return nil, fmt.Errorf("the server cannot be reached: %w", err)
	}
	s.http2 = newClient(t.RootCAs, true)
	quick, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if a, err := s.exchange(quick, s.http2, t.HTTP2URL, request{method: "GET", path: t.Read}); err != nil || a.proto != 2 {
		s.http2.CloseIdleConnections()
		s.http2 = nil
	}
	s.have = s.given()
	return s, nil
}

func (s *Session) given() needs {
	var have needs
	for need, given := range map[needs]bool{
		fullKey: s.target.Full != "", noneKey: s.target.None != "", sandboxKey: s.target.Sandbox != "",
		otherKey: s.target.Other != "", revokedKey: s.target.Revoked != "",
		createRoute: s.target.Create != "", server: s.target.Server, http2: s.http2 != nil,
	} {
		if given {
			have |= need
		}
	}
	return have
}

// Close drops the connections.
func (s *Session) Close() {
	s.client.CloseIdleConnections()
	if s.http2 != nil {
		s.http2.CloseIdleConnections()
	}
}

// newClient speaks exactly one version of HTTP, with the named host alone: no proxy, no redirects.
func newClient(roots *x509.CertPool, two bool) *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!two)
	protocols.SetHTTP2(two)
	protocols.SetUnencryptedHTTP2(two)
	return &http.Client{
		Transport: &http.Transport{
			Protocols:           protocols,
			TLSClientConfig:     &tls.Config{RootCAs: roots},
			DialContext:         (&net.Dialer{Timeout: patience}).DialContext,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 16,
		},
		Timeout:       2 * patience,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Plan says what will be done.
func (s *Session) Plan() string {
	var missing needs
	all := All()
	can := 0
	for _, r := range all {
		if lack := r.needs &^ s.have; lack != 0 {
			missing |= lack
		} else {
			can++
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d rules can be checked on %s: some 200 requests, and bursts of up to %d for a 429.\n", can, len(all), s.target.URL, burst)
	fmt.Fprintf(&b, "It takes some ten seconds, and up to two minutes behind a rate limit that refills within 2 s. The keys' rate limits are used up.\n")
	if s.target.Create != "" {
		fmt.Fprintf(&b, "Some 30 resources are created by POST %s. They are not removed.\n", s.target.Create)
	}
	if missing != 0 {
		fmt.Fprintf(&b, "For the other rules it needs: %v.\n", missing)
	}
	return b.String()
}

// seen notes the id of a response.
func (s *Session) seen(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ids[id] {
		s.repeated = append(s.repeated, id)
	}
	s.ids[id] = true
}

func (s *Session) repeats() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.repeated)
}
