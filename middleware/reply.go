package middleware

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unsafe"
)

// reply is what is kept of a response to an idempotent request.
type reply struct {
	requestID string // of the first response
	status    int
	header    fields
	body      []byte
	retained  bool // header and body are whole; otherwise Location is all that header holds
}

// replyVersion is the first byte of every stored reply. A process that meets a
// version it does not know answers that the response was not retained.
const replyVersion = 1

var errReply = errors.New("middleware: stored reply is not readable")

// fields are header fields, each name once. They take half the memory of a map,
// and are as fast for the few that a response has.
type fields []field

type field struct {
	name   string
	values []string
}

func (f fields) get(name string) (values []string, has bool) {
	for i := range f {
		if f[i].name == name {
			return f[i].values, true
		}
	}
	return nil, false
}

// copyFields returns the fields of h, with values of their own, and has room for
// one more.
func copyFields(h http.Header) fields {
	n := 0
	for _, values := range h {
		n += len(values)
	}
	f, all := make(fields, 0, len(h)+1), make([]string, 0, n)
	for name, values := range h {
		begin := len(all)
		all = append(all, values...)
		f = append(f, field{name, all[begin:len(all):len(all)]})
	}
	return f
}

// copyTo makes h consist of the fields.
func (f fields) copyTo(h http.Header) {
	clear(h)
	for i := range f {
		h[f[i].name] = f[i].values
	}
}

// encode lays the reply out as
//
//	version retained status id #names (name #values value…)… body
//
// with lengths as uvarints before each string, names sorted, and the body as all
// that is left. A header field that keeps does not want is left out; nil wants all.
func (r reply) encode(keeps func(name string) bool) []byte {
	var room [8]field
	kept := room[:0]
	size := 16 + len(r.requestID) + len(r.body)
	for _, f := range r.header {
		if keeps != nil && !keeps(f.name) {
			continue
		}
		kept = append(kept, f)
		size += len(f.name) + 4
		for _, v := range f.values {
			size += len(v) + 3
		}
	}
	slices.SortFunc(kept, func(a, b field) int { return strings.Compare(a.name, b.name) })
	b := make([]byte, 0, size)
	b = append(b, replyVersion, 0)
	if r.retained {
		b[1] = 1
	}
	b = binary.AppendUvarint(b, uint64(r.status))
	b = appendText(b, r.requestID)
	b = binary.AppendUvarint(b, uint64(len(kept)))
	for _, f := range kept {
		b = appendText(b, f.name)
		b = binary.AppendUvarint(b, uint64(len(f.values)))
		for _, v := range f.values {
			b = appendText(b, v)
		}
	}
	return append(b, r.body...)
}

// summary is the reply without what makes it long.
func (r reply) summary() reply {
	short := reply{requestID: r.requestID, status: r.status}
	if location, _ := r.header.get("Location"); len(location) == 1 && len(location[0]) <= 512 {
		short.header = fields{{"Location", location}}
	}
	return short
}

// decodeReply reads what encode wrote. All of the reply shares b's memory, which
// nobody writes to.
func decodeReply(b []byte) (reply, error) {
	if len(b) < 2 || b[0] != replyVersion {
		return reply{}, errReply
	}
	d := decoder{rest: b[2:]}
	r := reply{retained: b[1] == 1, status: d.number()}
	r.requestID = d.text()
	names := d.number()
	var all []string
	if names > 0 {
		r.header = make(fields, 0, min(names, 64))
		all = make([]string, 0, min(names, 64))
	}
	for range names {
		name, begin := d.text(), len(all)
		for n := d.number(); n > 0 && !d.failed; n-- {
			all = append(all, d.text())
		}
		if d.failed {
			break
		}
		r.header = append(r.header, field{name, all[begin:len(all):len(all)]})
	}
	if d.failed || r.status < 200 || r.status > 999 {
		return reply{}, errReply
	}
	r.body = d.rest[:len(d.rest):len(d.rest)]
	return r, nil
}

type decoder struct {
	rest   []byte
	failed bool
}

// number returns a length or a count, which is never more than the bytes left,
// except for the status, which is small.
func (d *decoder) number() int {
	n, size := binary.Uvarint(d.rest)
	if size <= 0 || n > uint64(max(len(d.rest), 1000)) {
		d.failed, d.rest = true, nil
		return 0
	}
	d.rest = d.rest[size:]
	return int(n)
}

func (d *decoder) text() string {
	n := d.number()
	if n > len(d.rest) {
		d.failed, d.rest = true, nil
		return ""
	}
	s := unsafe.String(unsafe.SliceData(d.rest), n)
	d.rest = d.rest[n:]
	return s
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// replayable reports whether a handler's header field is part of a replay. What
// belongs to one connection, one client or one moment is not.
func replayable(name string) bool {
	switch http.CanonicalHeaderKey(name) {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", // hop-by-hop (RFC 9110, section 7.6.1)
		"Date", "Set-Cookie", "Authorization", "Idempotent-Replayed":
		return false
	}
	return !hasPrefixFold(name, "Ratelimit") && !hasPrefixFold(name, "X-Ratelimit-") &&
		!hasPrefixFold(name, "Access-Control-") && !hasPrefixFold(name, http.TrailerPrefix)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}
