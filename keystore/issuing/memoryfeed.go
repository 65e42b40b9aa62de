package issuing

import (
	"slices"
	"strconv"

	"github.com/sallyport-go/sallyport/keystore"
)

// changes is the feed of a memory: an entry for the last change of each key,
// in the order in which they happened. Positions are the numbers of changes.
type changes struct {
	entries []change
	last    map[keystore.Digest]uint64 // the number of each key's last change
	number  uint64                     // of the last change of all
}

type change struct {
	number uint64
	digest keystore.Digest
}

// changesPage is how many changes one call returns at most.
const changesPage = 1000

func (c *changes) add(d keystore.Digest) {
	c.number++
	c.entries = append(c.entries, change{c.number, d})
	c.last[d] = c.number
	// Only the last entry of a key is needed. The older ones are dropped once
	// they are more than half.
	if len(c.entries) > 2*len(c.last) {
		c.entries = slices.DeleteFunc(c.entries, func(e change) bool { return c.last[e.digest] != e.number })
	}
}

func (c *changes) after(since string) ([]keystore.Digest, string, error) {
	if since == "" {
		return nil, strconv.FormatUint(c.number, 10), nil
	}
	position, err := strconv.ParseUint(since, 10, 64)
	if err != nil || position > c.number {
		return nil, "", keystore.ErrNotFound
	}
	from, _ := slices.BinarySearchFunc(c.entries, position+1, func(e change, n uint64) int {
		return int(int64(e.number) - int64(n))
	})
	page := c.entries[from:min(from+changesPage, len(c.entries))]
	if len(page) == 0 {
		return nil, since, nil
	}
	digests := make([]keystore.Digest, len(page))
	for i, e := range page {
		digests[i] = e.digest
	}
	return digests, strconv.FormatUint(page[len(page)-1].number, 10), nil
}
