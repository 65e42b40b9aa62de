package recipes

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// GitHubLeaks revokes the keys that GitHub finds in public repositories.
type GitHubLeaks struct {
	Issuer *issuing.Issuer
	URL    string // https://api.github.com/meta/public_keys/secret_scanning
	mu     sync.Mutex
	keys   map[string]*ecdsa.PublicKey
	asked  time.Time
	failed error
}

func (g *GitHubLeaks) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second) // GitHub may not wait
	defer cancel()
	body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20)) // what is cut off is not signed
	signature, _ := base64.StdEncoding.DecodeString(r.Header.Get("Github-Public-Key-Signature"))
	public, err := g.publicKey(r.Header.Get("Github-Public-Key-Identifier"))
	var matches []struct{ Token, Type, URL string }
	if sum := sha256.Sum256(body); public != nil && ecdsa.VerifyASN1(public, sum[:], signature) {
		err = json.Unmarshal(body, &matches)
	} else if err == nil {
		http.Error(w, "The message is not signed by GitHub.", http.StatusForbidden)
		return
	}
	answer := make([]map[string]string, len(matches))
	for i, m := range matches { // all of them, whatever fails
		answer[i] = map[string]string{"token_raw": m.Token, "token_type": m.Type, "label": "true_positive"}
		k, failed := g.Issuer.KeyOf(ctx, m.Token)
		if _, no := errors.AsType[keystore.TokenError](failed); no || errors.Is(failed, keystore.ErrNotFound) {
			answer[i]["label"], failed = "false_positive", nil
		} else if failed == nil { // here the organization can be told too
			_, failed = g.Issuer.By("GitHub", issuing.ReasonLeaked).Revoke(ctx, k.Organization, k.ID)
			slog.WarnContext(ctx, "GitHub has found a key", "key", k.ID, "url", m.URL, "error", failed)
		}
		err = errors.Join(err, failed)
	}
	if err != nil { // GitHub does not say that it sends a message again
		slog.ErrorContext(ctx, "keys that GitHub has found may be live", "error", err)
		http.Error(w, "The message cannot be dealt with now.", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // the connection may be gone
}

// publicKey asks for the list when it lacks a key, once in five minutes at most.
func (g *GitHubLeaks) publicKey(id string) (*ecdsa.PublicKey, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.keys[id] != nil || time.Since(g.asked) < 5*time.Minute {
		return g.keys[id], g.failed
	}
	g.asked, g.failed = time.Now(), errors.New("no public keys from "+g.URL)
	var list struct {
		Public_Keys []struct{ Key_Identifier, Key string }
	}
	if response, err := (&http.Client{Timeout: 10 * time.Second}).Get(g.URL); err == nil {
		defer response.Body.Close()
		if json.NewDecoder(response.Body).Decode(&list) == nil && len(list.Public_Keys) > 0 {
			g.keys, g.failed = make(map[string]*ecdsa.PublicKey), nil
			for _, k := range list.Public_Keys {
				if block, _ := pem.Decode([]byte(k.Key)); block != nil {
					key, _ := x509.ParsePKIXPublicKey(block.Bytes)
					g.keys[k.Key_Identifier], _ = key.(*ecdsa.PublicKey)
				}
			}
		}
	}
	return g.keys[id], g.failed
}
