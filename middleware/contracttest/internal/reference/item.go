package reference

import (
	"fmt"
	"slices"
)

// remove deletes a resource of the caller's.
func (s *Server) remove(x *exchange, path, id string) {
	s.locked(func() {
		s.tasks = slices.DeleteFunc(s.tasks, func(t *resource) bool {
			return t.path == path && t.ID == id && t.org == x.key.org && t.env == x.key.env
		})
	})
}

// notFound says why a resource is not shown.
func (s *Server) notFound(x *exchange, path, id string) (reason string) {
	reason = "not_found"
	s.locked(func() {
		for _, t := range s.tasks {
			if t.path == path && t.ID == id && t.org != x.key.org && s.has("item-404-shows") {
				reason = fmt.Sprintf("%s is not of this organization", t.Title)
			}
		}
	})
	return reason
}
