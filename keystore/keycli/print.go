package keycli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// A record is a key as -json prints it.
type record struct {
	*keystore.Key
	Masked string          `json:"masked"` // svc_live_…a1b2
	Status keystore.Status `json:"status"`
	Living int             `json:"children,omitempty"` // its live children, in a list
}

func (c *call) record(k *keystore.Key) record {
	r := record{k, c.issuer.Service().Masked(k), k.Status(time.Now()), c.children[k.ID]}
	if r.Status == keystore.Active { // it can be refused for an ancestor
		r.Status = map[error]keystore.Status{nil: keystore.Active, keystore.ErrRevoked: keystore.Revoked,
			keystore.ErrExpired: keystore.Expired, keystore.ErrSuspended: keystore.Suspended}[k.Refused()]
	}
	return r
}

// keys prints keys, a line each, below a title the first time. For people the
// last column is what the command notes of each.
func (c *call) keys(keys []*keystore.Key, column string, note func(*keystore.Key) string) error {
	var rows [][]string
	if len(keys) > 0 && !c.titled {
		rows = append(rows, []string{"ORGANIZATION", "ID", "NAME", "ENVIRONMENT", "TOKEN", "STATUS", "EXPIRES", "LAST USED",
			column})
		c.titled = true
	}
	var errs []error
	for _, k := range keys {
		r := c.record(k)
		rows = append(rows, []string{k.Organization, k.ID, k.Name, string(k.Environment), r.Masked, string(r.Status),
			stamp(k.ExpiresAt), stamp(k.LastUsedAt), note(k)})
		if c.json {
			errs = append(errs, encode(c.Stdout, r))
		}
	}
	if c.json {
		return errors.Join(errs...)
	}
	return c.table(rows)
}

// none returns err, and without one says that keys had nothing to print, if it
// had not.
func (c *call) none(err error, what string) error {
	switch {
	case err != nil || c.titled:
	case c.organization == "":
		c.say("there is %s", what)
	default:
		c.say("organization %q has %s", c.organization, what)
	}
	return err
}

// reveal prints a secret on standard output and its key on standard error.
func (c *call) reveal(secret keystore.Secret, k *keystore.Key) error {
	signal.Ignore(syscall.SIGPIPE) // the process has to live to tell that the secret is lost
	if _, err := fmt.Fprintln(c.Stdout, secret.Reveal()); err != nil {
		return fmt.Errorf("the secret could not be written (%w)", err)
	}
	if c.json {
		return encode(c.Stderr, c.record(k))
	}
	c.say("%s in %s; its secret is not shown again", describe(k), k.Environment)
	return nil
}

// done tells what a command has done: v in JSON, or else the sentence.
func (c *call) done(v any, format string, args ...any) error {
	if c.json {
		return encode(c.Stdout, v)
	}
	c.say(format, args...)
	return nil
}

// say writes a sentence to standard error.
func (c *call) say(format string, args ...any) { fmt.Fprintf(c.Stderr, format+"\n", args...) }

func encode(w io.Writer, v any) error { return json.NewEncoder(w).Encode(v) }

func columns(w io.Writer) *tabwriter.Writer { return tabwriter.NewWriter(w, 0, 0, 2, ' ', 0) }

func (c *call) table(rows [][]string) error {
	t := columns(c.Stdout)
	for _, row := range rows {
		for i, cell := range row {
			row[i] = clean(cell)
		}
		fmt.Fprintln(t, strings.TrimRight(strings.Join(row, "\t"), "\t"))
	}
	return t.Flush()
}

// describe names a key in a sentence.
func describe(k *keystore.Key) string {
	return fmt.Sprintf("%s “%s” of %s", clean(k.ID), clean(k.Name), clean(k.Organization))
}

// clean returns a text, which somebody else chose, as a terminal may show it.
func clean(text string) string {
	if printable(text) != text || strings.Contains(text, "  ") { // columns, and lines that the terminal wraps
		return strings.ReplaceAll(strconv.Quote(text), "  ", ` \x20`)
	}
	return text
}

// oneLine returns the text of an error, which may quote what somebody else
// chose, as one line without a token and as a terminal may show it.
func oneLine(text string) string {
	return printable(tokenLike.ReplaceAllString(strings.Join(strings.Fields(text), " "), "[token]"))
}

// printable escapes what is not, and invalid UTF-8, as in a Go string.
func printable(text string) string {
	quoted := strconv.Quote(text)
	return strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(quoted[1 : len(quoted)-1])
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04")
}

// listed returns values with a space between.
func listed[T any](values []T) string { return strings.Trim(fmt.Sprint(values), "[]") }
