package bench

import (
	"context"
	"crypto/sha256"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// identity is what a hand-written look-up finds.
type identity struct {
	key, org string
	scopes   []string
}

func (i *identity) may(scope string) bool { return slices.Contains(i.scopes, scope) }

// handKeys is the table that a team writes for itself: digests of tokens in a
// map behind a lock.
type handKeys struct {
	down *atomic.Bool
	mu   sync.RWMutex
	keys map[[32]byte]*identity
}

var errNoKey = errors.New("no such key")

func (k *handKeys) add(token string, i *identity) { k.keys[sha256.Sum256([]byte(token))] = i }

func (k *handKeys) find(token string) (*identity, error) {
	return k.digest(sha256.Sum256([]byte(token)))
}

func (k *handKeys) digest(d [32]byte) (*identity, error) {
	if k.down.Load() {
		return nil, errDown
	}
	k.mu.RLock()
	defer k.mu.RUnlock()
	if i := k.keys[d]; i != nil {
		return i, nil
	}
	return nil, errNoKey
}

type identityKey struct{}

func identityOf(r *http.Request) *identity {
	i, _ := r.Context().Value(identityKey{}).(*identity)
	return i
}

// organizationOf is the key of the net/http limiters.
func organizationOf(r *http.Request) (string, error) { return identityOf(r).org, nil }

// bearer is the hand-written authentication of the net/http peers.
func bearer(find func(token string) (*identity, error)) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if !ok {
				w.Header().Set("WWW-Authenticate", `Bearer realm="api"`)
				http.Error(w, "missing API key", http.StatusUnauthorized)
				return
			}
			i, err := find(token)
			if errors.Is(err, errNoKey) {
				w.Header().Set("WWW-Authenticate", `Bearer realm="api", error="invalid_token"`)
				http.Error(w, "invalid API key", http.StatusUnauthorized)
				return
			}
			if err != nil {
				http.Error(w, "try again", http.StatusServiceUnavailable)
				return
			}
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), identityKey{}, i)))
		})
	}
}

// need is the hand-written scope check of the net/http peers.
func need(scope string, h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if !identityOf(r).may(scope) {
			http.Error(w, "insufficient scope", http.StatusForbidden)
			return
		}
		h(w, r)
	}
}
