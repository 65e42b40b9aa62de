package middleware_test

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/sallyport-go/sallyport/middleware/internal/codes"
)

// The page for clients has a row for each code, with its status and
// X-Should-Retry, says where Retry-After is, and shows the body of a refusal.
func TestTheClientsKnowEveryCode(t *testing.T) {
	page, err := os.ReadFile("../.github/CLIENTS.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(page), "\n```json\n")
	body, _, _ = strings.Cut(body, "\n```\n")
	body = xids.ReplaceAllString(strings.ReplaceAll(body, "\n ", ""), "<request id>")
	bodies, err := os.ReadFile("testdata/problems.golden")
	if err != nil || body == "" || !strings.Contains(string(bodies), body) {
		t.Errorf("the page shows a body that no refusal has: %s, %v", body, err)
	}
	_, table, _ := strings.Cut(string(page), "\n## Codes\n")
	rows := make(map[string]int)
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 {
			continue // a sentence
		}
		status, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // the head of the table
		}
		code := strings.Trim(cells[2], " `")
		row, there := codes.Table[code]
		rows[code]++
		if !there || status != row.Status {
			t.Errorf("the page has %d %s, want status %d (0: there is no such code)", status, code, row.Status)
		}
		if again := strings.TrimSpace(cells[3]); again != string(row.Again) {
			t.Errorf("%s: the page says %q of X-Should-Retry, and it is %q", code, again, row.Again)
		}
		waits := row.RetryAfter > 0 || code == codes.RateLimited // which sets its own
		if strings.Contains(cells[4], "`Retry-After`") != waits {
			t.Errorf("%s: the page says %q, and that the response has Retry-After is %t", code, cells[4], waits)
		}
	}
	for code := range codes.Table {
		if rows[code] != 1 {
			t.Errorf("the page has %d rows for %s, want one", rows[code], code)
		}
	}
}
