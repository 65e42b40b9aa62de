package main

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strings"

	"github.com/rs/xid"
)

// A cursor names the last task of a page by what pages are ordered by: when it
// was created, and its id. It holds no tenant, because the key that brings it
// back decides whose tasks are listed. The zero value stands before the newest
// task.
type cursor struct {
	micros int64 // since 1970
	id     xid.ID
}

var errCursor = errors.New("example: not a cursor")

// cursorAt is the cursor that continues after t.
func cursorAt(t task) (cursor, error) {
	id, err := xid.FromString(strings.TrimPrefix(t.ID, "task_"))
	return cursor{t.CreatedAt.UnixMicro(), id}, err
}

func (c cursor) taskID() string { return "task_" + c.id.String() }

// String is the text that clients carry from page to page and need not
// understand.
func (c cursor) String() string {
	b := binary.BigEndian.AppendUint64(nil, uint64(c.micros))
	return base64.RawURLEncoding.EncodeToString(append(b, c.id[:]...))
}

// parseCursor takes what String made and errCursor else.
func parseCursor(s string) (cursor, error) {
	var c cursor
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err != nil || len(b) != 8+len(c.id) {
		return cursor{}, errCursor
	}
	c.micros = int64(binary.BigEndian.Uint64(b))
	copy(c.id[:], b[8:])
	if c.String() != s { // the decoder skips line breaks and stray bits
		return cursor{}, errCursor
	}
	return c, nil
}
