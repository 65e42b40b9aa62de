// Package keycli is the command by which operators issue, look at and end API
// keys. The ready one, keystore/cmd/sallyport, works on the stores of keysql for
// the zero keystore.Service. A service with scopes, a store or limits of its own
// makes its own:
//
//	func main() {
//		os.Exit(keycli.Main(keycli.Config{Open: openIssuer}))
//	}
//
// Its -h lists the commands and the exit codes. The rules:
//
//   - A secret goes to standard output, alone and once, or to a file that only
//     its owner may read. What is said about it goes to standard error.
//   - A token comes by standard input. One among the arguments, where other
//     users of the machine can see it, is refused.
//   - What cannot be undone is asked on the terminal, unless -yes is given.
//   - A failure is one sentence on standard error and an exit code. Nothing was
//     changed then, unless the sentence says so.
package keycli

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sallyport-go/sallyport/idem"
	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A Config is what a command is made of. Open is required. Where Args, Getenv, a
// reader or a writer is nil, it is the process's own.
type Config struct {
	// Open returns the Issuer of the keys, over a store that answers. Each
	// command but help, migrate and version calls it once. Its error is shown, so it must
	// not hold a password.
	Open func(ctx context.Context, getenv func(string) string) (*issuing.Issuer, error)

	// Migrate makes the tables or brings them up to date. Nil: there is no
	// command for that.
	Migrate func(ctx context.Context, getenv func(string) string) error

	// Replies returns the store of the replies to keyed requests, which
	// erase removes with the keys, or nil if there is none. It is called after
	// Open. Nil: erase removes no replies, and says so.
	Replies func(ctx context.Context, getenv func(string) string) (idem.Eraser, error)

	Help string // more lines of -h, such as the variables that Open reads

	Args           []string // the name of the program first
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
}

// The exit codes.
const (
	failed      = 1
	misused     = 2
	absent      = 3
	refused     = 4
	interrupted = 130
)

const help = `
COMMAND -h shows its flags. In place of the ID of a key, - reads its token from
standard input, and -org is not needed. A TIME is a day such as 2026-11-30, in
UTC, an RFC 3339 time, or as far from now as 90d or 12h.

Exit codes:
  0    done, or there was nothing to do
  1    the key store cannot be reached, or fails
  2    the arguments or the input are wrong, or the service does not allow them
  3    there is no such key
  4    refused: by the state of the key, by a change at the same moment, by the
       answer to a question; with verify: the token is refused
  130  interrupted
`

// A command declares its flags, and returns what it does once they are read.
type command struct {
	name, args, does string
	prepare          func(c *call) (run func() error)
	ignores          string // the flags of every command that do nothing for this one
}

func (config Config) commands() []command {
	all := []command{
		{"issue", "NAME", "make a key and print its secret", issue, "yes"},
		{"list", "", "list keys of an organization, or of all", list, "as reason yes"},
		{"show", "ID", "show a key, its use and its history", noFlags(show), "as reason yes"},
		{"rotate", "[ID]", "replace a key, or all that were made before a time", rotate, ""},
		{"revoke", "[ID]", "end a key, or all that were made before a time, for good", revoke, ""},
		{"edit", "ID", "rename, suspend or resume a key, or let it do less", edit, ""},
		{"import", "", "store keys of an older system, read as JSON", noFlags(importKeys), "yes"},
		{"verify", "", "say whose a token is, or which rule refuses it", verify, "as reason yes"},
		{"audit", "", "list what was done to keys of an organization, or of all", audit, "as reason yes"},
		{"erase", "ORGANIZATION", "remove an organization's keys, history and replies", noFlags(erase), "org reason"},
		{"version", "", "print the version", noFlags(version), "as json org reason yes"},
	}
	if config.Migrate != nil {
		all = append(all, command{"migrate", "", "make the tables, or bring them up to date", noFlags(migrate),
			"as json org reason yes"})
	}
	return all
}

// noFlags prepares a command that declares none.
func noFlags(run func(*call) error) func(*call) func() error {
	return func(c *call) func() error { return func() error { return run(c) } }
}

func migrate(c *call) error { return c.Migrate(c.ctx, c.Getenv) }

// version prints the version of the program, and those of this library in it.
func version(c *call) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return errors.New("this program does not say from which modules it was built")
	}
	rows := [][]string{{info.Main.Path, cmp.Or(info.Main.Version, "(devel)"), info.GoVersion}}
	for _, m := range info.Deps {
		if strings.HasPrefix(m.Path, "github.com/sallyport-go/sallyport") {
			rows = append(rows, []string{m.Path, m.Version})
		}
	}
	return c.table(rows)
}

