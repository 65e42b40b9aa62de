package rules

import (
	"regexp"
	"slices"
	"strings"
)

var markers = regexp.MustCompile(`ck[a-z2-7]{18}`)

// sends remembers whose resources a request may make.
func (s *Session) sends(r request) {
	name, _ := s.keyName(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.seen.makers == nil {
		s.seen.makers = make(map[string][]string)
	}
	for _, m := range markers.FindAllString(r.body, -1) {
		if !slices.Contains(s.seen.makers[m], name) {
			s.seen.makers[m] = append(s.seen.makers[m], name)
		}
	}
}

// showsForeign reports whether a response shows a resource that its key may not
// see: of another organization or, to a key that may not list, what another key
// has made.
func (s *Session) showsForeign(a answer, name string) bool {
	for _, m := range markers.FindAllString(a.body+a.location(), -1) {
		may := slices.Contains(s.seen.makers[m], name) || strings.Contains(a.to.body+a.to.path, m)
		for _, maker := range s.seen.makers[m] {
			may = may || maker != "other" && slices.Contains([]string{"full", "second", "reader", "sandbox"}, name)
		}
		if !may && len(s.seen.makers[m]) > 0 {
			return true
		}
	}
	return false
}
