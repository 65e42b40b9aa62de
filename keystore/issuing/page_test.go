package issuing_test

import (
	"context"
	"errors"
	"math"
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestPageSize(t *testing.T) {
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 50: 50, 199: 199, 200: 200, 201: 200, math.MaxInt: 200} {
		if got := (issuing.Page{Limit: limit}).Size(); got != want {
			t.Errorf("a page with the limit %d has %d keys, want %d", limit, got, want)
		}
	}
}

// A store that does not know all of a Page is not asked for that.
func TestKeysOfAStoreThatCountsNothing(t *testing.T) {
	store := issuing.NewMemory()
	issuer := issuing.New(uncounted{store}, issuing.Options{})
	issue(t, issuer, grant())
	for _, p := range []issuing.Page{{Search: "x"}, {ScopesUnusedSince: time.Now()},
		{Status: keystore.Active, OrStatus: keystore.Suspended}} {
		if keys, err := issuer.Keys(t.Context(), "acme", p); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%+v: Keys returned %v, %v, want ErrUnsupported", p, keys, err)
		}
		if _, err := issuing.New(store, issuing.Options{}).Keys(t.Context(), "acme", p); err != nil {
			t.Errorf("%+v: Keys of another store returned %v", p, err)
		}
	}
	all := issuing.Page{AllOrganizations: true}
	if keys, err := issuer.Keys(t.Context(), "", all); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Keys of all organizations returned %v, %v, want ErrUnsupported", keys, err)
	}
	if keys, err := issuing.New(store, issuing.Options{}).Keys(t.Context(), "acme", all); err == nil {
		t.Errorf("Keys of an organization and of all returned %v, want an error", keys)
	}
	total := 7
	keys, err := issuer.Keys(t.Context(), "acme", issuing.Page{Total: &total})
	if err != nil || len(keys) != 1 || total != -1 {
		t.Errorf("Keys returned %v, %v and counts %d, want a key and -1", keys, err, total)
	}
}

type uncounted struct{ issuing.Store }

func (u uncounted) List(ctx context.Context, organization string, p issuing.Page) ([]*keystore.Key, error) {
	p.Total = nil
	return u.Store.List(ctx, organization, p)
}
