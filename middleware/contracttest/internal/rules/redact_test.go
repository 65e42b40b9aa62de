package rules

import (
	"encoding/base64"
	"strings"
	"testing"
)

func TestRedact(t *testing.T) {
	const full, other = "svc_live_8fJ2mQx7LpZ4wRtYk1Vb3NcD5sGh6A", "svc_test_Yq5oUz0XiC8jMf2ANe7TgB4rKw9Hd1"
	r := newRedactor(map[string]string{"full": full, "sandbox-none": other, "none": ""})
	basic := base64.StdEncoding.EncodeToString([]byte("me:" + full))
	for text, want := range map[string]string{
		"":                                   "",
		"Bearer " + full + ".":               "Bearer $FULL.",
		full + other:                         "$FULL$SANDBOX_NONE",
		"svc_live_" + full[9:25]:             "svc_live_[part of a key]",
		full[:len(full)-1] + "x":             "svc_live_[part of a key]x",
		strings.ToUpper(full):                "SVC_LIVE_[part of a key]",
		strings.ToLower(full) + "é":          "svc_live_[part of a key]é",
		"svc_live_8fJ2mQx":                   "svc_live_8fJ2mQx", // less than eight
		"İ " + full[9:20]:                    "[part of a key]",
		"nothing of 12345678901234567890":    "nothing of 12345678901234567890",
		"key=" + strings.Repeat(full+"&", 3): "key=$FULL&$FULL&$FULL&",
	} {
		got := r.text(text)
		if want == "[part of a key]" {
			if strings.Contains(got, full[9:17]) || !strings.HasSuffix(got, want) {
				t.Errorf("%q: got %q", text, got)
			}
			continue
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := r.text("Basic " + basic); strings.Contains(got, basic[20:40]) {
		t.Errorf("base64: got %q", got)
	}
	for text, want := range map[string]bool{
		"":                                      false,
		full:                                    true,
		"id " + full[9:]:                        true,
		"xx" + full[12:28] + "yy":               true,
		"xxxxxxx" + full[11:27]:                 true,
		full[9:20]:                              false,
		strings.ToUpper(full):                   true,
		basic:                                   true,
		strings.Repeat("svc_live_svc_test_", 9): false,
	} {
		if got := r.holds(text); got != want {
			t.Errorf("holds(%q): got %v, want %v", text, got, want)
		}
	}
}

// A random part in base64url has underscores in it.
func TestRedactUnderscores(t *testing.T) {
	for _, key := range []string{
		"svc_live_AbCdEfGhIjKlMnOpQrStUvWx_YzabcdefgHIJ",
		"svc_test_AbCdEfGhIjKlMnOp_QrStUvWx_Yz",
		"acme_key_AbCdEfGhIjKlMnOp_QrStUvWx_YzabcdefgHIJ",
		"AbCdEfGhIjKlMnOp_QrStUvWx_YzabcdefgHIJ",
	} {
		r := newRedactor(map[string]string{"full": key})
		for what, other := range altered(key) {
			got := r.text("Bearer " + other)
			for i := 0; i+gram <= len(key); i++ {
				part := key[i : i+gram]
				if strings.Contains(hiddenPart(key), part) && strings.Contains(strings.ToLower(got), strings.ToLower(part)) {
					t.Errorf("%s with %s: got %q", key, what, got)
					break
				}
			}
		}
	}
	const id = "01JABCDEFGHJKMNPQRSTVWXYZ0"
	if newRedactor(map[string]string{"full": "svc_live_" + id + "_AbCdEfGhIjKlMnOpQrStUvWxYz"}).holds("key " + id) {
		t.Error("the id of a key is taken for the key")
	}
}

// What base64 makes of a key is known, but for its first and last characters.
func TestRedactBase64(t *testing.T) {
	const key = "svc_live_8fJ2mQx7LpZ4wRtYk1Vb3NcD5sGh6A"
	r := newRedactor(map[string]string{"full": key})
	for shift := range 3 {
		text := base64.StdEncoding.EncodeToString([]byte("???"[:shift] + key + "???"))
		text = text[:len(base64.RawStdEncoding.EncodeToString([]byte("???"[:shift]+key)))]
		if want := text[:12] + "[part of a key]" + text[len(text)-2:]; r.text(text) != want {
			t.Errorf("shift %d: got %s, want %s", shift, r.text(text), want)
		}
		// Two grams and one more are most of a key.
		for at := 12; at+16 <= len(text)-2; at++ {
			if !r.holds("!"+text[at:at+16]) || r.holds("!"+text[at:at+15]) {
				t.Errorf("shift %d: a part from %d is not told from a shorter one", shift, at)
			}
		}
		if !r.holds(text[12:28]+"!") || r.holds("!"+text[:27]) || r.holds(text[len(text)-17:]) {
			t.Errorf("shift %d: the ends count", shift)
		}
	}
	// A short key has no part that base64 keeps.
	for _, key := range []string{"a", "12345678", "123456789"} {
		if r := newRedactor(map[string]string{"full": key}); r.text("x"+key+"x") != "x$FULLx" || !r.holds("x"+key) {
			t.Errorf("%s: got %q", key, r.text("x"+key+"x"))
		}
	}
}

// The longest key is looked for first.
func TestRedactLongest(t *testing.T) {
	keys := map[string]string{"full": "12345678", "other": "1234567890", "second": "123456789"}
	if got := newRedactor(keys).text("1234567890 123456789 12345678"); got != "$OTHER $SECOND $FULL" {
		t.Errorf("got %s", got)
	}
}

func TestParts(t *testing.T) {
	for key, want := range map[string][2]string{
		"svc_live_12345678":          {"12345678", "12345678"},
		"svc_live_1234567":           {"svc_live_1234567", "svc_live_1234567"},
		"svc_live_id456789_12345678": {"id456789_12345678", "12345678"},
		"ABCDEFGH":                   {"ABCDEFGH", "ABCDEFGH"},
		"_12345678":                  {"_12345678", "12345678"},
		"acme_x_A2345678":            {"A2345678", "A2345678"},
	} {
		if got := [2]string{hiddenPart(key), secretPart(key)}; got != want {
			t.Errorf("%s: got %q, want %q", key, got, want)
		}
	}
}
