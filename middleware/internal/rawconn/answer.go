package rawconn

import (
	"bytes"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// statusOf returns the status code if p begins with a whole status line of
// HTTP/1 (RFC 9112, section 4), else 0.
func statusOf(p []byte) int {
	line, _ := cutLine(p)
	if len(line) < len("HTTP/1.1 200\n") || string(line[:7]) != "HTTP/1." || line[8] != ' ' || line[12] > ' ' {
		return 0
	}
	status, _ := strconv.Atoi(string(line[9:12]))
	return status
}

// isOwnAnswer reports whether p is an answer that net/http gave by itself. It
// writes each at once: 400, 431, 501 and 505 with two fields and a text, 400 on
// a TLS port with a text only, 417 with three fields (conn.serve in server.go).
// The first two have no Date, unlike all responses of handlers. The 417 to HEAD,
// which may have no body, gets only the id, as would an answer in a new form.
func isOwnAnswer(status int, p []byte) bool {
	_, rest, _ := strings.Cut(string(p), "\r\n")
	return strings.HasPrefix(rest, "Content-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n") ||
		strings.HasPrefix(rest, "\r\nClient sent an HTTP request to an HTTPS server.") ||
		status == http.StatusExpectationFailed &&
			strings.HasPrefix(rest, "Connection: close\r\nDate: ") &&
			strings.HasSuffix(rest, "GMT\r\nContent-Length: 0\r\n\r\n")
}

// replace returns the message to be written in place of p, an answer of
// net/http. It keeps the status line, whose text may say what was wrong.
func (o *Options) replace(status int, p []byte) []byte {
	statusLine, _, _ := bytes.Cut(p, []byte("\r\n"))
	id := o.NewID()
	contentType, body := o.Body(status, id)
	return fmt.Appendf(nil, "%s\r\n%s: %s\r\nDate: %s\r\n"+
		"Content-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		statusLine, o.Header, id, time.Now().UTC().Format(http.TimeFormat), contentType, len(body), body)
}

// stamp returns p, which begins with a head, with the id as its first field. If
// the owner has one, it replaces other fields of that name; if not, a field
// that is there stays. Fields in later writes are not looked at.
func (o *Options) stamp(p []byte, id string) []byte {
	statusLine, rest := cutLine(p)
	var fields []byte
	for {
		line, tail := cutLine(rest)
		name, _, isField := bytes.Cut(line, []byte(":"))
		if !isField {
			break // the end of the head, or of p
		}
		if !bytes.EqualFold(name, []byte(o.Header)) {
			fields = append(fields, line...)
		} else if id == "" {
			return p
		}
		rest = tail
	}
	if id == "" {
		id = o.NewID()
	}
	return slices.Concat(statusLine, []byte(o.Header+": "+id+"\r\n"), fields, rest)
}

// cutLine returns the first line of p with its end, and the rest.
func cutLine(p []byte) (line, rest []byte) {
	end := bytes.IndexByte(p, '\n') + 1
	return p[:end], p[end:]
}
