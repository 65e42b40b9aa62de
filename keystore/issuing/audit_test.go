package issuing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

func TestLogAudit(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewJSONHandler(&log, nil))
	t.Run("given", func(t *testing.T) { testLogAudit(t, logger, &log) })
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(logger)
	t.Run("nil", func(t *testing.T) { testLogAudit(t, nil, &log) })
}

// The changes of a line are JSON, of a TextHandler too.
func TestLogAuditIsJSON(t *testing.T) {
	var text, line bytes.Buffer
	e := issuing.AuditEntry{Act: "edit", Changes: []issuing.Change{{Field: "name", Before: `a "b"`, After: "c d"}}}
	issuing.LogAudit(slog.New(slog.NewTextHandler(&text, nil)))(t.Context(), e)
	issuing.LogAudit(slog.New(slog.NewJSONHandler(&line, nil)))(t.Context(), e)
	_, quoted, _ := strings.Cut(text.String(), " changes=")
	quoted, err := strconv.QuotedPrefix(quoted)
	if err != nil {
		t.Fatal(err)
	}
	unquoted, _ := strconv.Unquote(quoted)
	var inText []issuing.Change
	var inLine struct{ Changes []issuing.Change }
	if err := errors.Join(json.Unmarshal([]byte(unquoted), &inText), json.Unmarshal(line.Bytes(), &inLine)); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(inText, e.Changes) || !slices.Equal(inLine.Changes, e.Changes) {
		t.Errorf("got %v and %v, want %v", inText, inLine.Changes, e.Changes)
	}
}

// TestNoAudit: an Issuer says at the start that nobody is told of its acts.
func TestNoAudit(t *testing.T) {
	memory := issuing.NewMemory()
	hidden := struct{ issuing.Manager }{memory}
	for _, tt := range []struct {
		name  string
		m     keystore.Store
		audit func(context.Context, issuing.AuditEntry)
		warns bool
	}{
		{"an Auditor", memory, nil, false},
		{"a Cached in front of one", keystore.NewCached(memory, keystore.CacheOptions{}), nil, false},
		{"an Auditor that is hidden", hidden, nil, true},
		{"one behind a Cached", keystore.NewCached(hidden, keystore.CacheOptions{}), nil, true},
		{"a function", hidden, issuing.LogAudit(nil), false},
	} {
		var log bytes.Buffer
		before := slog.Default()
		slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
		issuing.New(tt.m, issuing.Options{Audit: tt.audit})
		slog.SetDefault(before)
		if got := strings.Contains(log.String(), "is no Auditor"); got != tt.warns {
			t.Errorf("%s: got the log %q", tt.name, log.String())
		}
	}
}

func testLogAudit(t *testing.T, logger *slog.Logger, log *bytes.Buffer) {
	issuer := issuing.New(issuing.NewMemory(), issuing.Options{Audit: issuing.LogAudit(logger)})
	_, k := issue(t, issuer, grant())
	if _, err := issuer.By("ada", issuing.ReasonLeaked).Revoke(t.Context(), "acme", k.ID); err != nil {
		t.Fatal(err)
	}
	log.Reset()
	if _, _, err := issuer.By("ada", "left us").Erase(t.Context(), "acme"); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"act":"erase"`, `"actor":"ada"`, `"organization":"acme"`, `"reason":"left us"`,
		`{"field":"keys","before":"1","after":"0"},{"field":"entries","before":"2","after":"0"}`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the line is %s, want %s in it", log, want)
		}
	}
}
