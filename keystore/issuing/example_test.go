package issuing_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"regexp"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// The program of the package comment.
func Example() {
	ctx := context.Background()
	keys, issuer := issuing.InMemory(keystore.Service{Prefix: "acme"})

	secret, key, err := issuer.By("ada", "").Issue(ctx, keystore.Key{
		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(secret.Reveal()[:10]) // the whole text is shown now, and never again

	if _, err := issuer.By("ada", issuing.ReasonLeaked).Revoke(ctx, "acme", key.ID); err != nil {
		log.Fatal(err)
	}
	found, err := keys.Lookup(ctx, key.Digest)
	fmt.Println(found.Refused(), err)
	// Output:
	// acme_test_
	// keystore: key is revoked <nil>
}

func ExampleIssuer_Rotate() {
	ctx := context.Background()
	keys := issuing.NewMemory()
	issuer := issuing.New(keys, issuing.Options{})
	_, old, err := issuer.Issue(ctx, keystore.Key{Organization: "acme", Environment: keystore.Production})
	if err != nil {
		log.Fatal(err)
	}

	// Both keys work for a day. The token makes a second click harmless.
	r := issuing.Rotation{Organization: "acme", ID: old.ID, Overlap: 24 * time.Hour, IssueToken: "form-7f3a"}
	_, next, err := issuer.By("ada", "").Rotate(ctx, r)
	if err != nil {
		log.Fatal(err)
	}
	_, again, err := issuer.By("ada", "").Rotate(ctx, r)
	fmt.Println(err, again.ID == next.ID)

	old, err = keys.Find(ctx, "acme", old.ID)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(old.Status(time.Now()), old.Status(time.Now().Add(25*time.Hour)))
	// Output:
	// issuing: key exists already true
	// active revoked
}

// Who did what to a key, and why, is kept beside it.
func ExampleIssuer_By() {
	ctx := context.Background()
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{
		MaxLife: 90 * 24 * time.Hour, MaxKeys: 20,
		Audit: func(ctx context.Context, e issuing.AuditEntry) { slog.DebugContext(ctx, "audit", "entry", e) },
	})
	_, key, err := issuer.By("ada", "").Issue(ctx, keystore.Key{
		Organization: "acme", Environment: keystore.Sandbox, Scopes: []scope.Name{scope.TasksRead, scope.TasksWrite},
		ExpiresAt: time.Now().Add(30 * 24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
	key.Scopes = []scope.Name{scope.TasksRead} // less is an edit; more needs a new key
	if key, err = issuer.By("ada", "ticket 41").Edit(ctx, *key); err != nil {
		log.Fatal(err)
	}
	if _, err = issuer.By("grace", issuing.ReasonLeaked).Revoke(ctx, "acme", key.ID); err != nil {
		log.Fatal(err)
	}

	entries, err := issuer.Audit(ctx, "acme", issuing.AuditQuery{Key: key.ID})
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
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{})
	k := keystore.Key{Organization: "acme", Scopes: []scope.Name{"task:read"}}
	_, _, err := issuer.Issue(context.Background(), k)
	if invalid, ok := errors.AsType[*keystore.FieldsError](err); ok {
		for _, p := range invalid.Fields {
			fmt.Printf("%s: %s\n", p.Field, p.Message)
		}
	}
	// Output:
	// environment: The environment must be "production" or "sandbox".
	// scopes: There is no scope "task:read"; did you mean "tasks:read"?
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
	keys := keystore.NewCached(issuing.NewMemory(), keystore.CacheOptions{Service: service})
	issuer := issuing.New(keys, issuing.Options{})

	// A row of the old table has the hash and not the token.
	token := "acme_" + strings.Repeat("0123456789", 4)
	var row struct{ hash keystore.Digest }
	h := hmac.New(sha256.New, oldPepper)
	h.Write([]byte(token))
	h.Sum(row.hash[:0])

	key, err := issuer.Import(ctx, keystore.Key{
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
	caller, err := presented.Caller(ctx, keys, service.Scopes)
	fmt.Println(caller.Organization(), presented.Legacy, err)

	// A rotation makes a key of the present shape.
	secret, next, err := issuer.By("ada", "").Rotate(ctx, issuing.Rotation{Organization: "acme", ID: key.ID})
	fmt.Println(secret.Reveal()[:9], next.Legacy == "", err)
	// Output:
	// acme_…6789 v1
	// acme v1 <nil>
	// svc_live_ true <nil>
}
