package reference

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed defects.txt
var defects string

// A Defect is one way to break the contract, or a freedom: to differ without
// breaking it.
type Defect struct {
	Name, Text   string
	Advice, Free bool // the contract does not forbid it in so many words; or at all
}

// Defects reads the list.
func Defects() (all []Defect) {
	for line := range strings.Lines(defects) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '"' {
			continue
		}
		name, text, _ := strings.Cut(line, " ")
		text, advice := strings.CutPrefix(strings.TrimSpace(text), "(advice) ")
		all = append(all, Defect{name, text, advice, strings.HasPrefix(name, "free-")})
	}
	return all
}

func (s *Server) has(name string) bool { return s.defects[name] }

// when is the condition of a defect.
type when func(*exchange) bool

// any reports whether a defect of the server is in the table, and applies.
func (s *Server) any(table map[string]when, x *exchange) bool {
	for name := range s.defects {
		if applies := table[name]; applies != nil && applies(x) {
			return true
		}
	}
	return false
}

// pick returns what a defect of the server has in the table.
func pick[T any](s *Server, table map[string]T) (found T) {
	for name := range s.defects {
		if one, ok := table[name]; ok {
			return one
		}
	}
	return found
}

// status returns the one that a defect such as missing-403 answers in place of
// the right one.
func (s *Server) status(defect string, right int) int {
	for name := range s.defects {
		if wrong, err := strconv.Atoi(strings.TrimPrefix(name, defect+"-")); err == nil {
			return wrong
		}
	}
	return right
}
