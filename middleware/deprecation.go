package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// deprecation is what clients of a route are told of its end.
type deprecation struct{ deprecated, sunset, link string }

var epoch = time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC) // of RFC 9651, section 3.3.7

// newDeprecation returns that of a route, nil for one that stays.
func newDeprecation(deprecated, sunset time.Time, successor string) (*deprecation, error) {
	d, rels := &deprecation{}, ""
	if !deprecated.IsZero() {
		d.deprecated, rels = "@"+strconv.Itoa(int(deprecated.Sub(epoch)/time.Second)), "deprecation"
	}
	if !sunset.IsZero() {
		d.sunset, rels = sunset.UTC().Format(http.TimeFormat), strings.TrimSpace(rels+" sunset")
	}
	page, err := url.Parse(successor)
	switch {
	case d.deprecated != "" && d.sunset != "" && sunset.Before(deprecated):
		return nil, errors.New("RouteOptions.Sunset is before Deprecated (RFC 9745, section 4)")
	case successor != "" && rels == "":
		return nil, errors.New("RouteOptions.Successor is set, and neither Deprecated nor Sunset")
	case err != nil || strings.ContainsAny(successor, " <>\""):
		return nil, errors.New("RouteOptions.Successor is not a URL")
	case page.Scheme != "" && page.Scheme != "http" && page.Scheme != "https":
		return nil, fmt.Errorf("RouteOptions.Successor is a URL of the scheme %q; it may be http, https or relative",
			page.Scheme)
	case rels == "":
		return nil, nil
	case successor != "":
		d.link = "<" + successor + `>; rel="` + rels + `"`
	}
	return d, nil
}

// tell adds the fields to the header of a response.
func (d *deprecation) tell(h http.Header) {
	if d.deprecated != "" {
		h.Set("Deprecation", d.deprecated)
	}
	if d.sunset != "" {
		h.Set("Sunset", d.sunset)
	}
	if d.link != "" {
		h.Add("Link", d.link)
	}
}
