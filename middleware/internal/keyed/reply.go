package keyed

import (
	"encoding/binary"
	"errors"
	"net/http"
	"slices"
	"strings"
	"unsafe"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// Reply is what is stored of a response.
type Reply struct {
	RequestID string // of the first response
	Status    int
	Body      []byte
	Retained  bool // header and body are whole; otherwise only Location is kept

	header fields
}

// OriginalIDHeader names the header in which a replay tells the first
// response's id: Svc-Request-Id gives Svc-Original-Request-Id.
func OriginalIDHeader(header string) string {
	if prefix, ok := strings.CutSuffix(header, "Request-Id"); ok {
		return prefix + "Original-Request-Id"
	}
	return "Original-" + header
}

// replyVersion is the first byte of every stored reply. Of a version that it
// does not know, a process answers that the response was not retained.
const replyVersion = 1

var errReply = errors.New("middleware: the stored reply is damaged, sealed or of a later version")

// fields are header fields, each name once. They take half the memory of a map
// and are as fast for the few fields that a response has.
type fields []field

type field struct {
	name   string
	values []string
}

func (f fields) get(name string) []string {
	if i := slices.IndexFunc(f, func(f field) bool { return f.name == name }); i >= 0 {
		return f[i].values
	}
	return nil
}

// room is for a few fields with single values.
type room struct {
	fields [4]field
	values [4]string
}

// copyFields returns a deep copy of the fields of h, in room as far as they fit.
func copyFields(h http.Header, room *room) fields {
	f, all := room.fields[:0], room.values[:0]
	for name, values := range h {
		begin := len(all)
		all = append(all, values...)
		f = append(f, field{name, all[begin:len(all):len(all)]})
	}
	return f
}

// replace makes h consist of the fields.
func (f fields) replace(h http.Header) {
	clear(h)
	f.set(h)
}

func (f fields) set(h http.Header) {
	for i := range f {
		h[f[i].name] = f[i].values
	}
}

// encode lays the reply out as
//
//	version retained status id #names (name #values value…)… body
//
// with its length as a uvarint before each string, the names sorted, and the
// body, which the caller appends, as the rest. The capacity is exact, with room
// for so many bytes more, because a store keeps it as long as the reply.
func (r Reply) encode(room int) []byte {
	slices.SortFunc(r.header, func(a, b field) int { return strings.Compare(a.name, b.name) })
	var short [256]byte
	head := append(short[:0], replyVersion, 0)
	if r.Retained {
		head[1] = 1
	}
	head = binary.AppendUvarint(head, uint64(r.Status))
	head = appendText(head, r.RequestID)
	head = binary.AppendUvarint(head, uint64(len(r.header)))
	for _, f := range r.header {
		head = appendText(head, f.name)
		head = binary.AppendUvarint(head, uint64(len(f.values)))
		for _, v := range f.values {
			head = appendText(head, v)
		}
	}
	return append(make([]byte, 0, len(head)+room), head...)
}

// summary returns the reply without its body and without long fields.
func (r Reply) summary() Reply {
	summary := Reply{RequestID: r.RequestID, Status: r.Status}
	if location := r.header.get("Location"); len(location) == 1 && len(location[0]) <= 512 {
		summary.header = fields{{"Location", location}}
	}
	return summary
}

// Decode reads what encode wrote. The reply shares b's memory, which nobody may
// write to.
func Decode(b []byte) (Reply, error) {
	if len(b) < 2 || b[0] != replyVersion {
		return Reply{}, errReply
	}
	d := decoder{rest: b[2:]}
	r := Reply{Retained: b[1] == 1, Status: d.number()}
	r.RequestID = d.text()
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
	if d.failed || r.Status < 200 || r.Status > 999 {
		return Reply{}, errReply
	}
	r.Body = d.rest[:len(d.rest):len(d.rest)]
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

// Location returns the Location header of the response, or "".
func (r Reply) Location() string {
	if v := r.header.get("Location"); len(v) > 0 {
		return v[0]
	}
	return ""
}

// Send writes the reply to w, beside the header fields that are set there, with
// the stage's advice.
func (r Reply) Send(s *Stage, w http.ResponseWriter) {
	r.header.set(w.Header())
	s.advise(w.Header(), r.Status)
	w.WriteHeader(r.Status)
	if len(r.Body) > 0 {
		_, _ = w.Write(r.Body) // the client has left: it may repeat again
	}
}

// ShouldRetry is the field that tells clients whether to repeat a request. What
// the stage says is not stored, because what is final is known when a response
// is sent. What the handler has set is stored and replayed.
const ShouldRetry = "X-Should-Retry"

// advise sets ShouldRetry on a response that each repeat gets too, unless the
// handler has done so.
func (s *Stage) advise(h http.Header, status int) {
	advice := codes.Final(status)
	if _, set := h[ShouldRetry]; s.Advises && advice != "" && !set {
		h[ShouldRetry] = []string{string(advice)}
	}
}

// replayable reports whether a handler's header field of that canonical name is
// part of a replay. Fields that belong to one connection, one client or one
// moment are not.
func replayable(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", // hop-by-hop (RFC 9110, section 7.6.1)
		"Date", "Set-Cookie", "Authorization", "Idempotent-Replayed":
		return false
	}
	return !strings.HasPrefix(name, "Ratelimit") && !strings.HasPrefix(name, "X-Ratelimit-") &&
		!strings.HasPrefix(name, "Access-Control-") && !strings.HasPrefix(name, http.TrailerPrefix)
}
