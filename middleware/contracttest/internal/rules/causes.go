package rules

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// A Cause is what several rules suffer from. The first of them shows it.
type Cause []Result

// Causes returns what is to be told of the results, each cause once: what is
// broken, then what is unclear, then what was skipped, then warnings and advice.
func Causes(results []Result) []Cause {
	var causes []Cause
	at := make(map[string]int)
	for _, r := range results {
		if r.Status == Held || r.Status == LeftOut || r.Status != Broken && !r.Failed(true, false) {
			continue
		}
		name := r.cause()
		if i, known := at[name]; known {
			causes[i] = append(causes[i], r)
			continue
		}
		at[name] = len(causes)
		causes = append(causes, Cause{r})
	}
	slices.SortStableFunc(causes, func(a, b Cause) int { return cmp.Compare(a[0].weight(), b[0].weight()) })
	return causes
}

// weight is smaller for what matters more.
func (r Result) weight() int {
	order := []string{"broken contract", "broken wire", "unclear contract", "unclear wire", "skipped contract",
		"skipped wire", "broken reading"}
	if i := slices.Index(order, string(r.Status)+" "+string(r.Rule.Level)); i >= 0 {
		return i
	}
	return len(order)
}

var incidental = regexp.MustCompile(`"[^"]*"|[0-9]+`)

// cause names what the result has in common with others: what is missing, what
// came in place of what was due, or why nothing could be found out.
func (r Result) cause() string {
	if len(r.missing) > 0 {
		return "without " + r.missing[0]
	}
	text := r.Detail
	if _, got, ok := strings.Cut(text, ": "); ok && r.Status == Broken {
		text = r.Rule.Group() + " " + got
	}
	return string(r.Status) + string(r.Rule.Level) + incidental.ReplaceAllString(text, "")
}

// Others returns the names of the rules behind the first, "" if there are none.
func (c Cause) Others() string {
	var names []string
	for _, r := range c[1:] {
		names = append(names, r.Rule.Name)
	}
	return strings.Join(names, ", ")
}
