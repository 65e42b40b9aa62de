package console

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// An edit is what is to be changed of a key; nil: nothing.
type edit struct {
	Name       *string           `json:"name"`
	Attributes map[string]string `json:"attributes"` // those that are changed; an empty value removes one
	Networks   *[]string         `json:"networks"`
}

// editable returns why k cannot be edited, or nil. Whoever may not be shown its
// secret may not change where it works from either.
func (x *exchange) editable(k *keystore.Key) error {
	switch status := k.Status(time.Now()); {
	case !x.mayRotate(k):
		return &failure{status: http.StatusForbidden, code: "not_assignable", title: "Not yours to edit", detail: "This key has scopes that you may not assign, so you cannot change it. You can revoke it."}
	case status == keystore.Revoked:
		return &failure{status: http.StatusConflict, code: "key_revoked", title: "This key is revoked", detail: "A revoked key cannot be changed."}
	case status == keystore.Expired:
		return &failure{status: http.StatusConflict, code: "key_expired", title: "This key has expired", detail: "An expired key cannot be changed."}
	}
	return nil
}

func (x *exchange) editForm(k *keystore.Key) error {
	if x.json {
		return keystore.ErrNotFound
	}
	if err := x.editable(k); err != nil {
		return err
	}
	x.showEditForm(http.StatusOK, k, k.Name, restrictionOf(k), nil, "")
	return nil
}

func (x *exchange) showEditForm(status int, k *keystore.Key, name string, typed restriction, problems map[string]string, notice string) {
	v := x.view(k)
	title := "Edit “" + v.Name + "”"
	if problems != nil || notice != "" {
		title = "Error: " + title
	}
	x.render(status, "edit.html", title, struct {
		view
		Typed       string
		Restriction restrictionForm
		Problems    map[string]string
		Notice      string
	}{v, name, x.restrictionForm(typed, problems), problems, notice})
}

// edit changes k, told by the form of editForm or by JSON.
func (x *exchange) edit(k *keystore.Key) error {
	if err := x.editable(k); err != nil {
		return err
	}
	if x.json {
		var e edit
		if err := x.readJSON(&e); err != nil {
			return err
		}
		k, err := x.change(k, e)
		if err == nil {
			x.writeJSON(http.StatusOK, x.keyJSON(k))
		}
		return err
	}
	if err := x.readForm(); err != nil {
		return err
	}
	name, typed := strings.TrimSpace(x.r.PostForm.Get("name")), x.readRestriction(x.r.PostForm)
	e := edit{Name: &name, Attributes: typed.Attributes}
	if x.options.Networks {
		networks := splitNetworks(typed.Networks)
		e.Networks = &networks
	}
	changed, err := x.change(k, e)
	if err != nil {
		why := x.explain(err)
		if why.problems == nil && why.status < http.StatusInternalServerError {
			return err
		}
		notice := ""
		if why.problems == nil {
			notice = why.detail
		}
		x.showEditForm(why.status, k, name, typed, byField(why.problems), notice)
		return nil
	}
	x.toKey(changed)
	return nil
}

// change applies an edit and returns the key as it is then.
func (x *exchange) change(k *keystore.Key, e edit) (*keystore.Key, error) {
	var problems []keystore.FieldError
	if e.Name != nil {
		if *e.Name = strings.TrimSpace(*e.Name); *e.Name == "" && k.Name != "" {
			problems = append(problems, keystore.FieldError{Field: "name", Message: "Give the key a name, so that others know what it is for."})
		}
	}
	problems = append(problems, x.attributeProblems(k, e.Attributes)...)
	var networks []netip.Prefix
	if e.Networks != nil {
		var networkProblems []keystore.FieldError
		networks, networkProblems = x.parseNetworks(*e.Networks)
		problems = append(problems, networkProblems...)
	}
	if problems != nil {
		return nil, &keystore.GrantError{Fields: problems}
	}
	var before int64
	after, err := x.issuer.Edit(x.r.Context(), x.actor.Organization, k.ID, func(k *keystore.Key) {
		before = k.Version
		if e.Name != nil {
			k.Name = *e.Name
		}
		for name, value := range e.Attributes {
			if k.Attributes == nil {
				k.Attributes = make(map[string]string)
			}
			k.Attributes[name] = value
		}
		if e.Networks != nil {
			k.Networks = networks
		}
	})
	if err == nil && after.Version != before {
		x.audit(Event{Act: Edited}, after)
	}
	return after, err
}
