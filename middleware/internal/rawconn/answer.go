package rawconn

import (
	"bytes"
	"strconv"
)

// plainOnTLS is what net/http writes below TLS to a client that speaks plain
// HTTP. [ListenTLS] handshakes in its place, so it writes this in its place too.
const plainOnTLS = "HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"

// replace returns the whole message to be written instead of p, if p is an answer
// that net/http wrote by itself. These come as a single write, and have one of
// three shapes. The first two have no Date, which net/http gives to the response of
// every handler; the third is also that of a handler without [Own] that refuses an
// expectation in the same way:
//
//	400, 431, 501, 505:  Content-Type: text/plain; charset=utf-8, Connection: close, a text
//	400 below TLS:       no header line, a text
//	417:                 Connection: close, Date, Content-Length: 0, no body
//
// The 417 for HEAD has no Content-Length and gets no body either, so it is not
// replaced. An answer of any other shape, from another version of net/http for
// example, still gets its header line by [head].
func (o *Options) replace(p []byte) ([]byte, bool) {
	if o.Body == nil {
		return nil, false
	}
	statusLine, status, date, ok := canned(p)
	if !ok {
		return nil, false
	}
	id := o.NewID()
	contentType, body := o.Body(status, id)

	out := make([]byte, 0, 256+len(statusLine)+len(body))
	out = append(append(out, statusLine...), "\r\n"...)
	if date != nil {
		out = append(append(out, date...), "\r\n"...)
	}
	if contentType != "" {
		out = appendField(out, "Content-Type", contentType)
	}
	out = appendField(out, "Content-Length", strconv.Itoa(len(body)))
	out = appendField(out, "Connection", "close")
	out = appendField(out, o.Header, id)
	out = append(out, "\r\n"...)
	return append(out, body...), true
}

// canned takes an answer of net/http apart.
func canned(p []byte) (statusLine []byte, status int, date []byte, ok bool) {
	crlf := []byte("\r\n")
	statusLine, rest, found := bytes.Cut(p, crlf)
	if !found || len(statusLine) < len("HTTP/1.1 400") || !bytes.HasPrefix(statusLine, []byte("HTTP/1.")) {
		return nil, 0, nil, false
	}
	status, err := strconv.Atoi(string(statusLine[9:12]))
	if err != nil || status < 400 {
		return nil, 0, nil, false
	}
	var text, empty, closes bool
	for {
		var line []byte
		if line, rest, found = bytes.Cut(rest, crlf); !found {
			return nil, 0, nil, false
		}
		if len(line) == 0 {
			break
		}
		switch {
		case string(line) == "Connection: close":
			closes = true
		case string(line) == "Content-Type: text/plain; charset=utf-8":
			text = true
		case string(line) == "Content-Length: 0":
			empty = true
		case bytes.HasPrefix(line, []byte("Date: ")):
			date = line
		default:
			return nil, 0, nil, false
		}
	}
	if status == 417 && empty && closes && !text && len(rest) == 0 {
		return statusLine, status, date, true
	}
	return statusLine, status, nil, date == nil && !empty && len(rest) > 0
}
