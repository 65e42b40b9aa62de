package keystore

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// maxHint is how many bytes of a secret a record may show: at most half of a
// legacy token, which has minLegacy bytes or more.
const maxHint = 8

// Import stores a key for a token that another system issued.
// [Service.Parse] decides whether the token is acceptable, as it does for
// every request later, so no token is imported that would then be refused. Its
// error is returned unchanged. g.Environment must be the one that the token
// names, if it names one. A legacy token is stored under the first of its
// digests.
//
// Only tokens from a random generator may be imported: the digest does not
// protect a token that can be guessed.
//
// Import returns [ErrExists] when there is such a key already, under whichever
// digest, and the key too when it belongs to the organization.
func (i *Issuer) Import(ctx context.Context, g Grant, token string) (*Key, error) {
	t, err := i.service.Parse(token)
	if err != nil {
		return nil, err
	}
	now := instant()
	problems := g.problems(i.service.Scopes, now)
	if g.Environment.Known() && t.Environment != "" && g.Environment != t.Environment {
		problems = append(problems, FieldError{"environment", "The token is a " + string(t.Environment) + " key."})
	}
	if problems != nil {
		return nil, &GrantError{problems}
	}
	k := g.key(t.digests[0], hint(token), now)
	k.Legacy = t.legacy
	// A second record would outlive the revocation of the first one.
	for _, d := range t.Digests()[1:] {
		switch existing, err := i.manager.Lookup(ctx, d); {
		case err == nil:
			return ownCopy(existing, g.Organization), ErrExists
		case !errors.Is(err, ErrNotFound):
			return nil, err
		}
	}
	return i.insertImported(ctx, k)
}

// A LegacyKey is what an older system knows of a key.
type LegacyKey struct {
	// Digest is the one under which the older system kept the token, as
	// [LegacyFormat.Digests] returns it among others. It must be the only
	// record of the token.
	Digest Digest

	// Format is the Name of the [LegacyFormat] that the token has.
	Format string

	ID         string    // kept if there is one; at most 255 bytes, unique among all organizations
	Hint       string    // the end of the token, if it is known; at most 8 bytes
	CreatedAt  time.Time // zero: now
	LastUsedAt time.Time // zero: never
}

// ImportDigest stores a key for a token that an older system issued and of
// which only the hash is known. The key is marked as legacy until it is
// rotated. Do not import keys that the older system has revoked, or that have
// expired.
//
// ImportDigest returns [ErrExists] when there is such a key already, and the
// key too when it belongs to the organization: a program that imports many can
// be run again. For an ID that another key has, the error is a [*GrantError].
func (i *Issuer) ImportDigest(ctx context.Context, g Grant, old LegacyKey) (*Key, error) {
	now := instant()
	if problems := append(g.problems(i.service.Scopes, now), old.problems(i.service)...); problems != nil {
		return nil, &GrantError{problems}
	}
	k := g.key(old.Digest, old.Hint, now)
	k.Legacy = old.Format
	k.LastUsedAt = storable(old.LastUsedAt)
	if old.ID != "" {
		k.ID = old.ID
	}
	if !old.CreatedAt.IsZero() {
		k.CreatedAt = storable(old.CreatedAt)
	}
	return i.insertImported(ctx, k)
}

func (k LegacyKey) problems(s Service) (problems []FieldError) {
	if k.Digest == (Digest{}) {
		problems = append(problems, FieldError{"digest", "The digest is missing."})
	}
	if s.legacy(k.Format) == nil {
		problems = append(problems, FieldError{"format", fmt.Sprintf("There is no legacy format %.64q.", k.Format)})
	}
	if problem := textProblem("ID", k.ID); problem != "" {
		problems = append(problems, FieldError{"id", problem})
	}
	if len(k.Hint) > maxHint || textProblem("hint", k.Hint) != "" {
		problems = append(problems, FieldError{"hint", fmt.Sprintf("The hint is longer than %d bytes, or not valid UTF-8 text.", maxHint)})
	}
	return problems
}

// insertImported stores k. With [ErrExists] it returns the existing key, if it
// belongs to the organization. If only the ID is taken, the error is another
// one: the caller of an import takes ErrExists for success.
func (i *Issuer) insertImported(ctx context.Context, k *Key) (*Key, error) {
	stored, err := i.insert(ctx, k)
	if !errors.Is(err, ErrExists) || stored != nil {
		return stored, err
	}
	existing, lookupErr := i.manager.Lookup(ctx, k.Digest)
	if errors.Is(lookupErr, ErrNotFound) {
		return nil, &GrantError{[]FieldError{{"id", "Another key has this ID."}}}
	}
	if lookupErr == nil {
		stored = ownCopy(existing, k.Organization)
	}
	return stored, err
}

// ownCopy returns a copy of k if it belongs to the organization.
func ownCopy(k *Key, organization string) *Key {
	if k == nil || k.Organization != organization {
		return nil
	}
	return k.Clone()
}
