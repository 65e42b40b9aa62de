package console

import (
	"cmp"
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// An Attribute is one of [keystore.Key.Attributes] that the pages know.
type Attribute struct {
	Name     string   // of the attribute
	Title    string   // shown to people; empty: the Name
	Values   []string // to choose from; nil: any text
	ReadOnly bool     // administrators see it and cannot set it
}

// check panics when an attribute cannot be stored, or a preset never be
// offered.
func (o Options) check(issuer *issuing.Issuer) {
	for _, p := range o.Presets {
		if p.Name == "" || len(p.Scopes) == 0 {
			panic(fmt.Sprintf("console: Presets: %q has no name or no scopes", p.Name))
		}
		if _, unknown := issuer.Service().Scopes.Parse(p.Scopes); len(unknown) > 0 {
			panic(fmt.Sprintf("console: Presets: %q has scopes that the issuer's registry lacks: %q", p.Name, unknown))
		}
	}
	if p := (&url.URL{Path: path.Clean("/" + o.Path)}).EscapedPath(); o.Path != "" && (p != o.Path || p == "/") {
		panic(fmt.Sprintf("console: Path: %q is no path such as /settings/keys", o.Path))
	}
	o.checkSamples(issuer.Service().Scopes)
	seen := make(map[string]bool)
	for _, a := range o.Attributes {
		if seen[a.Name] {
			panic(fmt.Sprintf("console: Attributes: %q is there twice", a.Name))
		}
		seen[a.Name] = true
		for _, value := range append([]string{"x"}, a.Values...) {
			k := keystore.Key{Organization: "x", Environment: keystore.Sandbox, Attributes: map[string]string{a.Name: value}}
			err := k.Validate(issuer.Service().Scopes)
			if err != nil || value == "" {
				panic(fmt.Sprintf("console: Attributes: %q with the value %q: %v", a.Name, value, err))
			}
		}
	}
}

// A restriction is what was typed of the attributes and networks of a key.
type restriction struct {
	Attributes map[string]string // of those on the form
	Networks   string
}

// attributeField is the name of the form's field of an attribute.
func attributeField(a Attribute) string { return "attribute." + a.Name }

func (x *exchange) readRestriction(v url.Values) restriction {
	typed := restriction{Attributes: make(map[string]string), Networks: strings.TrimSpace(v.Get("networks"))}
	for _, a := range x.options.Attributes {
		if field := attributeField(a); !a.ReadOnly && v.Has(field) {
			typed.Attributes[a.Name] = strings.TrimSpace(v.Get(field))
		}
	}
	return typed
}

// restrictionOf is what a form shows of a key.
func restrictionOf(k *keystore.Key) restriction {
	return restriction{Attributes: k.Attributes, Networks: strings.Join(texts(k.Networks), "\n")}
}

// texts returns how values are written.
func texts[T any](values []T) []string { return strings.Fields(strings.Trim(fmt.Sprint(values), "[]")) }

// checkAttributes notes which of the values typed cannot be chosen for k. The
// one that it has may stay.
func (x *exchange) checkAttributes(k *keystore.Key, typed map[string]string) {
	for _, a := range x.options.Attributes {
		value := typed[a.Name]
		if value != "" && value != k.Attributes[a.Name] && a.Values != nil && !slices.Contains(a.Values, value) {
			x.wrong("attributes", "The attribute %s cannot be %.40q.", a.Name, value)
		}
	}
}

// parseNetworks reads networks, and addresses that stand for themselves. It
// notes the first three that are neither.
func (x *exchange) parseNetworks(typed string) (networks []netip.Prefix) {
	if typed != "" && !x.options.Networks {
		x.wrong("networks", "The networks of a key cannot be set here.")
		return nil
	}
	enough := 3
	for _, text := range strings.FieldsFunc(typed, func(r rune) bool { return r == ',' || r == ';' || r <= ' ' }) {
		network, err := netip.ParsePrefix(text)
		if address, addressErr := netip.ParseAddr(text); addressErr == nil && address.Zone() == "" {
			network, err = netip.PrefixFrom(address, address.BitLen()), nil
		}
		if err == nil {
			networks = append(networks, network.Masked())
		} else if enough--; enough >= 0 {
			x.wrong("networks", "%.50q is neither a network, such as 192.0.2.0/24, nor an address.", text)
		}
	}
	return networks
}

// A restrictionForm is a restriction as a page shows it.
type restrictionForm struct {
	Attributes []attributeInput
	Networks   string
	Limited    bool // there is a field for networks
	Narrow     bool // the networks can only be narrowed
	Problems   map[string]string
}

type attributeInput struct {
	Field, Title, Value string
	Values              []string
}

func (x *exchange) restrictionForm(typed restriction, problems map[string]string) restrictionForm {
	f := restrictionForm{Networks: typed.Networks, Limited: x.options.Networks, Problems: problems}
	for _, a := range x.options.Attributes {
		if a.ReadOnly {
			continue
		}
		in := attributeInput{Field: attributeField(a), Title: a.title(), Value: typed.Attributes[a.Name], Values: a.Values}
		// A value from before the choice was narrowed stays until it is
		// changed.
		if in.Values != nil && in.Value != "" && !slices.Contains(in.Values, in.Value) {
			in.Values = append(slices.Clone(in.Values), in.Value)
		}
		f.Attributes = append(f.Attributes, in)
	}
	return f
}

func (a Attribute) title() string { return cmp.Or(a.Title, a.Name) }

// attributeViews returns the attributes of a key that the pages know, each with
// its value.
func (x *exchange) attributeViews(k *keystore.Key) (views []option) {
	for _, a := range x.options.Attributes {
		if value := k.Attributes[a.Name]; value != "" {
			views = append(views, option{value, a.title()})
		}
	}
	return views
}
