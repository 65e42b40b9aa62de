package console

import (
	"maps"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/sallyport-go/sallyport/keystore"
)

// editable returns why k cannot be edited, or nil. Whoever may not be shown its
// secret may not change where it works from either.
func (x *exchange) editable(k *keystore.Key) error {
	switch status := k.Status(time.Now()); {
	case !x.mayRotate(k):
		return &failure{status: http.StatusForbidden, title: "Not yours to edit",
			detail: "This key has scopes that you may not assign, so you cannot change it. You can revoke it."}
	case status == keystore.Revoked:
		return &failure{status: http.StatusConflict, title: "This key is revoked", detail: "A revoked key cannot be changed."}
	case status == keystore.Expired:
		return &failure{status: http.StatusConflict, title: "This key has expired",
			detail: "An expired key cannot be changed."}
	}
	return nil
}

func (x *exchange) editForm(k *keystore.Key) error {
	if err := x.editable(k); err != nil {
		return err
	}
	x.showEditForm(http.StatusOK, k, k.Name, restrictionOf(k), nil, "")
	return nil
}

func (x *exchange) showEditForm(status int, k *keystore.Key, name string, typed restriction,
	problems map[string]string, notice string) {
	v, f := x.view(k), x.restrictionForm(typed, problems)
	f.Narrow = len(k.Networks) > 0
	x.render(status, "edit.html", formTitle("Edit “"+v.Name+"”", problems, notice), struct {
		view
		Version     int64
		Typed       string
		Restriction restrictionForm
		Problems    map[string]string
		Notice      string
	}{v, k.Version, name, f, problems, notice})
}

// edit changes k, as the form of editForm says.
func (x *exchange) edit(k *keystore.Key) error {
	if err := x.editable(k); err != nil {
		return err
	}
	if err := x.readForm(); err != nil {
		return err
	}
	if read := x.r.PostForm.Get("version"); read != "" && read != strconv.FormatInt(k.Version, 10) {
		return keystore.ErrConflict
	}
	name, typed := strings.TrimSpace(x.r.PostForm.Get("name")), x.readRestriction(x.r.PostForm)
	changed, err := x.change(k, name, typed)
	if err != nil {
		why := x.explain(err)
		if why.problems == nil && why.status < http.StatusInternalServerError {
			return err
		}
		problems, notice := why.again()
		x.showEditForm(why.status, k, name, typed, problems, notice)
		return nil
	}
	x.toKey(changed)
	return nil
}

// change applies what was typed and returns the key as it is then.
func (x *exchange) change(k *keystore.Key, name string, typed restriction) (*keystore.Key, error) {
	var problems []keystore.FieldError
	if name == "" && k.Name != "" {
		problems = append(problems, keystore.FieldError{Field: "name",
			Message: "Give the key a name, so that others know what it is for."})
	}
	problems = append(problems, x.attributeProblems(k, typed.Attributes)...)
	var networks []netip.Prefix
	if x.options.Networks {
		var networkProblems []keystore.FieldError
		networks, networkProblems = x.parseNetworks(typed.Networks)
		problems = append(problems, networkProblems...)
	}
	if problems != nil {
		return nil, &keystore.GrantError{Fields: problems}
	}
	edited := k.Clone()
	edited.Name = name
	if edited.Attributes == nil {
		edited.Attributes = make(map[string]string)
	}
	maps.Copy(edited.Attributes, typed.Attributes)
	if x.options.Networks {
		edited.Networks = networks
	}
	return x.by.Edit(x.r.Context(), edited)
}
