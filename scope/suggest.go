package scope

import "strings"

// Suggest returns the scope of r that n was probably meant to be: one that
// differs in at most two letters, or only in case and surrounding space. It
// serves messages to programmers and administrators; a suggestion never grants
// anything.
func (r *Registry) Suggest(n Name) (Name, bool) {
	// No name that is much longer than the longest scope is a misspelling, and
	// the work below grows with the length.
	const maxLength = 64
	if len(n) > maxLength {
		return "", false
	}
	text := strings.ToLower(strings.TrimSpace(string(n)))
	best, at := 3, -1
	for i, d := range r.definitions {
		if distance := edits(text, strings.ToLower(string(d.Name))); distance < best {
			best, at = distance, i
		}
	}
	if at < 0 {
		return "", false
	}
	return r.definitions[at].Name, true
}

// edits counts the insertions, deletions, substitutions and swaps of
// neighbours that turn a into b, without editing any part twice.
func edits(a, b string) int {
	rows := [3][]int{}
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
	}
	before, last, row := rows[0], rows[1], rows[2]
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
