package keystore

import (
	"cmp"
	"net/netip"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore/internal/field"
	"github.com/sallyport-go/sallyport/scope"
)

// An Identity is what [NewCaller] makes a [Caller] of: somebody who came by
// other means than an API key, such as a session or a JWT. Its limits are those
// of [Key.Validate].
type Identity struct {
	Organization string       // required; at most 255 bytes
	Environment  Environment  // "" means Production; in a [Key] it is an error
	Scopes       []scope.Name // each must be registered

	// Subject is who acts for the organization, such as the id of a user: at
	// most 255 bytes. An Idempotency-Key belongs to the subject, so that no user
	// gets the response of another. All callers with "" share theirs with each
	// other and with the organization's API keys.
	Subject string

	Attributes map[string]string // further facts, such as the organization's plan
	Networks   []netip.Prefix    // none: from anywhere
	ExpiresAt  time.Time         // zero: never. It may be over: see [Caller.Refused]
}

// NewCaller returns the caller of an identity. The registry must be that of the
// service; nil means [scope.Default]. The error is a [*FieldsError] that names all
// wrong fields of the Identity.
func NewCaller(r *scope.Registry, i Identity) (*Caller, error) {
	k := &Key{
		ID:           i.Subject,
		Organization: i.Organization,
		Environment:  cmp.Or(i.Environment, Production),
		Scopes:       i.Scopes,
		Attributes:   i.Attributes,
		Networks:     i.Networks,
	}
	known := cmp.Or(r, scope.Default())
	wrong := k.problems(known)
	for n, p := range wrong {
		if p.Field == "scopes" && r == nil {
			wrong[n].Message = strings.Replace(p.Message, "There is no",
				"A nil registry means scope.Default, which has no", 1)
		}
	}
	if message := field.Text("subject", i.Subject); message != "" {
		wrong = append(wrong, FieldError{"subject", message})
	}
	if wrong != nil {
		return nil, &FieldsError{wrong}
	}
	k.ExpiresAt = i.ExpiresAt
	return k.Bind(known), nil
}
