package keyed

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestReplyRoundTrip(t *testing.T) {
	rows := []Reply{
		{Status: 200, Retained: true},
		{RequestID: "d0c2s3ksdui0q3g8l2m0", Status: 201, header: fields{{"Location", []string{"/a"}}},
			Body: []byte("{}"), Retained: true},
		{Status: 999, header: fields{{"Content-Type", []string{}}, {"Empty", []string{""}},
			{"Link", []string{"b", "a", "b"}}, {"x-lower", []string{"1"}}}, Body: []byte{0, 255}, Retained: true},
		{RequestID: strings.Repeat("i", 64), Status: 204, header: fields{{"Location", []string{"/a"}}}},
		{Status: 200, header: fields{{"Big", []string{strings.Repeat("a", 70_000)}}}, Body: make([]byte, 70_000),
			Retained: true},
	}
	for _, want := range rows {
		encoded := want.encode(len(want.Body))
		got, err := Decode(append(encoded, want.Body...))
		if want.Body == nil {
			want.Body = []byte{}
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+.200v came back as %+.200v, %v", want, got, err)
		}
		shuffled := want
		shuffled.header = slices.Clone(want.header)
		slices.Reverse(shuffled.header)
		if again := shuffled.encode(0); !bytes.Equal(again, encoded) {
			t.Errorf("%+.200v was written in two ways", want)
		}
		for _, room := range []int{0, 1000} {
			if b := want.encode(room); cap(b) != len(encoded)+room {
				t.Errorf("%d bytes were set aside for %d and %d more", cap(b), len(encoded), room)
			}
		}
	}
}

// TestReplyIsFrozen: a reply outlives the program that stored it. Another layout
// needs another version.
func TestReplyIsFrozen(t *testing.T) {
	const want = "\x01\x01\xc9\x01\x02id\x02\x04Etag\x02\x01a\x01b\x08Location\x01\x02/abody"
	reply := Reply{RequestID: "id", Status: 201, Retained: true,
		header: fields{{"Etag", []string{"a", "b"}}, {"Location", []string{"/a"}}}, Body: []byte("body")}
	if got := append(reply.encode(4), reply.Body...); string(got) != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, err := Decode([]byte(want)); err != nil || !reflect.DeepEqual(got, reply) {
		t.Errorf("%q was read as %+v, %v", want, got, err)
	}
}

// TestReplySummary: what takes the place of a response stays under the 1 KiB
// that stores set aside.
func TestReplySummary(t *testing.T) {
	long := "/" + strings.Repeat("a", 512)
	for _, row := range []struct {
		location []string
		want     fields
	}{
		{nil, nil},
		{[]string{"/a"}, fields{{"Location", []string{"/a"}}}},
		{[]string{long[:512]}, fields{{"Location", []string{long[:512]}}}},
		{[]string{long}, nil},
		{[]string{"/a", "/b"}, nil},
	} {
		full := Reply{RequestID: strings.Repeat("i", 64), Status: 201,
			header: fields{{"Etag", []string{"a"}}, {"Location", row.location}}, Retained: true}
		encoded := full.summary().encode(0)
		got, err := Decode(encoded)
		if err != nil || got.Retained || got.Status != 201 || got.RequestID != full.RequestID ||
			!reflect.DeepEqual(got.header, row.want) || len(got.Body) != 0 || len(encoded) > 1024 {
			t.Errorf("%.20q: %d bytes, %+v, %v", row.location, len(encoded), got, err)
		}
	}
}

func TestDecodeReplyRefuses(t *testing.T) {
	whole := Reply{RequestID: "id", Status: 201, header: fields{{"Location", []string{"/a"}}}, Retained: true}.encode(0)
	for n := range whole {
		if r, err := Decode(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes were read as %+v", n, len(whole), r)
		}
	}
	for name, b := range map[string][]byte{
		"another version":    append([]byte{replyVersion + 1}, whole[1:]...),
		"status 199":         {replyVersion, 1, 0xc7, 1, 0, 0},
		"status 1000":        {replyVersion, 1, 0xe8, 7, 0, 0},
		"more than is there": {replyVersion, 1, 0xc8, 1, 0, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"values without end": {replyVersion, 1, 0xc8, 1, 0, 1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f},
		"length of 1<<63":    {replyVersion, 1, 0xc8, 1, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 1},
		"endless number":     {replyVersion, 1, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff},
	} {
		if r, err := Decode(b); err == nil {
			t.Errorf("%s: read as %+v", name, r)
		}
	}
}

// FuzzDecodeReply: no bytes make it panic or set aside much more than they are,
// and what it can read it writes again as something that reads the same.
func FuzzDecodeReply(f *testing.F) {
	f.Add([]byte{})
	f.Add(Reply{RequestID: "id", Status: 201,
		header: fields{{"Location", []string{"/a"}}, {"Link", []string{"a", "b"}}}, Retained: true}.encode(0))
	f.Add(Reply{Status: 500}.encode(0))
	f.Add([]byte{replyVersion, 1, 0xc8, 1, 0, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, b []byte) {
		before := bytes.Clone(b)
		r, err := Decode(b)
		if !bytes.Equal(b, before) {
			t.Fatal("the record was written to")
		}
		if err != nil {
			if !reflect.DeepEqual(r, Reply{}) {
				t.Fatalf("an error beside %+v", r)
			}
			return
		}
		size := len(r.RequestID) + len(r.Body)
		for _, f := range r.header {
			size += len(f.name)
			for _, v := range f.values {
				size += len(v)
			}
		}
		if size > len(b) || r.Status < 200 || r.Status > 999 {
			t.Fatalf("%d bytes were read as %d of %+v", len(b), size, r)
		}
		again, err := Decode(append(r.encode(0), r.Body...))
		if err != nil || len(again.header) != len(r.header) {
			t.Fatalf("%+v was written as %+v, %v", r, again, err)
		}
		again.header, r.header = nil, nil
		if !reflect.DeepEqual(again, r) {
			t.Fatalf("%+v was written as %+v", r, again)
		}
	})
}

func TestOriginalIDHeader(t *testing.T) {
	for header, want := range map[string]string{
		"Svc-Request-Id": "Svc-Original-Request-Id", "X-Trace": "Original-X-Trace",
	} {
		if got := OriginalIDHeader(header); got != want {
			t.Errorf("%s: got %s, want %s", header, got, want)
		}
	}
}
