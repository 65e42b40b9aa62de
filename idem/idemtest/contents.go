package idemtest

import (
	"math/rand/v2"
	"strings"

	"github.com/sallyport-go/sallyport/idem"
)

var contentRules = []rule{
	{"odd-bytes",
		"Keys, tokens, fingerprints and payloads are bytes: none of them ends, escapes or separates anything.",
		func(e *env) {
			var all strings.Builder
			for b := range 256 {
				all.WriteByte(byte(b))
			}
			payloads := []string{
				"\x00", "\x00\x00answer\x00", "\xff\xfe", "a\r\nb", "'; --", "\"\\{}%s$1",
				"\xed\xa0\x80 no UTF-8 \xc3\x28", all.String(),
			}
			for i, fill := range []byte{0x00, 0x0a, 0x22, 0x27, 0x3a, 0x5c, 0x80, 0xff} {
				c := e.lasting()
				for j := range 32 {
					c.Key[j], c.Fingerprint[j] = fill, fill
				}
				for j := range c.Token {
					c.Token[j] = fill
				}
				e.mustClaim("a key of odd bytes", c, 1)
				e.mustBeOf(c, e.must("another token", again(c), idem.InProgress))
				e.extend("a token of odd bytes", c, nil)
				e.settle("a token of odd bytes", c, finished(payloads[i]), nil)
				e.mustReplay("a payload of odd bytes", again(c), payloads[i])
			}
		}},
	{"big-payload", "A payload of 1 MiB comes back byte for byte.",
		func(e *env) {
			source := rand.NewChaCha8([32]byte{7})
			payload := make([]byte, 1<<20)
			source.Read(payload)
			c := e.held()
			e.settle("the holder", c, finished(string(payload)), nil)
			e.mustReplay("afterwards", again(c), string(payload))
			e.settle("resent", c, finished(string(payload)), nil)
		}},
	{"empty-payload",
		"A finished claim without a payload is done and whole, not unknown; nil and empty are the same.",
		func(e *env) {
			for i, payload := range [][]byte{nil, {}} {
				c := e.lasting()
				c.Key[0] = byte(i)
				e.mustClaim("a new key", c, 1)
				s := finished("")
				s.Payload, s.Summary = payload, nil
				e.settle("the holder", c, s, nil)
				e.mustReplay("afterwards", again(c), "")
				s.Payload = [][]byte{{}, nil}[i]
				e.settle("resent with the other of nil and empty", c, s, nil)
			}
		}},
}