// Main runs one command and returns its exit code. SIGINT and SIGTERM end it.
func Main(config Config) int {
	if config.Args == nil {
		config.Args = os.Args
	}
	if config.Getenv == nil {
		config.Getenv = os.Getenv
	}
	config.Stdin = cmp.Or[io.Reader](config.Stdin, os.Stdin)
	config.Stdout = cmp.Or[io.Writer](config.Stdout, os.Stdout)
	config.Stderr = cmp.Or[io.Writer](config.Stderr, os.Stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- config.run(ctx) }()
	// A store ends with its context. Reading from a terminal does not.
	context.AfterFunc(ctx, func() { time.Sleep(time.Second); ended <- ctx.Err() })
	err := <-ended
	code, text := explain(err)
	if code == failed && ctx.Err() != nil { // the error may tell what was done before
		why := text
		code, text = explain(ctx.Err())
		text += ": " + why
	}
	if text != "" {
		fmt.Fprintf(config.Stderr, "%s: %s\n", config.program(), oneLine(text))
	}
	return code
}

func (config Config) program() string {
	return filepath.Base(append(config.Args, "sallyport")[0])
}

func (config Config) run(ctx context.Context) error {
	args := config.Args[min(1, len(config.Args)):]
	if slices.ContainsFunc(args, tokenLike.MatchString) {
		return wrong("an argument holds a token, which other users of this machine can see there; give it on " +
			"standard input")
	}
	if len(args) == 0 {
		return wrong("say what to do; -h lists the commands")
	}
	if slices.Contains([]string{"help", "-h", "-help", "--help"}, args[0]) {
		return config.help()
	}
	commands := config.commands()
	i := slices.IndexFunc(commands, func(c command) bool { return c.name == args[0] })
	if i < 0 {
		return wrong("there is no command %q; -h lists the commands", args[0])
	}
	c := newCall(ctx, config, commands[i])
	run := c.prepare(c)
	if err := c.parse(args[1:]); errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(c.Stdout, "Usage: %s %s %s [FLAGS]\n\nTo %s.\n\n", c.program(), c.name, c.command.args, c.does)
		c.printFlags()
		return nil
	} else if err != nil {
		return err
	}
	if c.name != "migrate" && c.name != "version" {
		issuer, err := config.Open(ctx, config.Getenv)
		if err != nil {
			return err
		}
		c.issuer = issuer.By(c.actor, c.reason)
	}
	err := run()
	if invalid, ok := errors.AsType[*keystore.FieldsError](err); ok {
		for i, f := range invalid.Fields {
			if name := cmp.Or(flagOf[f.Field], f.Field); c.flags.Lookup(name) != nil {
				invalid.Fields[i].Message = "-" + name + ": " + f.Message
			}
		}
	}
	return err
}

// flagOf are the flags that are named otherwise than their field of a Key.
var flagOf = map[string]string{
	"attributes": "attribute", "environment": "env", "expires_at": "expires", "issue_token": "once",
	"organization": "org",
}

func (config Config) help() error {
	fmt.Fprintf(config.Stdout, "Usage: %s COMMAND [ARGUMENTS] [FLAGS]\n\n", config.program())
	t := columns(config.Stdout)
	for _, c := range config.commands() {
		fmt.Fprintf(t, "  %s %s\t%s\n", c.name, c.args, c.does)
	}
	err := t.Flush()
	fmt.Fprint(config.Stdout, help, config.Help)
	return err
}

// An outcome is a failure that has an exit code and a sentence of its own.
type outcome struct {
	code int
	text string
}

func (o outcome) Error() string { return o.text }

func wrong(format string, args ...any) error   { return outcome{misused, fmt.Sprintf(format, args...)} }
func missing(format string, args ...any) error { return outcome{absent, fmt.Sprintf(format, args...)} }
func refuse(format string, args ...any) error  { return outcome{refused, fmt.Sprintf(format, args...)} }

// explain returns the exit code and the sentence of a command's error.
func explain(err error) (code int, text string) {
	if err == nil {
		return 0, ""
	}
	if o, ok := errors.AsType[outcome](err); ok {
		return o.code, o.Error()
	}
	if invalid, ok := errors.AsType[*keystore.FieldsError](err); ok {
		for _, f := range invalid.Fields {
			text += " " + f.Message
		}
		return misused, text
	}
	if none, ok := errors.AsType[keystore.TokenError](err); ok {
		return absent, string(none)
	}
	if errors.Is(err, context.Canceled) {
		return interrupted, "interrupted; if a change was under way, show tells whether it was made"
	}
	code = failed
	if errors.Is(err, keystore.ErrNotFound) {
		code = absent
	}
	for _, state := range []error{issuing.ErrConflict, issuing.ErrExists, keystore.ErrExpired, keystore.ErrRevoked,
		issuing.ErrRotated, keystore.ErrSuspended} {
		if errors.Is(err, state) {
			code = refused
		}
	}
	return code, unprefixed(err)
}

// unprefixed returns the text of an error without the name of its package.
func unprefixed(err error) string {
	return strings.TrimPrefix(strings.TrimPrefix(err.Error(), "keystore: "), "issuing: ")
}
