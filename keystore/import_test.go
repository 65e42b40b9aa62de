package keystore_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestImport(t *testing.T) {
	old := "svc_test_" + strings.Repeat("aB", 12)
	for _, c := range []struct {
		name   string
		format keystore.Format
		token  string
		reason keystore.Reason
	}{
		{"our own", keystore.Format{}, withChecksum("svc_test_" + strings.Repeat("aB", 16)), 0},
		{"an older one, not accepted", keystore.Format{}, old, keystore.BadLength},
		{"an older one, accepted", keystore.Format{AcceptUnchecked: true}, old, 0},
		{"another prefix", keystore.Format{AcceptUnchecked: true}, "x" + old, keystore.OtherPrefix},
		{"a publishable one", keystore.Format{AcceptUnchecked: true}, strings.Replace(old, "test", "pub", 1), keystore.Publishable},
	} {
		memory := keystore.NewMemory()
		k, err := keystore.NewIssuer(memory, c.format).Import(t.Context(), grant(), c.token)
		if c.reason != 0 {
			var refused *keystore.FormatError
			if !errors.As(err, &refused) || refused.Reason != c.reason || k != nil {
				t.Errorf("Import of %s returned %v, %v, want it refused because %q", c.name, k, err, c.reason)
			}
			continue
		}
		if err != nil {
			t.Errorf("Import of %s returned %v, want a key", c.name, err)
			continue
		}
		// What was imported passes the parser of the request path and is found.
		if environment, err := c.format.Parse(c.token); err != nil || environment != k.Environment {
			t.Errorf("Parse of %s returned %q, %v, want %q", c.name, environment, err, k.Environment)
		}
		if err := refusal(t, memory, c.token); err != nil {
			t.Errorf("%s is refused after Import: %v", c.name, err)
		}
		if !strings.HasSuffix(c.token, k.Hint) || len(k.Hint) != 4 {
			t.Errorf("Import of %s gave the hint %q, want its last four characters", c.name, k.Hint)
		}
	}
}

func TestImportProblems(t *testing.T) {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.Format{})
	token := withChecksum("svc_live_" + strings.Repeat("aB", 16))
	g := grant()
	g.Name = "\n"
	var problems *keystore.GrantError
	if _, err := issuer.Import(t.Context(), g, token); !errors.As(err, &problems) || len(problems.Problems) != 2 ||
		problems.Problems[1].Field != "environment" || !strings.Contains(problems.Problems[1].Message, "production") {
		t.Errorf("Import of a live token into the sandbox, with a bad name, returned %v, want both problems", err)
	}
	g = grant()
	g.Environment = ""
	if _, err := issuer.Import(t.Context(), g, token); !errors.As(err, &problems) || len(problems.Problems) != 1 {
		t.Errorf("Import without an environment returned %v, want one problem", err)
	}
}

func TestImportTwice(t *testing.T) {
	issuer := keystore.NewIssuer(keystore.NewMemory(), keystore.Format{})
	token := withChecksum("svc_test_" + strings.Repeat("aB", 16))
	first, err := issuer.Import(t.Context(), grant(), token)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := issuer.Import(t.Context(), grant(), token); !errors.Is(err, keystore.ErrExists) || again == nil || again.ID != first.ID {
		t.Errorf("a second Import returned %v, %v, want ErrExists and the key", again, err)
	}
	// The existing key belongs to the caller, and not to whoever shares it.
	again, _ := issuer.Import(t.Context(), grant(), token)
	again.Name = "changed"
	if third, _ := issuer.Import(t.Context(), grant(), token); third.Name == "changed" {
		t.Error("changing the key that Import returned changed the store's")
	}
	other := grant()
	other.Organization = "other"
	if k, err := issuer.Import(t.Context(), other, token); !errors.Is(err, keystore.ErrExists) || k != nil {
		t.Errorf("Import by another organization returned %v, %v, want ErrExists and nothing about whose it is", k, err)
	}
	tokened := grant()
	tokened.Token = "form-1"
	issue(t, issuer, tokened)
	if k, err := issuer.Import(t.Context(), tokened, withChecksum("svc_test_"+strings.Repeat("xY", 16))); !errors.Is(err, keystore.ErrExists) || k == nil {
		t.Errorf("Import with an issue token that was used returned %v, %v, want ErrExists and the key that it made", k, err)
	}
}
