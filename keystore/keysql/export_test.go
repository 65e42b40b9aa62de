package keysql

// WithStep returns the store of a later version of this package, whose schema
// has one step more.
func (s *Store) WithStep(statements string) *Store {
	later := *s
	later.steps = append(s.Schema(), statements)
	return &later
}

const ChangesPage = changesPage
