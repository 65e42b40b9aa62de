// Package redact removes secrets from texts.
package redact

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// Header removes from a text what the value of a header carries as a secret: a
// token, the values of cookies, the password of Basic.
func Header(text, value string) string {
	scheme, rest, _ := strings.Cut(strings.TrimSpace(value), " ")
	if strings.EqualFold(scheme, "Basic") {
		if b, err := base64.StdEncoding.DecodeString(strings.TrimSpace(rest)); err == nil {
			_, password, _ := strings.Cut(string(b), ":")
			text = Secret(text, password)
		}
	}
	if strings.EqualFold(scheme, "Bearer") || strings.EqualFold(scheme, "Basic") {
		value = rest
	}
	for _, part := range strings.FieldsFunc(value, func(r rune) bool { return strings.ContainsRune(" \t;,", r) }) {
		text = Secret(text, part)
		if _, after, ok := strings.Cut(part, "="); ok {
			text = Secret(text, after)
		}
	}
	return text
}

// Secret removes a secret from a text, with and without its public prefix, in
// any letter case and in the forms in which fmt and encoding/json write bytes.
func Secret(text, secret string) string {
	forms := []string{secret}
	if cut := strings.LastIndexByte(secret, '_'); len(secret)-cut > 16 {
		forms = append(forms, secret[cut+1:])
	}
	for _, form := range forms {
		if len(form) < 4 {
			continue // no secret, and the log would be unreadable without it
		}
		b := []byte(form)
		for _, written := range append(base64Forms(form),
			form, strings.Trim(fmt.Sprint(b), "[]"), strings.Trim(strings.TrimPrefix(fmt.Sprintf("%#v", b), "[]byte"), "{}"),
			hex.EncodeToString(b), fmt.Sprintf("% x", b),
		) {
			text = replaceFold(text, written, "[secret]")
		}
	}
	return text
}

// base64Forms returns what the Base64 of a longer text has of the secret. It
// depends on how many bytes stand before it. Characters that also hold bits of
// the neighbours are left out.
func base64Forms(secret string) (forms []string) {
	for before := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte(strings.Repeat(" ", before) + secret))
		forms = append(forms, text[(before*8+5)/6:(before+len(secret))*8/6])
	}
	return forms
}

// replaceFold replaces old in text in any case of ASCII letters.
func replaceFold(text, old, by string) string {
	lower := lowerASCII(text)
	old = lowerASCII(old)
	var b strings.Builder
	for {
		i := strings.Index(lower, old)
		if i < 0 {
			b.WriteString(text)
			return b.String()
		}
		b.WriteString(text[:i])
		b.WriteString(by)
		text, lower = text[i+len(old):], lower[i+len(old):]
	}
}

// lowerASCII keeps the length of s, as strings.ToLower does not.
func lowerASCII(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
