package keystore_test

import (
	"testing"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

func TestPageSize(t *testing.T) {
	for limit, want := range map[int]int{-1: 50, 0: 50, 1: 1, 50: 50, 199: 199, 200: 200, 201: 200, 1 << 40: 200} {
		if got := (keystore.Page{Limit: limit}).Size(); got != want {
			t.Errorf("a page with the limit %d has %d keys, want %d", limit, got, want)
		}
	}
}

func TestCursor(t *testing.T) {
	k := &keystore.Key{ID: "key_1", CreatedAt: time.Unix(1, 0)}
	if got := k.Cursor(); got != (keystore.Cursor{CreatedAt: k.CreatedAt, ID: "key_1"}) {
		t.Errorf("got %+v, want the key's time and id", got)
	}
}
