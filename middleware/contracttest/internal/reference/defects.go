package reference

import (
	_ "embed"
	"strconv"
	"strings"
)

//go:embed defects.txt
var defects string

//go:embed second.txt
var second string

//go:embed third.txt
var third string

//go:embed fourth.txt
var fourth string

// A Defect is one way to break the contract, or to differ without breaking it.
type Defect struct {
	Name, Text, Sentence string
	Advice, Missed, Free bool
}

// Defects reads the list.
func Defects() []Defect { return read(defects) }

// Second reads the second list.
func Second() []Defect { return read(second) }

// Third reads the third list.
func Third() []Defect { return read(third) }

// Fourth reads the fourth list.
func Fourth() []Defect { return read(fourth) }

func read(list string) []Defect {
	var all []Defect
	sentence := ""
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '"':
			sentence = strings.Trim(line, `"`)
		default:
			name, text, _ := strings.Cut(line, " ")
			text, advice := strings.CutPrefix(strings.TrimSpace(text), "(advice) ")
			text, missed := strings.CutPrefix(text, "(missed) ")
			all = append(all, Defect{name, text, sentence, advice, missed, strings.HasPrefix(name, "free-")})
		}
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
