package keystore_test

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"text/template"

	"github.com/sallyport-go/sallyport/keystore"
)

const secretText = "svc_live_Zq7Xk2Wv9Jp4"

type exported struct {
	ID     string
	Secret keystore.Secret
}

type unexported struct {
	ID     string
	secret keystore.Secret
}

type nested struct {
	inner  unexported
	all    []keystore.Secret
	byName map[string]keystore.Secret
	any    any
	ptr    *keystore.Secret
}

// holders are values in which a Secret can end up.
func holders() map[string]any {
	s := keystore.NewSecret(secretText)
	return map[string]any{
		"secret":             s,
		"pointer":            &s,
		"exported":           exported{"key_1", s},
		"pointer to struct":  &exported{"key_1", s},
		"unexported":         unexported{"key_1", s},
		"pointer unexported": &unexported{"key_1", s},
		"nested":             nested{unexported{"key_1", s}, []keystore.Secret{s}, map[string]keystore.Secret{"a": s}, s, &s},
		"slice":              []keystore.Secret{s},
		"map":                map[string]keystore.Secret{"a": s},
		"map key":            map[keystore.Secret]bool{s: true},
		"error":              fmt.Errorf("issuing %v: %w", s, errors.New("failed")),
	}
}

// leak returns a piece of the secret that out holds, in plain or hexadecimal.
func leak(out string) string {
	for i := range len(secretText) - 4 {
		piece := secretText[i : i+5]
		if strings.Contains(out, piece) || strings.Contains(strings.ToLower(out), fmt.Sprintf("%x", piece)) {
			return piece
		}
	}
	return ""
}

func TestSecretDoesNotPrint(t *testing.T) {
	for name, v := range holders() {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%d", "%o", "%c", "%U", "%t",
			"%e", "%p", "%T", "%10v", "%-50s", "%!"} {
			if piece := leak(fmt.Sprintf(verb, v)); piece != "" {
				t.Errorf("Sprintf(%q) of the %s shows %q of the secret", verb, name, piece)
			}
		}
		if piece := leak(fmt.Sprint(v) + fmt.Sprintln(v)); piece != "" {
			t.Errorf("Sprint of the %s shows %q of the secret", name, piece)
		}
	}
	if got := fmt.Sprintf("%s|%v|%d|%+v", keystore.NewSecret(secretText), keystore.Secret{}, keystore.NewSecret(""),
		keystore.NewSecret(secretText)); got != "[secret]|[secret]|[secret]|[secret]" {
		t.Errorf("printed secrets are %q, want [secret] each, whatever they hold", got)
	}
}

func TestSecretDoesNotLog(t *testing.T) {
	for name, v := range holders() {
		var out bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			log := slog.New(handler)
			log.Info("issued", "key", v, slog.Group("group", "key", v), slog.Any("any", v))
			log.With("key", v).Info("issued")
		}
		if piece := leak(out.String()); piece != "" {
			t.Errorf("a log with the %s shows %q of the secret: %s", name, piece, out.String())
		}
	}
}

func TestSecretDoesNotMarshal(t *testing.T) {
	for name, v := range holders() {
		var out bytes.Buffer
		if text, err := json.Marshal(v); err == nil {
			out.Write(text)
		}
		if text, err := xml.Marshal(v); err == nil {
			out.Write(text)
		}
		gob.NewEncoder(&out).Encode(v)
		template.Must(template.New("").Parse("{{.}} {{printf `%s %q %x` . . .}}")).Execute(&out, v)
		if piece := leak(out.String()); piece != "" {
			t.Errorf("the %s marshalled shows %q of the secret: %s", name, piece, out.String())
		}
	}
	if text, err := json.Marshal(exported{"key_1", keystore.NewSecret(secretText)}); err != nil ||
		string(text) != `{"ID":"key_1","Secret":"[secret]"}` {
		t.Errorf("Marshal = %s, %v, want the secret redacted", text, err)
	}
}

func TestReveal(t *testing.T) {
	s := keystore.NewSecret(secretText)
	if got := s.Reveal(); got != secretText {
		t.Errorf("Reveal() = %q, want %q", got, secretText)
	}
	if got := (keystore.Secret{}).Reveal(); got != "" {
		t.Errorf("Reveal() of the zero Secret = %q, want nothing", got)
	}
	if again := s; again != s || s == keystore.NewSecret(secretText) {
		t.Error("== of secrets is not that of copies")
	}
}
