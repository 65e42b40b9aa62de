package main

import (
	"errors"
	"strings"
	"testing"
)

func TestParseCursorRefusesWhatStringDidNotMake(t *testing.T) {
	var s memoryTasks
	c, err := cursorAt(mustCreate(t, &s, "a", "one"))
	if err != nil {
		t.Fatal(err)
	}
	text := c.String()
	if got, err := parseCursor(text); err != nil || got != c {
		t.Errorf("parseCursor(%q): got %v, %v, want %v", text, got, err, c)
	}
	for _, bad := range []string{"", "x", text[1:], text + "A", text + "=", " " + text, text + "\n",
		strings.Repeat("A", 1<<16), "2024-01-01", "../../x"} {
		if _, err := parseCursor(bad); !errors.Is(err, errCursor) {
			t.Errorf("parseCursor(%.40q): got %v, want errCursor", bad, err)
		}
	}
}

func FuzzParseCursor(f *testing.F) {
	f.Add("AAYoJxHEQABm8w3wAAAAAAAAAAA")
	f.Add("not a cursor")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := parseCursor(s)
		if err != nil {
			return
		}
		if got := c.String(); got != s {
			t.Errorf("parseCursor accepts %q, whose one spelling is %q", s, got)
		}
	})
}
