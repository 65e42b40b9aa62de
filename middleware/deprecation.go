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
func newDeprecation(o *RouteOptions) (*deprecation, error) {
	d, rels := &deprecation{}, ""
	if !o.Deprecated.IsZero() {
		d.deprecated, rels = "@"+strconv.Itoa(int(o.Deprecated.Sub(epoch)/time.Second)), "deprecation"
	}
	if !o.Sunset.IsZero() {
		d.sunset, rels = o.Sunset.UTC().Format(http.TimeFormat), strings.TrimSpace(rels+" sunset")
	}
	successor, err := url.Parse(o.Successor)
	switch {
	case d.deprecated != "" && d.sunset != "" && o.Sunset.Before(o.Deprecated):
		return nil, errors.New("RouteOptions.Sunset is before Deprecated (RFC 9745, section 4)")
	case o.Successor != "" && rels == "":
		return nil, errors.New("RouteOptions.Successor is set, and neither Deprecated nor Sunset")
	case err != nil || strings.ContainsAny(o.Successor, " <>\""):
		return nil, errors.New("RouteOptions.Successor is not a URL")
	case successor.Scheme != "" && successor.Scheme != "http" && successor.Scheme != "https":
		return nil, fmt.Errorf("RouteOptions.Successor is a URL of the scheme %q; it may be http, https or relative",
			successor.Scheme)
	case rels == "":
		return nil, nil
	case o.Successor != "":
		d.link = "<" + o.Successor + `>; rel="` + rels + `"`
	}
	return d, nil
}

// tell adds the fields to a response, and to what a panic leaves of it.
func (d *deprecation) tell(c *call) {
	h := c.w.Header()
	if d.deprecated != "" {
		h.Set("Deprecation", d.deprecated)
	}
	if d.sunset != "" {
		h.Set("Sunset", d.sunset)
	}
	if d.link != "" {
		h.Add("Link", d.link)
	}
	c.before = fieldsBefore(c.facts.response, h)
	c.facts.response.observed().note(func(e *Event) { e.Deprecated = true })
}
