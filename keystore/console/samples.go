package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/scope"
)

// A Sample is a request to the API. The page with a new secret shows those
// that the key may make, as lines for curl and as a Go program. They send the
// secret, the Body and its Content-Type, and no Idempotency-Key: a route that
// requires one answers 400, so leave it out.
type Sample struct {
	Scope  scope.Name // which the request needs
	Method string     // GET, POST, PUT, PATCH or DELETE
	Path   string     // after the BaseURL, with its query: "/tasks?limit=5"
	Body   string     // JSON; empty: none
}

var addressText = regexp.MustCompile(`^[A-Za-z0-9._~%!$&'()*+,;=:@/?\[\]-]*$`)

// checkSamples panics when a sample cannot be a request of this API.
func (o Options) checkSamples(r *scope.Registry) {
	base, err := url.Parse(o.BaseURL)
	if o.BaseURL != "" && (err != nil || base.Scheme != "https" && base.Scheme != "http" || base.Host == "" ||
		base.RawQuery != "" || !addressText.MatchString(o.BaseURL)) || o.BaseURL == "" && o.Samples != nil {
		panic(fmt.Sprintf("console: BaseURL: %q is no address such as https://api.example.com/v1", o.BaseURL))
	}
	for _, s := range o.Samples {
		var mistake string
		switch _, err := url.Parse(s.Path); {
		case !r.Known(s.Scope):
			mistake = "the issuer's registry lacks the Scope"
		case !slices.Contains([]string{"GET", "POST", "PUT", "PATCH", "DELETE"}, s.Method):
			mistake = "the Method is none of GET, POST, PUT, PATCH and DELETE"
		case err != nil || !strings.HasPrefix(s.Path, "/") || !addressText.MatchString(s.Path):
			mistake = "the Path does not begin with a slash, or has what has to be escaped"
		case s.Body != "" && !json.Valid([]byte(s.Body)):
			mistake = "the Body is not JSON"
		default:
			continue
		}
		panic(fmt.Sprintf("console: Samples: %+v: %s", s, mistake))
	}
}

// A request is a Sample as the templates write it in each language.
type request struct {
	Sample
	URL, Variable string
}

var sampleFuncs = template.FuncMap{
	"shell":   func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" },
	"golang":  strconv.Quote,
	"raw":     strconv.CanBackquote,
	"globbed": func(s string) bool { return strings.ContainsAny(s, "[]") },
}

// requests returns the samples that k may make. In their lines the secret is
// an environment variable: they are pasted where a secret should not be.
func (x *exchange) requests(k *keystore.Key) (requests []request) {
	granted, _ := x.registry.Parse(k.Scopes)
	for _, s := range x.options.Samples {
		if granted.Has(s.Scope) {
			requests = append(requests, request{s, strings.TrimSuffix(x.options.BaseURL, "/") + s.Path, x.variable()})
		}
	}
	return requests
}

// variable is the name of the environment variable that holds a secret.
func (x *exchange) variable() string {
	return strings.TrimLeft(strings.ToUpper(x.issuer.Service().Prefix), "0123456789") + "_API_KEY"
}
