package keycli

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// This file makes keys: issue and import.

func issue(c *call) func() error {
	g := keystore.Key{Attributes: make(map[string]string)}
	c.flags.StringVar((*string)(&g.Environment), "env", "", "`environment`: production or sandbox")
	scopes := several(c, "scopes", "`names` of the scopes that the key holds", scopeName)
	networks := several(c, "networks", "`networks` that the key may be used from, such as 192.0.2.0/24", netip.ParsePrefix)
	expires := c.time("expires", "`TIME` from which the key is refused; none: never", false)
	c.flags.StringVar(&g.IssueToken, "once", "", "`text` that makes one key, however often it is given")
	c.flags.Func("attribute", "`name=value` of an attribute; may be repeated", func(text string) error {
		name, value, found := strings.Cut(text, "=")
		if !found || value == "" {
			return errors.New("write it as name=value")
		}
		g.Attributes[name] = value
		return nil
	})
	return func() error {
		if len(*scopes) == 0 {
			return wrong("say with -scopes what the key may do; there are: %s", c.issuer.Service().Scopes)
		}
		g.Organization, g.Name = c.organization, c.args[0]
		g.Scopes, g.Networks, g.ExpiresAt = *scopes, *networks, *expires
		secret, k, err := c.issuer.Issue(c.ctx, g)
		if errors.Is(err, issuing.ErrExists) && k != nil {
			return refuse("-once %q has made %s before; rotate that if its secret is lost", g.IssueToken, k.ID)
		}
		if err != nil {
			return err
		}
		err = c.reveal(secret, k)
		if err == nil {
			return nil
		}
		// Ctrl-C ends also the program behind the pipe that was to take the secret.
		if _, revokeErr := c.issuer.Revoke(context.WithoutCancel(c.ctx), k.Organization, k.ID); revokeErr != nil {
			return fmt.Errorf("%w; revoke %s, which is active: that failed too (%w)", err, k.ID, revokeErr)
		}
		return fmt.Errorf("%w; %s was made, and is revoked", err, k.ID)
	}
}

// An oldKey is what import reads: a key as -json prints it, and its token, or
// the digest under which the older system kept that.
type oldKey struct {
	keystore.Key
	Token  string `json:"token"`
	Digest string `json:"digest"` // 64 hexadecimal digits
	Masked string `json:"masked"` // ignored, as are Status and Living
	Status string `json:"status"`
	Living int    `json:"children"`
}

func importKeys(c *call) error {
	keys, err := c.oldKeys()
	if err != nil {
		return err
	}
	there := 0
	for i, old := range keys {
		k, err := c.issuer.Import(c.ctx, old.Key, old.Token)
		switch {
		case err == nil:
			continue
		case errors.Is(err, issuing.ErrExists) && k != nil:
			there++
			continue
		case errors.Is(err, issuing.ErrExists):
			err = refuse("another organization has this key")
		}
		code, text := explain(err)
		if code == absent { // of the input, not of the store
			code = misused
		}
		return outcome{code, fmt.Sprintf("%d of %d keys are stored, and key %d of the input is not: %s",
			i, len(keys), i+1, text)}
	}
	return c.done(map[string]int{"imported": len(keys) - there, "existing": there},
		"imported: %d, there already: %d", len(keys)-there, there)
}

// escapes are those of JSON: two halves of a character, one alone, and all others.
var escapes = regexp.MustCompile(`(?i)\\ud[89ab]..\\ud[c-f]..|\\ud([89a-f])|\\.`)

// isText reports whether JSON is UTF-8 text. Decode reads other bytes as U+FFFD, and
// halves of characters, which Python makes of such bytes: two names would be one.
func isText(raw []byte) bool {
	half := func(escape [][]byte) bool { return escape[1] != nil }
	return utf8.Valid(raw) && !slices.ContainsFunc(escapes.FindAllSubmatch(raw, -1), half)
}

// oldKeys reads all of standard input, before anything is stored.
func (c *call) oldKeys() (keys []oldKey, err error) {
	text, err := io.ReadAll(c.in)
	if err != nil {
		return nil, err
	}
	input := json.NewDecoder(bytes.NewReader(text))
	input.DisallowUnknownFields()
	for {
		var k oldKey
		start := input.InputOffset()
		err := input.Decode(&k)
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && !isText(text[start:input.InputOffset()]) {
			err = errors.New("it is not UTF-8 text")
		}
		digest, hexErr := hex.DecodeString(k.Digest)
		if n := copy(k.Key.Digest[:], digest); err == nil &&
			(hexErr != nil || n != len(digest) || n%len(k.Key.Digest) != 0) {
			err = errors.New("the digest is not 64 hexadecimal digits")
		}
		if err == nil && c.organization != "" && k.Organization != c.organization {
			err = errors.New("it is of another organization than -org")
		}
		if err != nil {
			text := strings.TrimPrefix(err.Error(), "json: ")
			if !strings.HasPrefix(text, "unknown field") {
				text, _, _ = strings.Cut(text, `"`) // without what it quotes, which may be a token
			}
			return nil, wrong("nothing was stored, since key %d of the input is not as import reads it: %s",
				len(keys)+1, text)
		}
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil, wrong("standard input is empty; a line for each key belongs there, such as " +
			`{"token": …, "organization": …, "environment": "production", "name": …, "scopes": […]}, ` +
			`or with "legacy" and "digest" in place of "token"`)
	}
	return keys, nil
}
