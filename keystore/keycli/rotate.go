package keycli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// This file replaces keys: one, or all that were made before a time.

func rotate(c *call) func() error {
	r, now := issuing.Rotation{Overlap: 24 * time.Hour}, time.Now()
	c.flags.Func("overlap", "for how `long` both secrets work, such as 90d or 12h; 0 if the old one leaked (default "+
		"24h)", func(text string) (err error) {
		r.Overlap, err = duration(text)
		return err
	})
	expires := c.time("expires", "`TIME` from which the new key is refused; none: as the old one", false)
	before := c.time("made-before", "rotate the active keys of -org that were made before this `TIME`, which has "+
		"passed.\nLeft alone are suspended ones, those that were rotated before and still work, and\nchildren, which "+
		"end with their parent", false)
	file := c.flags.String("secrets", "", "with -made-before, the `FILE` that the new secrets are written to before one "+
		"of them\nworks. The same command again goes on with what is in it, and makes no others")
	dry := c.flags.Bool("dry-run", false, "with -made-before, list them only")
	return func() error {
		one := before.IsZero()
		if (len(c.args) == 1) != one || one == (*file != "" || *dry) {
			return wrong("say which ID, or -made-before, -org and -secrets; -dry-run goes with the latter")
		}
		if !before.Before(now) {
			return wrong("-made-before must be a day or an instant that has passed, or a repeat would rotate the new keys")
		}
		r.ExpiresAt, r.Organization = *expires, c.organization
		if one {
			return c.rotateOne(r)
		}
		return c.rotateMany(plan{Organization: c.organization, MadeBefore: *before, file: *file}, *dry, r)
	}
}

func (c *call) rotateOne(r issuing.Rotation) error {
	old, err := c.key(c.args[0])
	if err == nil {
		err = old.Refused()
	}
	if err == nil {
		err = c.confirm(fmt.Sprintf("Replace %s, whose secret works for %v more?", describe(old), r.Overlap), "yes")
	}
	if err != nil {
		return err
	}
	r.Organization, r.ID = old.Organization, old.ID
	secret, next, err := c.issuer.Rotate(c.ctx, r)
	if next == nil {
		return err
	}
	if lost := c.reveal(secret, next); lost != nil {
		return fmt.Errorf("%w; it was that of %s, which replaces %s: issue another key", lost, next.ID, old.ID)
	}
	if err != nil {
		return fmt.Errorf("the new key works, and %s could not be revoked: %w", old.ID, err)
	}
	end := next.CreatedAt.Add(r.Overlap)
	if !old.ExpiresAt.IsZero() && old.ExpiresAt.Before(end) {
		end = old.ExpiresAt
	}
	if !c.json {
		c.say("the secret of %s, which it replaces, expires at %s UTC", old.ID, stamp(end))
	}
	return nil
}

// A plan is the file of the new secrets. It is whole on the disk before a key has
// one of them, and does not change: a crash loses none.
type plan struct {
	Organization string      `json:"organization"`
	MadeBefore   time.Time   `json:"made_before"`
	Keys         []successor `json:"keys"`

	file string
}

type successor struct {
	RotatedFrom string `json:"rotated_from"`
	Name        string `json:"name"`
	Token       string `json:"token"`
}

func (c *call) rotateMany(p plan, dry bool, r issuing.Rotation) error {
	keys, err := c.madeBefore(p.MadeBefore)
	if err == nil {
		err = p.read()
	}
	if err != nil {
		return err
	}
	begun, left := p.Keys != nil, []string(nil)
	keys = slices.DeleteFunc(keys, func(k *keystore.Key) bool {
		planned := slices.ContainsFunc(p.Keys, func(s successor) bool { return s.RotatedFrom == k.ID })
		alone := k.Suspended || !k.RevokedAt.IsZero() || !k.Environment.Known() || begun && !planned
		if alone {
			left = append(left, k.ID)
		}
		return alone
	})
	if left != nil {
		c.say("left alone, since suspended, rotated before, corrupt or not in the file: %s", clean(listed(left)))
	}
	if !begun || dry || len(keys) > 0 {
		if ok, err := c.chosen(keys, dry, "Replace", fmt.Sprintf(", whose secrets work for %v more", r.Overlap)); !ok {
			return err
		}
	}
	if !begun {
		if err := p.write(keys, c.issuer.Service()); err != nil {
			return err
		}
	}
	return c.follow(p, r)
}

// follow rotates the keys of a plan, as far as no earlier run has.
func (c *call) follow(p plan, r issuing.Rotation) error {
	done := 0
	for _, s := range p.Keys {
		r.ID, r.Token = s.RotatedFrom, func() string { return s.Token }
		_, next, err := c.issuer.Rotate(c.ctx, r)
		if next != nil && errors.Is(err, issuing.ErrExists) {
			err = nil
		}
		switch code, text := explain(err); code {
		case 0:
			done++
		case refused, absent:
			c.say("%s is not rotated, and its secret in %s opens nothing: %s", clean(s.RotatedFrom), p.file, text)
		default:
			return outcome{code, fmt.Sprintf("%d of %d keys are rotated; a repeat goes on: %s", done, len(p.Keys), text)}
		}
	}
	text := fmt.Sprintf("%d of %d keys are rotated; their secrets are in %s", done, len(p.Keys), p.file)
	if done < len(p.Keys) {
		return refuse("%s", text)
	}
	c.say("%s", text)
	return nil
}

// read reads the file, if it is there. In one that somebody else can write they
// would have left tokens that they know.
func (p *plan) read() error {
	info, err := os.Stat(p.file)
	if errors.Is(err, fs.ErrNotExist) || p.file == "" {
		return nil
	}
	var text []byte
	if err == nil && info.Mode().IsRegular() { // to open another one may take for ever
		text, info, err = readOpen(p.file)
	}
	if err == nil && !private(info) {
		return wrong("%s must be a file of yours that nobody else may read or write", p.file)
	}
	var found plan
	if err == nil && (json.Unmarshal(text, &found) != nil || found.Organization != p.Organization ||
		!found.MadeBefore.Equal(p.MadeBefore)) {
		err = wrong("%s is not the file of a rotation with this -org and -made-before, or was cut off before a key was "+
			"rotated: give another one", p.file)
	}
	p.Keys = found.Keys
	return err
}

// readOpen reads a file, and tells of that very one.
func readOpen(name string) (text []byte, info fs.FileInfo, err error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil {
		text, err = io.ReadAll(f)
	}
	return text, info, err
}

// write draws the secrets, and makes the file unless there is one.
func (p *plan) write(keys []*keystore.Key, service keystore.Service) error {
	for _, k := range keys {
		p.Keys = append(p.Keys, successor{k.ID, k.Name, service.Generate(k.Environment).Reveal()})
	}
	f, err := os.OpenFile(p.file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	text := json.NewEncoder(f)
	text.SetIndent("", "  ")
	if err = errors.Join(text.Encode(p), f.Sync(), f.Close()); err != nil {
		return errors.Join(err, os.Remove(p.file))
	}
	directory, err := os.Open(filepath.Dir(p.file))
	if err != nil || runtime.GOOS == "windows" { // where none can be synced
		return err
	}
	return errors.Join(directory.Sync(), directory.Close())
}
