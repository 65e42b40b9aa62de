package keystore

import (
	"sync"

	"github.com/sallyport-go/sallyport/scope"
)

// unknownScopes are the scopes of loaded keys that the service does not have.
// They grant nothing, which can surprise the owner of a key, for example after a
// release was rolled back.
type unknownScopes struct {
	mu       sync.Mutex
	reported map[scope.Name]bool
}

// report logs each unknown scope the first time a key has it, of 100 at most.
func (u *unknownScopes) report(k *Key, o *CacheOptions) {
	_, unknown := o.Service.Scopes.Parse(k.Scopes)
	for _, n := range unknown {
		if u.first(n) {
			o.Logger.Warn("keystore: a key has a scope that the service does not; it grants nothing",
				"scope", string(n), "key", k.ID)
		}
	}
}

func (u *unknownScopes) first(n scope.Name) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.reported[n] || len(u.reported) >= 100 {
		return false
	}
	if u.reported == nil {
		u.reported = make(map[scope.Name]bool)
	}
	u.reported[n] = true
	return true
}
