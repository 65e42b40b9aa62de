package rules

// Needs returns the names of the offers that the rule needs.
func (r Rule) Needs() []string { return r.needs }

// JudgesAll reports whether the rule sends nothing and judges what all others
// have seen.
func (r Rule) JudgesAll() bool { return r.when == end }
