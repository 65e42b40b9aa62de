// Package githubleaks receives what GitHub's secret scanning finds.
//
// A service that is a partner of that programme gives GitHub the pattern of its
// keys, see [keystore.Service.Pattern], and a URL. When a key lies in a public
// repository, GitHub posts it to that URL within seconds, signed:
//
//	mux.Handle("POST /github/leaks", githubleaks.New(issuer, keys, githubleaks.Options{}))
//
// The handler revokes the key and answers whether it was one. It belongs
// outside the API: GitHub sends no API key.
//
// The rules, which are those of the page "Secret scanning partner program" on
// docs.github.com:
//
//   - Nothing is looked up and nothing is revoked before the signature of the
//     raw body was checked.
//   - The answer is 200 when every token of the message was dealt with. If one
//     could not be, the others are, and the answer is 503, without labels.
//     GitHub does not say that it sends a message again, so the log names the
//     place of each such token, and its key if that is known. The same message
//     can come again at any time.
//   - A text that cannot be a key, or that the store does not have, is a
//     false_positive. A key that was revoked before is a true_positive.
//
// The package makes no connection: the program fetches GitHub's public keys.
package githubleaks

import (
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

const (
	maxBody = 1 << 20          // some 4,000 matches
	timeout = 30 * time.Second // GitHub waits no longer
	maxID   = 128              // GitHub's ids are 64 hexadecimal digits
)

// PublicKeys returns the public key of GitHub that has this id; nil and no
// error when GitHub has none; and an error when that is not known now. Anybody
// can send any id of up to 128 bytes, so it should fetch the list of keys
// seldom, and remember it.
type PublicKeys func(ctx context.Context, id string) (*ecdsa.PublicKey, error)

// Options configures a handler. The zero value is ready to use.
type Options struct {
	// WarnOnly leaves the keys live. Found has to do something then.
	WarnOnly bool

	// Found is told of each key, after it was revoked, for example to write to
	// its organization. If it returns an error the answer is 503. If GitHub
	// sends the message again, Found is told again of all keys in it. Nil: only
	// the log is told.
	Found func(ctx context.Context, l Leak) error

	Logger *slog.Logger // nil means slog.Default
}

// A Leak is a key that lies open. It does not hold the token.
type Leak struct {
	Key    *keystore.Key // as it is now
	URL    string        // of the place, as GitHub sent it; may be empty
	Source string        // the kind of place, such as "commit" or "issue_comment"
	Type   string        // the name of the pattern at GitHub
}

type handler struct {
	issuer  *issuing.Issuer
	keys    PublicKeys
	options Options
}

// New returns the handler for the URL that GitHub posts to. It panics when the
// issuer or keys is nil, or WarnOnly is set without Found.
func New(issuer *issuing.Issuer, keys PublicKeys, o Options) http.Handler {
	if issuer == nil || keys == nil {
		panic("githubleaks: New needs an Issuer and the public keys")
	}
	if o.WarnOnly && o.Found == nil {
		panic("githubleaks: with WarnOnly and without Found nobody would be warned")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return &handler{issuer, keys, o}
}

// ServeHTTP answers 200 with a label for each token, and refuses with 405,
// 413, 403 (the signature), 400 (the JSON) and 503.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		http.Error(w, "GitHub sends a POST.", http.StatusMethodNotAllowed)
		return
	}
	// A key is revoked also when GitHub does not wait for the answer.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), timeout)
	defer cancel()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if _, tooLong := errors.AsType[*http.MaxBytesError](err); tooLong {
		http.Error(w, "The message is longer than 1 MiB.", http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil {
		http.Error(w, "The message did not arrive whole.", http.StatusBadRequest)
		return
	}
	genuine, err := h.signed(ctx, r.Header, body)
	if err != nil {
		h.failed(w, r, "githubleaks: GitHub's public keys cannot be had", err)
		return
	}
	if !genuine {
		http.Error(w, "The message has no valid signature of GitHub.", http.StatusForbidden)
		return
	}
	var matches []match
	if err := json.Unmarshal(body, &matches); err != nil {
		http.Error(w, "The message is not a JSON array of matches.", http.StatusBadRequest)
		return
	}
	verdicts := make([]verdict, len(matches))
	var errs []error
	for i, m := range matches {
		if verdicts[i], err = h.judge(ctx, m); err != nil { // and go on: the other keys leaked too
			errs = append(errs, fmt.Errorf("the token at %s: %w", m.URL, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		h.failed(w, r, "githubleaks: not every key that leaked could be revoked and reported", err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(verdicts) // the connection may be gone
}

// failed answers that the message was not dealt with, or not all of it.
func (h *handler) failed(w http.ResponseWriter, r *http.Request, text string, err error) {
	h.options.Logger.ErrorContext(r.Context(), text, "error", err)
	http.Error(w, "The message cannot be dealt with now. Send it again.", http.StatusServiceUnavailable)
}

// signed reports whether the headers hold GitHub's signature of the body.
func (h *handler) signed(ctx context.Context, header http.Header, body []byte) (bool, error) {
	id := header.Get("Github-Public-Key-Identifier")
	signature, err := base64.StdEncoding.DecodeString(header.Get("Github-Public-Key-Signature"))
	if err != nil || id == "" || len(id) > maxID {
		return false, nil
	}
	key, err := h.keys(ctx, id)
	if err != nil || key == nil {
		return false, err
	}
	digest := sha256.Sum256(body)
	return ecdsa.VerifyASN1(key, digest[:], signature), nil
}

// A match is one that GitHub sends.
type match struct{ Token, Type, URL, Source string }

// A verdict is the answer to a match.
type verdict struct {
	Token string `json:"token_raw"`
	Type  string `json:"token_type"`
	Label string `json:"label"`
}

// judge deals with one match. An error means that it was not dealt with.
func (h *handler) judge(ctx context.Context, m match) (verdict, error) {
	k, err := h.issuer.KeyOf(ctx, m.Token)
	if _, no := errors.AsType[keystore.TokenError](err); no || errors.Is(err, keystore.ErrNotFound) {
		return verdict{m.Token, m.Type, "false_positive"}, nil
	}
	if err != nil {
		return verdict{}, err
	}
	id := k.ID
	if !h.options.WarnOnly {
		if k, err = h.issuer.By("GitHub", issuing.ReasonLeaked).Revoke(ctx, k.Organization, id); err != nil {
			return verdict{}, fmt.Errorf("key %s: %w", id, err)
		}
	}
	h.options.Logger.WarnContext(ctx, "githubleaks: GitHub has found a key",
		"key", id, "organization", k.Organization, "url", m.URL, "refused", k.Refused())
	if h.options.Found != nil {
		if err := h.options.Found(ctx, Leak{k, m.URL, m.Source, m.Type}); err != nil {
			return verdict{}, fmt.Errorf("key %s: %w", id, err)
		}
	}
	return verdict{m.Token, m.Type, "true_positive"}, nil
}
