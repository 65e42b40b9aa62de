package keystore

// cacheOf returns the Cached that s is or embeds, or nil. itself is false if s
// embeds it: s may then have methods in place of the Cached's, and a call of c
// goes past them.
func cacheOf(s Store) (c *Cached, itself bool) {
	if c, itself = s.(*Cached); itself { // the common case, and cheap to ask
		return c, c != nil
	}
	if holder, ok := s.(interface{ cached() *Cached }); ok {
		c = holder.cached()
	}
	return c, false
}

func (c *Cached) cached() *Cached { return c }
