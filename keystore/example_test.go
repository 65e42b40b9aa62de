package keystore_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/ratelimit"
	"github.com/sallyport-go/sallyport/scope"
)

// The program of the package comment.
func Example() {
	ctx := context.Background()
	service := keystore.Service{Prefix: "acme"}
	keys, issuer := issuing.InMemory(service)
	secret, _, err := issuer.Issue(ctx, keystore.Key{
		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead},
	})
	if err != nil {
		log.Fatal(err)
	}

	request := func(text string) error {
		token, err := service.Parse(text)
		if err != nil {
			return err // it cannot be a key, and no store was asked
		}
		caller, err := token.Caller(ctx, keys, service.Scopes)
		if err == nil && caller.Refused() == nil {
			fmt.Println(caller.Organization(), "may", caller.Granted())
		}
		return err
	}
	fmt.Println(request(secret.Reveal()))
	fmt.Println(request("acme_live_0123456789"))
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

// The work beside a server: Run of both ends with the context, and that of
// Uses writes what is left.
func ExampleUses() {
	store := issuing.NewMemory()
	keys := keystore.NewCached(store, keystore.CacheOptions{})
	uses := keystore.NewUses(keys, keystore.UsesOptions{})

	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 2)
	go func() { done <- keys.Run(ctx) }()
	go func() { done <- uses.Run(ctx) }()

	_, key, err := issuing.New(keys, issuing.Options{}).
		Issue(ctx, keystore.Key{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		log.Fatal(err)
	}
	address := netip.MustParseAddr("192.0.2.7")
	uses.Record(key.Bind(scope.Default()), func() netip.Addr { return address }) // for each request that was let in

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
// with the key of the caller.
func ExampleKey_attributes() {
	plans := map[string]string{"free": "60-M", "pro": "100-S"}
	limitOf := func(k *keystore.Key) (ratelimit.Limit, error) {
		text := k.Attributes["limit"]
		if text == "" {
			text = plans[k.Attributes["plan"]]
		}
		return ratelimit.Parse(text) // an unknown plan is an error, and not no limit
	}

	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	for _, attributes := range []map[string]string{{"plan": "pro"}, {"plan": "free", "limit": "500-M"}, {"plan": "gold"}} {
		_, key, err := issuer.Issue(context.Background(), keystore.Key{
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

// What to put into .gitleaks.toml, so that a leaked key is found before others
// find it. A scanner takes the first group for the secret, which here would be
// the environment. A low entropy is that of a placeholder.
func ExampleService_Pattern() {
	pattern := strings.ReplaceAll(keystore.Service{Prefix: "acme"}.Pattern(), "(", "(?:")
	fmt.Printf(`[[rules]]
id = "acme-api-key"
description = "acme secret API key"
regex = '''\b%s\b'''
entropy = 3
keywords = ["acme_live_", "acme_test_"]
`, pattern)
	// Output:
	// [[rules]]
	// id = "acme-api-key"
	// description = "acme secret API key"
	// regex = '''\bacme_(?:live|test)_[0-9A-Za-z]{38}\b'''
	// entropy = 3
	// keywords = ["acme_live_", "acme_test_"]
}
