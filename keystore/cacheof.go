package keystore

// CacheOf returns the Cached that s is or embeds, or nil, and whether s is that
// Cached itself. What embeds one may have other methods in place of its own:
// who goes past them, or by what the Cached has beside Lookup, asks for itself.
func CacheOf(s Store) (c *Cached, itself bool) {
	if c, itself = s.(*Cached); itself { // the common case, and cheap to ask
		return c, c != nil
	}
	if holder, ok := s.(interface{ cached() *Cached }); ok {
		c = holder.cached()
	}
	return c, false
}

func (c *Cached) cached() *Cached { return c }

// Store returns the store that c is in front of.
func (c *Cached) Store() Store { return c.store }
