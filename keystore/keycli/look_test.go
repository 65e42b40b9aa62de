package keycli_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// names returns the names of the keys that a command lists as JSON.
func (s *shell) names(line string) string {
	s.t.Helper()
	var names []string
	for text := range strings.Lines(s.does("", line+" -json")) {
		var k struct{ Name string }
		if err := json.Unmarshal([]byte(text), &k); err != nil {
			s.t.Fatal(err)
		}
		names = append(names, k.Name)
	}
	return strings.Join(names, " ")
}

func TestList(t *testing.T) {
	s := newShell(t)
	const flags = " -org acme -env sandbox -scopes tasks:read"
	for i := range 250 { // more than a page
		s.issue("n" + strings.Repeat("x", i%7) + flags)
	}
	if got := strings.Count(s.does("", "list -org acme"), "\n"); got != 251 {
		t.Errorf("got %d lines, want the title and 250", got)
	}
	s.store = breaking(s.store, "List", 1)
	if r := s.run(nil, "list -org acme"); strings.Count(r.stdout, "\n") != 201 || r.code == 0 {
		t.Errorf("got %d and %s, want the first page before the second one fails", r.code, r.stdout)
	}
	s = newShell(t)
	s.issue("soon -expires 3d" + flags)
	s.issue("late -expires 90d -as ada" + flags)
	usedToken, used := s.issue("used" + flags)
	gone, _ := s.issue("gone -expires 2d" + flags)
	s.does(gone, "revoke - -yes")
	_, other := s.issue("other -org other -env sandbox -scopes tasks:read")
	use := keystore.Use{Organization: "acme", ID: used.ID, At: time.Now()}
	if err := s.store.AddUses(t.Context(), []keystore.Use{use}); err != nil {
		t.Fatal(err)
	}
	for n, life := range []time.Duration{time.Hour, 2 * time.Hour} {
		s.child(used, fmt.Sprint("run", n), life)
	}
	if all := s.does("", "list -org acme"); strings.Count(all, "children)") != 1 {
		t.Errorf("got %s, want the children in the line of their parent", all)
	}
	if all := s.does("", "list -org acme -json"); strings.Count(all, `"children":2`) != 1 {
		t.Errorf("got %s, want the children with their parent", all)
	}
	child := s.child(other, "", time.Hour)
	s.does("", "edit -suspend -org other "+other.ID)
	has(t, s.does(child, "show - -json"), `"status":"suspended"`) // with its parent
	s.does("", "edit -resume -org other "+other.ID)
	for line, want := range map[string]string{
		"list -parent " + used.ID:           "run1 run0",
		"list -org acme":                    "gone used late soon",
		"list -org acme -active":            "used late soon",
		"list -org acme -expiring 60d":      "soon",
		"list -org acme -expiring 65535d":   "late soon",
		"list -org acme -never-used":        "late soon",
		"list -org acme -unused 0d":         "used late soon",
		"list -org acme -unused 1d":         "",
		"list -org acme -unused 2020-01-01": "",
		"list -org none":                    "",
		"list -created-by ada":              "late",
		"list -org other -created-by ada":   "",
		"list -active":                      "other used late soon", // of all organizations, the last first
		"list -expiring 7d":                 "soon",
		"list -expiring 1d":                 "",
		"list -scope tasks:read":            "other used late soon",
	} {
		if got := s.names(line); got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
	used = s.keyOf(usedToken)
	row := regexp.MustCompile(`(?m)^acme +` + used.ID + ` +used +sandbox +svc_test_….{4} +active +- +` +
		used.LastUsedAt.UTC().Format("2006-01-02 15:04") + ` +tasks:read \(2 children\)$`)
	if text := s.does("", "list -org acme"); !row.MatchString(text) {
		t.Errorf("got\n%s", text)
	}
	s.ends(0, "organization \"none\" has no keys\n", "", "list -org none")
	s.ends(0, "organization \"acme\" has no such key\n", "", "list -org acme -unused 1d")
	s.ends(0, "there is no such key\n", "", "list -expiring 1d")
	if text := s.does("", "list -org acme -json"); strings.Contains(strings.ToLower(text), "digest") {
		t.Errorf("the JSON holds digests: %s", text)
	}
	s.does(usedToken, "revoke - -yes")
	orphan := &keystore.Key{ID: "key_orphan", Organization: "acme", Parent: "key_swept",
		ExpiresAt: time.Now().Add(time.Hour)}
	if err := s.store.Insert(t.Context(), orphan, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	for parent, want := range map[string]int{used.ID: 2, orphan.Parent: 1} {
		if text := s.does("", "list -parent "+parent); strings.Count(text, " revoked ") != want {
			t.Errorf("got %s, want the children revoked as their parent is, or gone with it", text)
		}
	}
}

// What somebody else wrote does not reach the terminal as it is.
func TestTablesAreClean(t *testing.T) {
	s := newShell(t)
	k := &keystore.Key{ID: "key_1", Organization: "acme", Environment: keystore.Sandbox, Name: "a\x1b]0;b\a\u202e",
		CreatedBy: "x\ty", Version: 1, Scopes: []scope.Name{"tasks:read", "b\x1b\u202e\xff"}}
	if err := s.store.Insert(t.Context(), k, issuing.AuditEntry{}, 0); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"list -org acme", "show key_1 -org acme"} {
		if text := s.does("", line); strings.ContainsAny(text, "\x1b\a\t\u202e") ||
			!strings.Contains(text, `a\x1b]0;b\a`) {
			t.Errorf("%s: got %q", line, text)
		}
	}
	s.issue("'x" + strings.Repeat(" ", 50) + "acme  key_2' -org acme -env sandbox -scopes tasks:read")
	if text := s.does("", "list -org acme"); strings.Contains(text, "  key_2") || !strings.Contains(text, `key_2"`) {
		t.Errorf("a name makes columns: %s", text)
	}
	for _, line := range []string{"edit key_1 -suspend -org acme", "edit key_1 -org acme -without x",
		"edit key_1 -org acme -without tasks:read"} {
		r := s.run(tty{strings.NewReader("no\n")}, line)
		if strings.ContainsAny(r.stderror, "\x1b\u202e") || !utf8.ValidString(r.stderror) {
			t.Errorf("%s: got %q", line, r.stderror)
		}
	}
}

// A scope is held by its name or by one that implies it.
func TestWhoCan(t *testing.T) {
	s := newShell(t)
	s.issue("reader -org acme -env sandbox -scopes tasks:read")
	s.issue("writer -org acme -env sandbox -scopes tasks:write")
	s.issue("admin -org acme -env sandbox -scopes tasks:admin,tasks:read")
	gone, _ := s.issue("gone -org acme -env sandbox -scopes tasks:admin")
	s.does(gone, "revoke - -yes")
	for scope, want := range map[string]string{"tasks:read": "admin reader", "tasks:write": "admin writer",
		"tasks:admin": "admin"} {
		if got := s.names("list -scope " + scope + " -org acme"); got != want {
			t.Errorf("%s: got %q, want %q", scope, got, want)
		}
	}
	for line := range strings.Lines(s.does("", "list -scope tasks:write -org acme")) {
		if strings.Contains(line, " admin ") && !strings.HasSuffix(line, " tasks:admin\n") {
			t.Errorf("got %q, want the scope that implies it", line)
		}
	}
}

func TestVerify(t *testing.T) {
	s := newShell(t)
	token, k := s.issue(nightly + " -networks 192.0.2.0/24")
	suspended, _ := s.issue(nightly)
	s.does(suspended, "edit - -suspend")
	child := s.child(k, "", time.Hour)
	elsewhere := "refused from 198.51.100.1; " + k.ID + " may be used from [192.0.2.0/24]"
	for _, c := range []struct {
		token, flags string
		code         int
		says         string
	}{
		{token, "", 0, ""},
		{token, "-from 192.0.2.7 -scope tasks:write", 0, ""},
		{token, "-from 198.51.100.1", 4, elsewhere},
		{child, "-from 192.0.2.7", 0, ""},
		{child, "-from 198.51.100.1", 4, elsewhere}, // by its parent
		{token, "-scope tasks:admin", 4, "the key holds tasks:read tasks:write"},
		{token, "-scope task:write", 2, `did you mean "tasks:write"?`},
		{token, "-from home", 2, "invalid value"},
		{suspended, "", 4, "refused: key is suspended"},
		{"svc_pub_x", "", 4, "publishable key"},
		{keystore.Service{}.Generate(keystore.Sandbox).Reveal(), "", 4, "no organization has a key"},
	} {
		r := s.ends(c.code, c.says, c.token+"\n", "verify "+c.flags)
		if (c.says == "") != (r.stderror == "") {
			t.Errorf("%s: got %q, want %q", c.flags, r.stderror, c.says)
		}
		if c.token == token && c.code != 2 && !strings.Contains(r.stdout, k.ID) {
			t.Errorf("%s: got %q, want whose key it is", c.flags, r.stdout)
		}
		if strings.Contains(r.stdout+r.stderror, c.token) {
			t.Errorf("%s prints the token", c.flags)
		}
	}
}

// show tells whose a token is, what the key is for, its use and its history.
func TestShow(t *testing.T) {
	s := newShell(t)
	token, k := s.issue(nightly + " -networks 192.0.2.0/24 -attribute plan=gold -as ada -reason 'for the import'")
	s.does("", "edit "+k.ID+" -name Hourly -org acme -as bob")
	s.does("", "edit -suspend "+k.ID+" -org acme -as bob -reason 'a look'")
	late := time.Now().UTC().Truncate(24 * time.Hour).Add(-time.Minute) // a day later where clocks are ahead of UTC
	use := keystore.Use{Organization: "acme", ID: k.ID, At: late.In(time.FixedZone("", 3600)),
		From: netip.MustParseAddr("198.51.100.7"), Requests: 42, Scopes: []scope.Name{"tasks:read"},
		Refused: keystore.Refusal{At: late, Code: "insufficient_scope", Route: "GET /account"}}
	if err := s.store.AddUses(t.Context(), []keystore.Use{use}); err != nil {
		t.Fatal(err)
	}
	yesterday := day(late)
	text := s.does(token, "show -")
	has(t, text, k.ID, "acme", "sandbox", "Hourly", "svc_test_…", "suspended",
		"by ada: for the import", "192.0.2.0/24",
		"gold", "scope      tasks:read        needed on "+yesterday,
		"scope      tasks:write       not needed since "+yesterday,
		"from 198.51.100.7", "requests   "+yesterday+"        42", "by bob: a look",
		"refused    "+late.Format("2006-01-02 15:04")+"  insufficient_scope GET /account",
		`name "Hourly", was "Nightly"`)
	if first := strings.SplitN(text, "\n", 3)[1]; !strings.HasSuffix(first, "  192.0.2.0/24") {
		t.Errorf("got %q, want the networks at its end", first)
	}
	if strings.Contains(text, token) {
		t.Error("show prints the token")
	}
	var story struct {
		ID      string
		Masked  string
		Usage   map[string]any
		History []struct{ Act, Actor, Reason string }
	}
	if err := json.Unmarshal([]byte(s.does("", "show "+k.ID+" -org acme -json")), &story); err != nil {
		t.Fatal(err)
	}
	if story.ID != k.ID || story.Usage["last_used_from"] != "198.51.100.7" || len(story.History) != 3 ||
		story.History[0].Act != "suspend" || story.History[0].Reason != "a look" {
		t.Errorf("got %+v", story)
	}
	for i := range 100 { // the first act is on a second page
		s.does("", fmt.Sprintf("edit %s -name n%d -org acme", k.ID, i))
	}
	if text := s.does(token, "show -"); strings.Count(text, "\nrename") != 101 || !strings.Contains(text, "\nissue") {
		t.Errorf("the history is cut:\n%s", text)
	}
}

// audit tells what was done to the keys of an organization or of all, the newest
// first, in words for people.
func TestAudit(t *testing.T) {
	s := newShell(t)
	_, k := s.issue(nightly + " -as ada")
	s.issue("Theirs -org other -env sandbox -scopes tasks:read")
	for range 60 { // more than a page
		s.does("", "edit -suspend "+k.ID+" -org acme -as bea")
		s.does("", "edit -resume "+k.ID+" -org acme -as bea -reason done")
	}
	lines := strings.Split(strings.TrimSuffix(s.does("", "audit -org acme"), "\n"), "\n")
	newest := regexp.MustCompile(`^resume +\d{4}-\d\d-\d\d \d\d:\d\d +` + `acme +` + k.ID +
		` +Nightly …` + k.Hint + ` +by bea: done; resumed$`)
	if len(lines) != 121 || !newest.MatchString(lines[0]) ||
		!strings.Contains(lines[120], `  by ada; name "Nightly"; env`) {
		t.Errorf("got %d lines, the first %q, the last %q", len(lines), lines[0], lines[len(lines)-1])
	}
	if got := strings.Count(s.does("", "audit -org acme -json -since 1d"), `"organization":"acme"`); got != 121 {
		t.Errorf("got %d entries of the last day, want 121", got)
	}
	since := time.Now().UTC().Format(time.RFC3339Nano)
	s.does("", "edit "+k.ID+" -name Hourly -org acme")
	if got := s.does("", "audit -org acme -since "+since); strings.Count(got, "\n") != 1 {
		t.Errorf("got %q, want the last act", got)
	}
	s.config.Stdout = full
	s.ends(1, "", "", "audit -org acme -json")
	s.config.Stdout = nil
	if got := s.does("", "audit -org acme -since 2099-01-01"); got != "" {
		t.Errorf("got %q from the future", got)
	}
	if got := s.ends(0, "", "", "audit -org acme -act issue").stderror; got != "" {
		t.Errorf("audit says %q of entries that it prints", got)
	}
	s.ends(0, `organization "none" has no such entry`, "", "audit -org none")
	s.ends(0, "there is no such entry", "", "audit -act suspended")
	for flags, want := range map[string]int{"": 123, " -org other": 1, " -act suspend": 60, " -act issue": 2,
		" -actor bea": 120, " -key " + k.ID: 122, " -actor bea -act issue": 0, " -org other -key " + k.ID: 0} {
		if got := strings.Count(s.does("", "audit"+flags), "\n"); got != want {
			t.Errorf("audit%s prints %d entries, want %d", flags, got, want)
		}
	}
}
