package keycli

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
	"github.com/sallyport-go/sallyport/scope"
)

// tokenLike is what looks like a token of the present format, of any service.
var tokenLike = regexp.MustCompile(`[0-9a-z]{1,16}_[0-9a-z]{1,16}_[0-9A-Za-z]{38,}`)

// A call is one run of one command.
type call struct {
	Config
	command
	ctx    context.Context
	flags  *flag.FlagSet
	args   []string // beside the flags
	in     *bufio.Reader
	issuer *issuing.Issuer // whose acts are those of the actor

	organization, actor, reason string // -org, -as, -reason
	json, yes                   bool
	titled                      bool           // the title of the columns is printed
	children                    map[string]int // live ones of the keys of a list, by id
}

func newCall(ctx context.Context, config Config, cmd command) *call {
	c := &call{Config: config, command: cmd, ctx: ctx, in: bufio.NewReader(config.Stdin)}
	c.actor = operator(user.Current())
	c.flags = flag.NewFlagSet(cmd.name, flag.ContinueOnError)
	c.flags.SetOutput(io.Discard) // Parse would tell a mistake that is returned anyway
	c.flags.StringVar(&c.organization, "org", "", "`organization` that the key belongs to")
	c.flags.StringVar(&c.actor, "as", c.actor, "`person` who makes a change, for the history")
	c.flags.StringVar(&c.reason, "reason", "", "`why`, for the history")
	c.flags.BoolVar(&c.json, "json", false, "print JSON, an object a line")
	c.flags.BoolVar(&c.yes, "yes", false, "do not ask before what cannot be undone")
	return c
}

// printFlags prints the flags that do something for the command. The others are
// read as well, so that a script can give the same ones to each command.
func (c *call) printFlags() {
	shown := flag.NewFlagSet(c.name, flag.ContinueOnError)
	c.flags.VisitAll(func(f *flag.Flag) {
		if !slices.Contains(strings.Fields(c.ignores), f.Name) {
			shown.Var(f.Value, f.Name, f.Usage)
			shown.Lookup(f.Name).DefValue = f.DefValue
		}
	})
	shown.SetOutput(c.Stdout)
	shown.PrintDefaults()
}

// operator returns the name of the user of the process, or the number where the
// machine has no name for it, as in many containers.
func operator(u *user.User, err error) string {
	if err != nil || u.Username == "" {
		return fmt.Sprint("uid ", os.Getuid())
	}
	return u.Username
}

// parse reads the flags, which may stand before and after the other arguments.
func (c *call) parse(args []string) error {
	for {
		err := c.flags.Parse(args)
		switch {
		case errors.Is(err, flag.ErrHelp):
			return err
		case err != nil:
			return wrong("%v; %s -h shows the flags", err, c.name)
		case c.flags.NArg() == 0:
			return c.count()
		}
		c.args = append(c.args, c.flags.Arg(0))
		args = c.flags.Args()[1:]
	}
}

// count refuses too few or too many arguments, and what is empty: a variable of
// a script that is not set must not leave a limit out.
func (c *call) count() error {
	most := len(strings.Fields(c.command.args))
	if n := len(c.args); n > most || n < most-strings.Count(c.command.args, "[") {
		return wrong("usage: %s %s %s [FLAGS]; %s -h shows them", c.program(), c.name, c.command.args, c.name)
	}
	if slices.Contains(c.args, "") {
		return wrong("an argument is empty")
	}
	var err error
	c.flags.Visit(func(f *flag.Flag) {
		if _, ok := f.Value.(flag.Getter); ok && f.Value.String() == "" {
			err = wrong("-%s is empty", f.Name)
		}
	})
	return err
}

// several declares a flag of values with commas or spaces between.
func several[T any](c *call, name, usage string, parse func(string) (T, error)) *[]T {
	all := new([]T)
	c.flags.Func(name, usage+", with commas between", func(text string) error {
		for _, part := range strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == ' ' }) {
			value, err := parse(part)
			if err != nil {
				return err
			}
			*all = append(*all, value)
		}
		if len(*all) == 0 {
			return errors.New("it is empty")
		}
		return nil
	})
	return all
}

func scopeName(text string) (scope.Name, error) { return scope.Name(text), nil }

// time declares a flag of a time: if it is given as a duration, that far from
// now, or that long ago.
func (c *call) time(name, usage string, ago bool) *time.Time {
	t := new(time.Time)
	c.flags.Func(name, usage, func(text string) (err error) {
		for _, layout := range []string{time.RFC3339, time.DateOnly} {
			if *t, err = time.Parse(layout, text); err == nil && !t.IsZero() { // zero is the flag left out
				return nil
			}
		}
		d, err := duration(text)
		if err != nil {
			return errors.New("write it as 2026-11-30, 2026-11-30T12:00:00Z, 90d or 12h")
		}
		if ago {
			d = -d
		}
		*t = time.Now().Add(d)
		return nil
	})
	return t
}

// duration reads a duration, which may be in days.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16) // 180 years
		d = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || d < 0 {
		err = errors.New("write it as 90d or 12h")
	}
	return d, err
}

// key returns the key of an argument: of an id and -org, or for - of the token
// on standard input.
func (c *call) key(arg string) (*keystore.Key, error) {
	if arg == "-" {
		return c.tokensKey()
	}
	if _, err := c.issuer.Service().Parse(arg); err == nil {
		return nil, wrong("that is a token; give it on standard input, with - in place of the id")
	}
	if c.organization == "" {
		return nil, wrong("say whose key it is with -org")
	}
	k, err := c.issuer.Key(c.ctx, c.organization, arg)
	if errors.Is(err, keystore.ErrNotFound) {
		return nil, missing("organization %q has no key %q", c.organization, arg)
	}
	return k, err
}

// tokensKey returns the key of the token on standard input.
func (c *call) tokensKey() (*keystore.Key, error) {
	token, err := c.line()
	if err == nil && token == "" {
		err = wrong("standard input is empty; a token belongs there")
	}
	if err == nil && !c.terminal() {
		if more, _ := c.line(); more != "" {
			err = wrong("standard input has several lines; give one token")
		}
	}
	if err != nil {
		return nil, err
	}
	k, err := c.issuer.KeyOf(c.ctx, token)
	if errors.Is(err, keystore.ErrNotFound) {
		return nil, missing("no organization has a key with this token")
	}
	if err == nil && c.organization != "" && c.organization != k.Organization {
		return nil, missing("the token is not one of organization %q", c.organization)
	}
	return k, err
}

// line returns the next line of standard input, "" at its end.
func (c *call) line() (string, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return "", wrong("a line of standard input is too long for a token")
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	return strings.TrimSpace(string(line)), nil
}

// terminal reports whether somebody can be asked.
func (c *call) terminal() bool {
	f, ok := c.Stdin.(interface{ Stat() (fs.FileInfo, error) })
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&fs.ModeCharDevice != 0
}

// confirm asks whether to do what a sentence says. One answer means yes.
func (c *call) confirm(sentence, answer string) error {
	if c.yes {
		return nil
	}
	if !c.terminal() {
		return wrong("%s cannot be undone, and standard input is no terminal where somebody could be asked; -yes "+
			"does it", c.name)
	}
	fmt.Fprintf(c.Stderr, "%s Type %s to do it: ", sentence, clean(answer))
	typed, err := c.line()
	if err == nil && typed != answer {
		err = refuse("nothing was changed; -yes does it without asking")
	}
	return err
}
