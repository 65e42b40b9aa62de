package middleware_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
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

// http2Get sends a GET with one more field over a bare connection and returns the
// header block of the response.
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

// TestHTTP2AnswersOfNetHTTP notes what the documentation of Harden excepts, so that
// a change in net/http does not go unnoticed: over HTTP/2 its 400 and 431 reach no
// handler and carry no id.
func TestHTTP2AnswersOfNetHTTP(t *testing.T) {
	srv := start(t, stage()(http.HandlerFunc(sayOK)), func(srv *httptest.Server) {
		srv.Config.MaxHeaderBytes = 4 << 10
		srv.Config.Protocols = new(http.Protocols)
		srv.Config.Protocols.SetUnencryptedHTTP2(true)
	}, hardened)
	c := dial(t, srv)
	c.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
	c.Write(frame(frameSettings, 0, 0, nil))

	// In the first response that has it, the name is spelled out.
	huffman := huffmanOf("svc-request-id")
	tests := []struct {
		name   string
		field  [][]byte
		status byte // the index of RFC 7541, appendix A
		id     bool
	}{
		{"Connection", [][]byte{field("connection", "x")}, 0x80 | 12, false},
		{"good", nil, 0x80 | 8, true},
	}
	for i, tt := range tests {
		block := http2Get(t, c, uint32(2*i+1), tt.field...)
		if bytes.IndexByte(block[:2], tt.status) < 0 || bytes.Contains(block, huffman) != tt.id {
			t.Errorf("%s: got %x, want status index %d and the id: %v", tt.name, block, tt.status, tt.id)
		}
	}

	large := newRequest(t, "GET", srv.URL, "", nil)
	for range 50 {
		large.Header.Add("A", strings.Repeat("x", 100))
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{Protocols: protocols}
	defer transport.CloseIdleConnections()
	if res := do(t, &http.Client{Transport: transport}, large); res.StatusCode != 431 || len(res.Header.Values(idHeader)) != 0 {
		t.Errorf("large header: got %d with ids %q", res.StatusCode, res.Header.Values(idHeader))
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
