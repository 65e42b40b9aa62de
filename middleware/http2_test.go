package middleware_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware"
)

// Frames of RFC 9113 and fields of RFC 7541, as far as a request without a body
// needs them, because a Go client does not send what is wrong here.
const (
	frameHeaders  = 1
	frameSettings = 4
	endStream     = 0x1
	endHeaders    = 0x4
)

func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	b := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(b, stream), payload...)
}

// field is a literal without indexing, with a new name. Both are short.
func field(name, value string) []byte {
	b := append([]byte{0, byte(len(name))}, name...)
	return append(append(b, byte(len(value))), value...)
}

// http2Get sends a GET with one more field over a bare connection and returns
// the header block of the response.
func http2Get(t *testing.T, c *wire, stream uint32, fields ...[]byte) []byte {
	t.Helper()
	block := bytes.Join(append([][]byte{field(":method", "GET"), field(":scheme", "http"), field(":authority", "a"), field(":path", "/")}, fields...), nil)
	c.Write(frame(frameHeaders, endStream|endHeaders, stream, block))
	for {
		var head [9]byte
		if _, err := io.ReadFull(c.br, head[:]); err != nil {
			t.Fatal(err)
		}
		payload := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if _, err := io.ReadFull(c.br, payload); err != nil {
			t.Fatal(err)
		}
		if head[3] == frameHeaders && binary.BigEndian.Uint32(head[5:]) == stream {
			return payload
		}
	}
}

// TestHTTP2AnswersOfNetHTTP notes what the documentation of RequestIDListener
// excepts, so that a change in net/http does not go unnoticed: over HTTP/2 its
// 400 and 431 reach no handler and carry no id.
func TestHTTP2AnswersOfNetHTTP(t *testing.T) {
	srv := start(t, stage()(http.HandlerFunc(sayOK)), func(srv *httptest.Server) {
		srv.Config.MaxHeaderBytes = 4 << 10
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
	}, withRequestIDs)
	c := dial(t, srv)
	c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	c.Write(frame(frameSettings, 0, 0, nil))

	var large [][]byte
	for range 60 {
		large = append(large, field("a", strings.Repeat("x", 100)))
	}
	tests := []struct {
		name   string
		fields [][]byte
		status string // as RFC 7541 spells it
		id     bool
	}{
		{"Connection", [][]byte{field("connection", "x")}, "\x8c", false},
		{"large header", large, "\x4e\x03431", false},
		{"good", nil, "\x88", true},
	}
	for i, tt := range tests {
		block := http2Get(t, c, uint32(2*i+1), tt.fields...)
		// The first response with the id spells its name out.
		if !bytes.HasPrefix(block, []byte(tt.status)) || bytes.Contains(block, huffmanOf("svc-request-id")) != tt.id {
			t.Errorf("%s: got %x, want status %x and the id: %v", tt.name, block, tt.status, tt.id)
		}
	}
}

// TestRefusalsKeepHTTP2Connections: what closes an HTTP/1.1 connection, because
// a body is still to come, would end all streams of this one.
func TestRefusalsKeepHTTP2Connections(t *testing.T) {
	api, token := oneRoute(t, func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	}, middleware.Options{Hooks: quiet()})
	srv := startTLS(t, api)
	for i, row := range []struct {
		token string
		want  int
	}{{"", 401}, {token, 413}, {"", 401}, {token, 413}} {
		body, w := io.Pipe()
		r := newRequest(t, "PUT", srv.URL+"/api/v1/x", row.token, body)
		reused := false
		r = r.WithContext(httptrace.WithClientTrace(r.Context(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }}))
		res := do(t, srv.Client(), r)
		w.Close()
		if res.StatusCode != row.want || res.Header.Get("Connection") != "" || reused != (i > 0) {
			t.Errorf("request %d: got %d, Connection %q, on the same connection: %v", i, res.StatusCode, res.Header.Get("Connection"), reused)
		}
	}
}

// huffmanOf encodes the letters that the name of the header has.
func huffmanOf(s string) []byte {
	codes := map[rune]struct{ bits, n uint64 }{
		'-': {0x16, 6}, 'c': {0x4, 5}, 'd': {0x24, 6}, 'e': {0x5, 5}, 'i': {0x6, 5}, 'q': {0x76, 7},
		'r': {0x2c, 6}, 's': {0x8, 5}, 't': {0x9, 5}, 'u': {0x2d, 6}, 'v': {0x77, 7},
	}
	var out []byte
	var acc, n uint64
	for _, r := range s {
		acc, n = acc<<codes[r].n|codes[r].bits, n+codes[r].n
		for ; n >= 8; n -= 8 {
			out = append(out, byte(acc>>(n-8)))
		}
	}
	if n > 0 {
		out = append(out, byte(acc<<(8-n))|1<<(8-n)-1)
	}
	return out
}
