package main

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/middleware/contracttest/internal/rules"
)

func printRules(w io.Writer) {
	for _, r := range rules.All() {
		fmt.Fprintf(w, "%-9s %-36s %s (%s)\n", r.Level, r.Name, r.Text, r.Source)
	}
}

// printText prints a line for a rule that was looked at, with why it was left
// out if it turned out not to apply.
func printText(w io.Writer, r rules.Result) {
	why := ""
	if r.Status == rules.LeftOut {
		if r.Took == 0 {
			return
		}
		why = ": " + r.Detail
	}
	fmt.Fprintf(w, "%-9s %-9s %s%s\n", r.Status, r.Rule.Level, r.Rule.Name, why)
}

// printJSON prints a rule as one line.
func printJSON(w io.Writer, r rules.Result) {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(struct { // of strings
		Rule     string `json:"rule"`
		Level    string `json:"level"`
		Status   string `json:"status"`
		Source   string `json:"source"`
		Text     string `json:"text"`
		Detail   string `json:"detail,omitempty"`
		Request  string `json:"request,omitempty"`
		Response string `json:"response,omitempty"`
		Hint     string `json:"hint,omitempty"`
		Took     int64  `json:"took_ms"`
	}{
		r.Rule.Name, string(r.Rule.Level), string(r.Status), r.Rule.Source, r.Rule.Text,
		r.Detail, r.Curl, r.Got, r.Rule.Hint, r.Took.Milliseconds(),
	})
}

// summarize tells each cause once, what is broken first, and counts.
func summarize(w io.Writer, results []rules.Result, c config) {
	headings := map[string]string{
		"broken contract":  "Broken",
		"broken wire":      "Broken, of the wire profile",
		"broken profile":   "Broken, of the protocol's profile",
		"broken reading":   "Warnings, by a reasonable reading of the contract",
		"broken advice":    "Advice that is not kept",
		"unclear contract": "Unclear",
		"skipped contract": "Not checked",
	}
	heading := ""
	for _, cause := range rules.Causes(results) {
		r := cause[0]
		if next := headings[string(r.Status)+" "+string(r.Rule.Level)]; next != heading {
			heading = next
			fmt.Fprintf(w, "\n%s%s:\n", heading, counts(r, c))
		}
		fmt.Fprintf(w, "%s\n    %s\n", r.Rule.Name, strings.ReplaceAll(r.Explain(), "\n", "\n    "))
		if others := cause.Others(); others != "" {
			fmt.Fprintf(w, "      also     %s\n", others)
		}
	}
	fmt.Fprintln(w)
	count := make(map[string]int) // of a level and a status
	for _, r := range results {
		count[string(r.Rule.Level)+string(r.Status)]++
	}
	for _, level := range []rules.Level{rules.Contract, rules.Reading, rules.Advice, rules.Wire, rules.Profile} {
		var parts []string
		for _, status := range []rules.Status{rules.Held, rules.Broken, rules.Unclear, rules.Skipped, rules.LeftOut} {
			if n := count[string(level)+string(status)]; n > 0 {
				parts = append(parts, fmt.Sprintf("%d %s", n, status))
			}
		}
		if len(parts) > 0 {
			fmt.Fprintf(w, "%s: %s\n", level, strings.Join(parts, ", "))
		}
	}
}

// counts says whether the check fails for results such as this one.
func counts(r rules.Result, c config) string {
	switch {
	case r.Failed(c.strict, c.advice):
		return ""
	case r.Status == rules.Skipped:
		return ", which -strict takes for a failure"
	}
	return ", which does not fail the check"
}

// annotate prints a workflow command of GitHub Actions for each cause.
func annotate(w io.Writer, results []rules.Result, c config) {
	property := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
	message := strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	for _, cause := range rules.Causes(results) {
		r := cause[0]
		command, text := "error", r.Explain()
		switch {
		case r.Failed(c.strict, c.advice):
		case r.Status == rules.Skipped, r.Rule.Level == rules.Reading:
			command = "warning"
		default:
			command = "notice"
		}
		if others := cause.Others(); others != "" {
			text += "\n  also     " + others
		}
		title := property.Replace(r.Rule.Name + " " + string(r.Status))
		fmt.Fprintf(w, "::%s title=%s::%s\n", command, title, message.Replace(text))
	}
}

// The parts of JUnit's format that its readers agree on.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Time     string      `xml:"time,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Class   string     `xml:"classname,attr"`
		Name    string     `xml:"name,attr"`
		Time    string     `xml:"time,attr"`
		Failure *junitText `xml:"failure"`
		Skipped *junitText `xml:"skipped"`
	}
	junitText struct {
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

func writeJUnit(path string, results []rules.Result, c config) error {
	suite := junitSuite{Name: withoutKeys("contractcheck " + c.target.URL)}
	var total time.Duration
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
	for _, r := range results {
		one := junitCase{Class: "contract." + r.Rule.Group(), Name: r.Rule.Name, Time: seconds(r.Took)}
		suite.Tests++
		total += r.Took
		switch {
		case r.Failed(c.strict, c.advice):
			suite.Failures++
			one.Failure = &junitText{r.Detail, r.Explain()}
		case r.Status != rules.Held:
			suite.Skipped++
			one.Skipped = &junitText{Message: fmt.Sprintf("%s %s: %s", r.Status, r.Rule.Level, r.Detail)}
		}
		suite.Cases = append(suite.Cases, one)
	}
	suite.Time = seconds(total)
	text, err := xml.MarshalIndent(suite, "", "  ")
	if err == nil {
		err = os.WriteFile(path, append([]byte(xml.Header), append(text, '\n')...), 0o644)
	}
	if err != nil {
		return fmt.Errorf("-junit: %w", err)
	}
	return nil
}
