package idemclient

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// mayHaveBegun has the statuses after which another try may get another answer,
// and whether the request may have taken effect before this one.
var mayHaveBegun = map[int]bool{408: false, 425: false, 429: false, 500: true, 502: true, 503: true, 504: true}

// worthRepeating reports whether another try may get another answer.
func worthRepeating(res *http.Response) bool {
	told := strings.ToLower(res.Header.Get("X-Should-Retry"))
	_, known := mayHaveBegun[res.StatusCode]
	switch {
	case res.StatusCode < 400 || told == "false" || replayed(res):
		return false
	case told == "true":
		return true
	case res.StatusCode == http.StatusConflict: // with Retry-After the first request is still running
		return res.Header.Get("Retry-After") != ""
	}
	return known
}

// replayed reports whether the answer is the stored one of an earlier try.
func replayed(res *http.Response) bool { return res.Header.Get("Idempotent-Replayed") == "true" }

// retryAfter returns the wait that the server asks for, and 0 if it asks for
// none that can be understood.
func retryAfter(value string) time.Duration {
	seconds, err := strconv.ParseUint(value, 10, 64)
	if err == nil || errors.Is(err, strconv.ErrRange) {
		return time.Duration(min(seconds, 1<<31)) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return max(0, time.Until(date))
	}
	return 0
}

// hold reads a body whose length is declared, so that one that breaks off is
// found out while the request can still be sent again. end is called when the
// body is no longer read.
func (o *operation) hold(res *http.Response, end func()) error {
	switch {
	case res.StatusCode == http.StatusSwitchingProtocols: // the body is the connection
		if conn, ok := res.Body.(io.ReadWriteCloser); ok {
			res.Body = &connection{conn, end}
		}
		return nil
	case res.Body == nil:
		res.Body = http.NoBody
	case res.ContentLength > 0 && res.ContentLength <= o.maxBody() && res.StatusCode != http.StatusNotModified:
		// The Content-Length of a 304 is that of the body which the client has.
		whole, err := io.ReadAll(res.Body)
		res.Body.Close()
		end()
		res.Body = &body{io.NopCloser(bytes.NewReader(whole)), o, end}
		return err
	}
	res.Body = &body{res.Body, o, end}
	return nil
}

// body is that of an answer. It names the key when it breaks off.
type body struct {
	io.ReadCloser
	o   *operation
	end func()
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err == nil {
		return n, nil
	}
	b.end()
	if err != io.EOF && b.o.key != "" {
		err = b.o.unknown(err)
	}
	return n, err
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// connection is the body of 101.
type connection struct {
	io.ReadWriteCloser
	end func()
}

func (c *connection) Close() error {
	defer c.end()
	return c.ReadWriteCloser.Close()
}
