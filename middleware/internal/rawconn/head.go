package rawconn

// head adds one line to a response head while the head passes by, in writes of
// any size. If the request has an owner, the owner's id goes out and every other
// line of that name is dropped; if it has none, a line that is there stands.
//
// It keeps no more than the start of one line, as long as that may be the name.
type head struct {
	name  string
	id    string // the owner's, or empty
	newID func() string

	at      place
	n       int // bytes seen of the status line, or matched of the name
	status  int
	held    []byte // matched bytes of the name, as they were written
	seen    bool   // a line of that name stands
	dropped bool   // the line before was dropped
}

type place uint8

const (
	inStatusLine place = iota
	atLineStart
	inName
	inLine
	inDroppedLine
	inBlankLine
	headEnded
	notHead
)

// begun reports whether a part of a head has been seen.
func (h *head) begun() bool { return h.at != inStatusLine || h.n > 0 }

// feed appends to dst what is to be written for p. It returns the number of bytes
// of p that it has dealt with, which is less than len(p) only where the head has
// ended or has turned out not to be one.
func (h *head) feed(dst, p []byte) ([]byte, int) {
	for i, c := range p {
		switch h.at {
		case inStatusLine:
			if !h.statusLine(c) {
				h.at = notHead
				return dst, i
			}
			dst = append(dst, c)
		case atLineStart:
			dst = h.lineStart(dst, c)
		case inName:
			dst = h.matchName(dst, c)
		case inLine:
			dst = h.line(dst, c)
		case inDroppedLine:
			if c == '\n' {
				h.at = atLineStart
			}
		case inBlankLine:
			dst = append(dst, c)
			h.end()
		}
		if h.at == headEnded {
			return dst, i + 1
		}
	}
	return dst, len(p)
}

const statusLinePattern = "HTTP/1.d ddd"

// statusLine takes the next byte of the status line and reports whether it can
// be one. RFC 9112, section 4; the reason phrase may be missing altogether.
func (h *head) statusLine(c byte) bool {
	n := h.n
	h.n++
	if n >= len(statusLinePattern) {
		if c == '\n' {
			h.at = atLineStart
		}
		return n > len(statusLinePattern) || c == ' ' || c == '\r' || c == '\n'
	}
	if statusLinePattern[n] != 'd' {
		return c == statusLinePattern[n]
	}
	if n > len("HTTP/1.d") {
		h.status = h.status*10 + int(c-'0')
	}
	return '0' <= c && c <= '9'
}

func (h *head) lineStart(dst []byte, c byte) []byte {
	switch {
	case c == '\r' || c == '\n':
		if !h.seen && !h.untouched() {
			dst = h.appendLine(dst)
		}
		dst = append(dst, c)
		h.at = inBlankLine
		if c == '\n' {
			h.end()
		}
		return dst
	case h.dropped && (c == ' ' || c == '\t'):
		// An obsolete line folding would continue the line above instead.
		h.at = inDroppedLine
		return dst
	case h.untouched():
		h.at = inLine
		return h.line(dst, c)
	}
	h.dropped = false
	h.n = 0
	h.at = inName
	return h.matchName(dst, c)
}

func (h *head) matchName(dst []byte, c byte) []byte {
	switch {
	case h.n < len(h.name) && lower(c) == lower(h.name[h.n]):
		h.held = append(h.held, c)
		h.n++
		return dst
	case h.n == len(h.name) && c == ':' && h.id != "":
		h.held = h.held[:0]
		h.dropped = true
		h.at = inDroppedLine
		return dst
	case h.n == len(h.name) && c == ':':
		h.seen = true
	}
	dst = append(dst, h.held...)
	h.held = h.held[:0]
	h.at = inLine
	return h.line(dst, c)
}

func (h *head) line(dst []byte, c byte) []byte {
	if c == '\n' {
		h.at = atLineStart
	}
	return append(dst, c)
}

// interim reports whether another head follows this one.
func (h *head) interim() bool { return h.status/100 == 1 && h.status != 101 }

// untouched reports whether this head goes out as it is: "100 Continue", and an
// interim head whose request may still get an owner, and so another id.
func (h *head) untouched() bool { return h.interim() && (h.status == 100 || h.id == "") }

func (h *head) end() {
	if !h.interim() {
		h.at = headEnded
		return
	}
	*h = head{name: h.name, id: h.id, newID: h.newID, held: h.held[:0]}
}

func (h *head) appendLine(dst []byte) []byte {
	id := h.id
	if id == "" {
		id = h.newID()
	}
	return appendField(dst, h.name, id)
}

// appendField appends one header line. A value cannot end the line early.
func appendField(dst []byte, name, value string) []byte {
	dst = append(append(dst, name...), ": "...)
	for _, c := range []byte(value) {
		if c < ' ' || c == 0x7f {
			c = ' '
		}
		dst = append(dst, c)
	}
	return append(dst, "\r\n"...)
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}
