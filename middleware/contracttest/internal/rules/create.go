package rules

import (
	"crypto/rand"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// A creation is a create that can be told from all others.
type creation struct {
	request
	route  int      // index of Target.Creates
	marker string   // part of the body that no other creation has; "" when the body has no template
	values []string // of the template
	seenBy string   // the key whose list shows the resource
}

// creator returns the key whose list shows what this key creates, and whether
// it may create at all.
func (s *Session) creator(key string) (lister string, may bool) {
	for _, name := range []string{"other", "sandbox"} {
		if key != "" && key == s.key(name) {
			return key, true
		}
	}
	if key != "" && key == s.key("sandbox-none") && s.has("sandbox") {
		return s.key("sandbox"), false
	}
	return s.full(), key != "" && (key == s.full() || key == s.key("second") || key == s.key("writer"))
}

// create prepares a create with a new idempotency key. When the API key may
// not create, the ledger expects no resource of it.
func (s *Session) create(route int, key string) creation {
	c := s.unkeyed(route, key)
	return c.keyedWith(newUUID())
}

// eachCreate calls f with a new create for each route.
func (s *Session) eachCreate(key string, f func(c creation)) {
	for i := range s.target.Creates {
		f(s.create(i, key))
	}
}

// unkeyed prepares a create without an idempotency key.
func (s *Session) unkeyed(route int, key string) creation {
	to := s.target.Creates[route]
	body, marker, values := fill(to.Body)
	c := creation{request{method: "POST", path: to.Path, body: body}, route, marker, values, ""}
	if key != "" {
		c.lines = append(c.lines, bearer(key))
	}
	c.lines = append(c.lines, "Content-Type: "+to.Type)
	lister, may := s.creator(key)
	c.seenBy = lister
	s.expect(c, 0)
	if may {
		s.expect(c, 1)
	}
	return c
}

// as returns the same create with another API key.
func (c creation) as(key string) creation {
	c.request = c.without("Authorization")
	if key != "" {
		c.lines = append([]string{bearer(key)}, c.lines...)
	}
	return c
}

// keyedWith returns the same create with another idempotency key.
func (c creation) keyedWith(key string) creation {
	c.request = c.without("Idempotency-Key").with("Idempotency-Key: " + key)
	return c
}

func (r request) without(name string) request {
	r.lines = slices.DeleteFunc(slices.Clone(r.lines), func(line string) bool {
		n, _, _ := strings.Cut(line, ":")
		return strings.EqualFold(n, name)
	})
	return r
}

// key is the idempotency key.
func (c creation) key() string { return c.header("Idempotency-Key") }

// newUUID returns a new idempotency key, which every server takes.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

var number atomic.Int64

// fill puts values that nobody has used into a template.
func fill(template string) (body, marker string, values []string) {
	random := "ck" + strings.ToLower(rand.Text()[:18])
	uuid := newUUID()
	digits := strconv.FormatInt(time.Now().UnixMilli()%1e9*1000+number.Add(1)%1000, 10)
	switch {
	case strings.Contains(template, "{{random}}"):
		marker = random
	case strings.Contains(template, "{{uuid}}"):
		marker = uuid
	}
	filler := strings.NewReplacer("{{random}}", random, "{{uuid}}", uuid, "{{number}}", digits)
	return filler.Replace(template), marker, []string{random, uuid, digits}
}

// blank takes the values of the template out of a response.
func (c creation) blank(text string) string {
	for _, value := range c.values {
		text = strings.ReplaceAll(text, value, "{{}}")
	}
	return text
}

// list returns the body as the only one of a list.
func (c creation) list() string { return "[" + c.body + "]" }

// half returns the body up to the middle of a JSON string, behind enough of
// the marker to find it again. Without a marker it is half of the body.
func (c creation) half() string {
	if c.marker != "" {
		return c.body[:strings.Index(c.body, c.marker)+markerPrefix+2]
	}
	return c.body[:len(c.body)/2]
}
