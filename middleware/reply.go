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
	header    http.Header
	body      []byte
	retained  bool // header and body are whole; otherwise Location is all that header holds
}

// replyVersion is the first byte of every stored reply. A process that meets a
// version it does not know answers that the response was not retained.
const replyVersion = 1

var errReply = errors.New("middleware: stored reply is not readable")

// encode lays the reply out as
//
//	version retained status id #names (name #values value…)… body
//
// with lengths as uvarints before each string, names sorted, and the body as all
// that is left. A header field that keeps does not want is left out; nil wants all.
func (r reply) encode(keeps func(name string) bool) []byte {
	var room [16]string
	names := room[:0]
	size := 16 + len(r.requestID) + len(r.body)
	for name, values := range r.header {
		if keeps != nil && !keeps(name) {
			continue
		}
		names = append(names, name)
		size += len(name) + 4
		for _, v := range values {
			size += len(v) + 3
		}
	}
	slices.Sort(names)
	b := make([]byte, 0, size)
	b = append(b, replyVersion, 0)
	if r.retained {
		b[1] = 1
	}
	b = binary.AppendUvarint(b, uint64(r.status))
	b = appendText(b, r.requestID)
	b = binary.AppendUvarint(b, uint64(len(names)))
	for _, name := range names {
		b = appendText(b, name)
		b = binary.AppendUvarint(b, uint64(len(r.header[name])))
		for _, v := range r.header[name] {
			b = appendText(b, v)
		}
	}
	return append(b, r.body...)
}

// summary is the reply without what makes it long.
func (r reply) summary() reply {
	short := reply{requestID: r.requestID, status: r.status}
	if location := r.header["Location"]; len(location) == 1 && len(location[0]) <= 512 {
		short.header = http.Header{"Location": location}
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
		r.header = make(http.Header, min(names, 64))
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
		r.header[name] = all[begin:len(all):len(all)]
	}
	if d.failed || r.status < 200 || r.status > 999 {
		return reply{}, errReply
	}
	r.body = d.rest
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
