package rules

import (
	"encoding/base64"
	"strings"
	"testing"
)

// The test is inside the package: which texts are taken for keys is nothing
// that a target shows.
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
