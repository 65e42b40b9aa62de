package main

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

type reporter interface{ report(rules.Result) }

// textReport is for people.
type textReport struct{ w io.Writer }

func (t *textReport) report(result rules.Result) {
	r := result.Rule
	word := map[rules.Status]string{rules.Held: "ok", rules.Broken: "BROKEN", rules.Skipped: "skipped", rules.Unclear: "UNCLEAR"}[result.Status]
	if result.Status == rules.Broken && !r.Contract() {
		word = "differs" // from what is optional
	}
	fmt.Fprintf(t.w, "%-8s %-32s %s\n", word, r.Name, r.Source)
	if result.Status == rules.Broken || result.Status == rules.Unclear {
		fmt.Fprintf(t.w, "         the rule: %s\n", r.Text)
	}
	if result.Detail != "" {
		fmt.Fprintf(t.w, "         %s\n", result.Detail)
	}
}

// jsonReport is for programs, one object a line.
type jsonReport struct{ w io.Writer }

func (j *jsonReport) report(result rules.Result) {
	r := result.Rule
	line, err := json.Marshal(struct {
		Rule     string       `json:"rule"`
		Status   rules.Status `json:"status"`
		Contract bool         `json:"contract"`
		Source   string       `json:"source"`
		Text     string       `json:"text"`
		Detail   string       `json:"detail,omitempty"`
		Seconds  float64      `json:"seconds"`
	}{r.Name, result.Status, r.Contract(), r.Source, r.Text, result.Detail, result.Took.Seconds()})
	if err != nil {
		panic(err) // strings and a number marshal
	}
	fmt.Fprintf(j.w, "%s\n", line)
}

// tally counts results, the contract's own apart.
type tally struct {
	contract, optional map[rules.Status]int
}

func (t *tally) add(result rules.Result) {
	counts := &t.optional
	if result.Rule.Contract() {
		counts = &t.contract
	}
	if *counts == nil {
		*counts = make(map[rules.Status]int)
	}
	(*counts)[result.Status]++
}

func (t *tally) String() string {
	line := func(what string, n map[rules.Status]int) string {
		return fmt.Sprintf("%-20s %d held, %d broken, %d skipped, %d unclear\n", what, n[rules.Held], n[rules.Broken], n[rules.Skipped], n[rules.Unclear])
	}
	return line("The contract's rules:", t.contract) + line("Optional rules:", t.optional)
}

// exitStatus is 2 when it could not be found out whether the contract holds, and when nothing was checked.
func (t *tally) exitStatus() int {
	switch {
	case t.contract[rules.Broken] > 0:
		return 1
	case t.contract[rules.Unclear] > 0 || t.contract[rules.Held]+t.optional[rules.Held]+t.optional[rules.Broken] == 0:
		return 2
	}
	return 0
}
