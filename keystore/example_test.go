package keystore_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// The program of the package comment.
func Example() {
	ctx := context.Background()
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})

	secret, _, err := issuer.Issue(ctx, keystore.Grant{
		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead},
	})
	if err != nil {
		log.Fatal(err)
	}

	request := func(text string) error {
		token, err := issuer.Service().Parse(text)
		if err != nil {
			return err // it cannot be a key, and no store was asked
		}
		caller, err := token.Caller(ctx, keys, nil)
		if err == nil && caller.Refused() == nil {
			fmt.Println(caller.Organization(), "may", caller.Granted())
		}
		return err
	}
	fmt.Println(request(secret.Reveal()))
	fmt.Println(request("svc_live_0123456789"))
	// Output:
	// acme may tasks:read
	// <nil>
	// keystore: the key has the wrong length; it may have been cut off
}

func ExampleService_Parse() {
	for _, token := range []string{
		"svc_live_0123456789",
		"svc_pub_0123456789",
		"'svc_live_0123456789'",
	} {
		_, err := keystore.Service{}.Parse(token)
		fmt.Println(err)
	}
	// Output:
	// keystore: the key has the wrong length; it may have been cut off
	// keystore: this is a publishable key, which is made for browsers. This API needs a secret key
	// keystore: the key has a character that no key has; it may have been copied with a quote or a line break
}

func ExampleSecret() {
	issued := struct {
		ID     string
		secret keystore.Secret
	}{"key_1", keystore.Service{}.Generate(keystore.Production)}

	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	}))
	logger.Info("issued", "secret", issued.secret)
	fmt.Println(issued.secret, issued.secret.Reveal()[:9])
	// Output:
	// level=INFO msg=issued secret=[secret]
	// [secret] svc_live_
}

