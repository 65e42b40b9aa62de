package githubleaks_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"log"
	"net/http"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/githubleaks"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// The program fetches GitHub's public keys, at most twelve times an hour.
func Example() {
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{})
	issuer := issuing.New(keys, issuing.Options{})
	github := &publicKeys{url: "https://api.github.com/meta/public_keys/secret_scanning"}

	mux := http.NewServeMux() // the API is another handler of it
	mux.Handle("POST /github/leaks", githubleaks.New(issuer, github.get, githubleaks.Options{
		Found: func(ctx context.Context, l githubleaks.Leak) error {
			log.Printf("write to %s: key %s was found at %s and does not work any more", l.Key.Organization, l.Key.ID,
				l.URL)
			return nil
		},
	}))
}

// publicKeys are those of GitHub, as they were fetched last.
type publicKeys struct {
	url string

	mu    sync.Mutex
	asked time.Time
	byID  map[string]*ecdsa.PublicKey
	err   error // of the last fetch
}

// get fetches the keys when one is not known, but twelve times an hour at most,
// whatever ids anybody sends: GitHub answers 60 requests an hour. A fetch that
// fails takes no key away, and a client that leaves does not end it.
func (p *publicKeys) get(ctx context.Context, id string) (*ecdsa.PublicKey, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if key := p.byID[id]; key != nil {
		return key, nil
	}
	if time.Since(p.asked) > 5*time.Minute {
		p.asked = time.Now()
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		byID, err := fetch(ctx, p.url)
		if p.err = err; err == nil {
			p.byID = byID
		}
	}
	return p.byID[id], p.err
}

func fetch(ctx context.Context, url string) (map[string]*ecdsa.PublicKey, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, errors.New("GitHub's public keys: " + response.Status)
	}
	var list struct {
		Keys []struct {
			ID  string `json:"key_identifier"`
			PEM string `json:"key"`
		} `json:"public_keys"`
	}
	if err := json.NewDecoder(response.Body).Decode(&list); err != nil {
		return nil, err
	}
	byID := make(map[string]*ecdsa.PublicKey)
	for _, k := range list.Keys {
		block, _ := pem.Decode([]byte(k.PEM))
		if block == nil {
			return nil, errors.New("GitHub's public key " + k.ID + " is no PEM")
		}
		key, err := x509.ParsePKIXPublicKey(block.Bytes)
		if err != nil {
			return nil, err
		}
		if public, ok := key.(*ecdsa.PublicKey); ok {
			byID[k.ID] = public
		}
	}
	return byID, nil
}