func ExampleIssuer_Rotate() {
	ctx := context.Background()
	keys := keystore.NewMemory()
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})
	_, old, err := issuer.Issue(ctx, keystore.Grant{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		log.Fatal(err)
	}

	// Both keys work for a day. The token makes a second click harmless.
	_, next, err := issuer.By("ada", "").Rotate(ctx, "acme", old.ID, 24*time.Hour, "form-7f3a")
	if err != nil {
		log.Fatal(err)
	}
	_, again, err := issuer.By("ada", "").Rotate(ctx, "acme", old.ID, 24*time.Hour, "form-7f3a")
	fmt.Println(err, again.ID == next.ID)

	old, err = keys.Find(ctx, "acme", old.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(old.Status(time.Now()), old.Status(time.Now().Add(25*time.Hour)))
	// Output:
	// keystore: key exists already true
	// active revoked
}

// Who did what to a key, and why, is kept beside it.
func ExampleIssuer_By() {
	ctx := context.Background()
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{
		Policy: keystore.Policy{MaxLife: 90 * 24 * time.Hour, MaxKeys: 20},
		Audit:  keystore.LogAudit(slog.New(slog.DiscardHandler)), // or your own logger
	})
	_, key, err := issuer.By("ada", "").Issue(ctx, keystore.Grant{
		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
		ExpiresAt: time.Now().Add(30 * 24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	key.Scopes = []scope.Name{scope.TasksRead} // less is an edit; more needs a new key
	if key, err = issuer.By("ada", "ticket 41").Edit(ctx, key); err != nil {
		log.Fatal(err)
	}
	if _, err = issuer.By("grace", keystore.ReasonLeaked).Revoke(ctx, "acme", key.ID); err != nil {
		log.Fatal(err)
	}

	entries, err := issuer.Audit(ctx, "acme", key.ID, "")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range entries[:2] {
		fmt.Printf("%s by %s (%s): %s\n", e.Act, e.Actor, e.Reason, e.Changes[0].Field)
	}
	// Output:
	// revoke by grace (leaked): revoked_at
	// edit by ada (ticket 41): scopes
}

func ExampleIssuer_Issue_problems() {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{})
	_, _, err := issuer.Issue(context.Background(), keystore.Grant{
		Organization: "acme",
		Scopes:       []scope.Name{"task:read"},
	})
	var invalid *keystore.FieldsError
	if errors.As(err, &invalid) {
		for _, p := range invalid.Fields {
			fmt.Printf("%s: %s\n", p.Field, p.Message)
		}
	}
	// Output:
	// environment: The environment must be "production" or "sandbox".
	// scopes: There is no scope "task:read"; did you mean "tasks:read"?
}

// The work beside a server: Run of both ends with the context, and that of
// LastUsed writes what is left.
func ExampleLastUsed() {
	store := keystore.NewMemory()
	keys := keystore.NewCached(store, keystore.CacheOptions{})
	uses := keystore.NewLastUsed(keys, keystore.LastUsedOptions{})

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- keys.Run(ctx) }()
	go func() { done <- uses.Run(ctx) }()

	_, key, err := keystore.NewIssuer(keys, keystore.IssuerOptions{}).
		Issue(ctx, keystore.Grant{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		log.Fatal(err)
	}
	address := netip.MustParseAddr("192.0.2.7")
	uses.Record(key.Bind(scope.Contract()), func() netip.Addr { return address }) // for each request that was let in

	stop() // after the server has shut down
	fmt.Println(<-done, <-done)
	found, err := store.Find(context.Background(), "acme", key.ID)
	fmt.Println(found.LastUsedAt.IsZero(), err)
	// Output:
	// <nil> <nil>
	// false <nil>
}

// fixedKeys is all that a service with keys from its configuration needs.
type fixedKeys map[keystore.Digest]*keystore.Key

func (f fixedKeys) Lookup(_ context.Context, d keystore.Digest) (*keystore.Key, error) {
	if k, ok := f[d]; ok {
		return k, nil
	}
	return nil, keystore.ErrNotFound
}

func ExampleStore() {
	token := keystore.Service{}.Generate(keystore.Production).Reveal()
	digest := keystore.DigestOf(token)
	keys := keystore.NewCached(fixedKeys{
		digest: {ID: "batch", Digest: digest, Organization: "acme", Environment: keystore.Production},
	}, keystore.CacheOptions{})

	key, err := keys.Lookup(context.Background(), digest)
	fmt.Println(key.ID, err)
	_, err = keys.Lookup(context.Background(), keystore.DigestOf("another"))
	fmt.Println(err)
	// Output:
	// batch <nil>
	// keystore: no such key
}

// The commonest mistake: every error is taken for "no such key", so when the
// store is down, clients are told that their keys are wrong and throw them
// away.
func ExampleCached_Lookup_incorrect() {
	keys := keystore.NewCached(unreachable{}, keystore.CacheOptions{})

	_, err := keys.Lookup(context.Background(), keystore.Digest{})
	if err != nil {
		fmt.Println("incorrect: 401") // whatever err is
	}
	if errors.Is(err, keystore.ErrNotFound) {
		fmt.Println("correct: 401")
	} else if err != nil {
		fmt.Println("correct: 503")
	}
	// Output:
	// incorrect: 401
	// correct: 503
}

type unreachable struct{}

func (unreachable) Lookup(context.Context, keystore.Digest) (*keystore.Key, error) {
	return nil, errors.New("connection refused")
}

// The limit of a key is what its own record says, or that of its plan. A
// function of this kind chooses the policy of each request: limitOf is called
// with the key of the principal.
func ExampleKey_attributes() {
	plans := map[string]string{"free": "60-M", "pro": "100-S"}
	limitOf := func(k *keystore.Key) (ratelimit.Limit, error) {
		text := k.Attributes["limit"]
		if text == "" {
			text = plans[k.Attributes["plan"]]
		}
		return ratelimit.Parse(text) // an unknown plan is an error, and not no limit
	}

	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.IssuerOptions{})
	for _, attributes := range []map[string]string{{"plan": "pro"}, {"plan": "free", "limit": "500-M"},
		{"plan": "gold"}} {
		_, key, err := issuer.Issue(context.Background(), keystore.Grant{
			Organization: "acme", Environment: keystore.Production, Attributes: attributes,
		})
		if err != nil {
			log.Fatal(err)
		}
		limit, err := limitOf(key)
		fmt.Println(limit.Count, limit.Period, err != nil)
	}
	// Output:
	// 100 1s false
	// 500 1m0s false
	// 0 0s true
}

// A service that issued acme_ and 40 hexadecimal digits, and kept an
// HMAC-SHA256 of each token, changes over. Its clients go on with their keys.
func Example_legacyKeys() {
	ctx := context.Background()
	newPepper, oldPepper := []byte("the pepper of this year"), []byte("the pepper of last year")
	service := keystore.Service{Legacy: []keystore.LegacyFormat{{
		Name:    "v1",
		Prefix:  "acme_",
		Match:   regexp.MustCompile("^acme_[0-9a-f]{40}$").MatchString,
		Digests: keystore.HMACDigests(newPepper, oldPepper),
	}}}
	keys := keystore.NewCached(keystore.NewMemory(), keystore.CacheOptions{Service: service})
	issuer := keystore.NewIssuer(keys, keystore.IssuerOptions{})

	// A row of the old table has the hash and not the token.
	token := "acme_" + strings.Repeat("0123456789", 4)
	var row struct{ hash keystore.Digest }
	h := hmac.New(sha256.New, oldPepper)
	h.Write([]byte(token))
	h.Sum(row.hash[:0])

	key, err := issuer.Import(ctx, &keystore.Key{
		Organization: "acme", Environment: keystore.Production, Name: "Nightly import",
		Scopes: []scope.Name{scope.TasksRead},
		Digest: row.hash, Legacy: "v1", Hint: "6789",
	}, "")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(issuer.Service().Masked(key), key.Legacy)

	// What happens to the token of a request.
	presented, err := service.Parse(token)
	if err != nil {
		log.Fatal(err)
	}
	found, err := presented.Lookup(ctx, keys)
	fmt.Println(found.Organization, found.Legacy, err)

	// A rotation makes a key of the present shape.
	secret, next, err := issuer.By("ada", "").Rotate(ctx, "acme", key.ID, 0, "")
	fmt.Println(secret.Reveal()[:9], next.Legacy == "", err)
	// Output:
	// acme_…6789 v1
	// acme v1 <nil>
	// svc_live_ true <nil>
}

// What to put into .gitleaks.toml, so that a leaked key is found before others
// find it.
func ExampleService_Gitleaks() {
	fmt.Print(keystore.Service{Prefix: "acme"}.Gitleaks())
	// Output:
	// [[rules]]
	// id = "acme-api-key"
	// description = "acme secret API key"
	// regex = '''\bacme_(?:live|test)_[0-9A-Za-z]{38}\b'''
	// entropy = 3
	// keywords = ["acme_live_", "acme_test_"]
}
