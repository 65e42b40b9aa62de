package console

import (
	"errors"
	"mime"
	"net/http"
	"net/url"
	"strings"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/keystore/issuing"
)

// A failure is a refusal as the console answers it.
type failure struct {
	status   int
	code     string // in the log, of those that are logged
	title    string // of the page
	detail   string
	problems []keystore.FieldError
	cause    error // never shown
}

func badRequest(detail string) error {
	return &failure{status: http.StatusBadRequest, title: "Not understood", detail: detail}
}

var errReadOnly = &failure{status: http.StatusForbidden, title: "Not yours to change",
	detail: "You may look at the keys of your organization, and change nothing. Ask an administrator."}

func (f *failure) Error() string { return "console: " + f.detail }

// refusals are what known errors are to the person who asked.
var refusals = map[error]failure{
	ErrSignedOut: {status: http.StatusUnauthorized, title: "Sign in first",
		detail: "These pages are for administrators who are signed in."},
	ErrNotAdmin: {status: http.StatusForbidden, title: "For administrators",
		detail: "Only an administrator of the organization can open these pages."},
	keystore.ErrNotFound: {status: http.StatusNotFound, title: "Nothing here",
		detail: "There is no such page, and no such key in your organization."},
	issuing.ErrRotated: {status: http.StatusConflict, title: "This key was rotated before", detail: "A key is " +
		"replaced once, and this one has a successor already. If the secret of that one is lost, create a new key."},
	issuing.ErrConflict: {status: http.StatusConflict, title: "Somebody else has changed this key",
		detail: "Your changes were not saved. Look at the key as it is now, and edit it again."},
	keystore.ErrRevoked: {status: http.StatusConflict, title: "This key is revoked",
		detail: "A revoked key cannot be changed or rotated. Create a new one instead."},
	keystore.ErrExpired: {status: http.StatusConflict, title: "This key has expired",
		detail: "An expired key cannot be changed or rotated. Create a new one instead."},
	keystore.ErrSuspended: {status: http.StatusConflict, title: "This key is suspended",
		detail: "A suspended key cannot be rotated until it is resumed. It can be revoked."},
}

// failureOf returns the answer to an error. One that is not known means that
// the store could not answer; its text goes to the log only.
func failureOf(err error) *failure {
	if f, ok := errors.AsType[*failure](err); ok {
		return f
	}
	if g, ok := errors.AsType[*keystore.FieldsError](err); ok {
		f := &failure{status: http.StatusUnprocessableEntity, title: "Not valid", problems: g.Fields,
			detail: "Nothing was changed."}
		for _, p := range g.Fields {
			f.detail += " " + p.Message
		}
		return f
	}
	for known, f := range refusals {
		if errors.Is(err, known) {
			return &f
		}
	}
	return &failure{status: http.StatusServiceUnavailable, code: "key_store_unavailable", cause: err}
}

func (x *exchange) refuse(err error) {
	f := x.explain(err)
	body := struct {
		Detail, SignIn string
		Again          url.Values // the fields of a form that came when nobody was signed in any more
	}{Detail: f.detail}
	if err == ErrSignedOut && x.r.Method == http.MethodPost && x.readForm() == nil {
		if body.Again = x.r.PostForm; len(body.Again) > 0 {
			body.Detail += " Nothing was changed. Sign in in another tab, then send the form again: this page has kept " +
				"what you filled in."
		}
	}
	if err == ErrSignedOut || err == ErrNotAdmin {
		body.SignIn = x.options.SignIn
	}
	_ = x.render(f.status, "error.html", f.title, body)
}

// explain completes a failure with the texts that all of its status share, and
// logs what only the operator may know.
func (x *exchange) explain(err error) *failure {
	f := failureOf(err)
	switch f.status {
	case http.StatusServiceUnavailable:
		x.w.Header().Set("Retry-After", "5")
		f.title, f.detail = "Not available at the moment", "Try again in a moment."
		if x.r.Method == http.MethodPost && x.actor.ID != "" {
			f.detail = "It is not known whether anything was changed. Try again in a moment: sending the same again " +
				"makes no second key."
		}
	case http.StatusInternalServerError:
		f.title, f.detail = "Something is wrong", "The console could not answer. The operator finds the reason in the log."
	}
	if f.code != "" {
		x.options.Logger.ErrorContext(x.r.Context(), "console: a request could not be answered", "code", f.code, "method",
			x.r.Method, "error", f.cause)
	}
	return f
}

const maxBody = 64 << 10 // bytes

// readForm reads the body that a page's form sends.
func (x *exchange) readForm() error {
	if kind, _, _ := mime.ParseMediaType(x.r.Header.Get("Content-Type")); kind != "application/x-www-form-urlencoded" {
		return &failure{status: http.StatusUnsupportedMediaType, title: "Not understood",
			detail: "Send the form of a page. A program uses an issuing.Issuer."}
	}
	x.r.Body = http.MaxBytesReader(x.w, x.r.Body, maxBody)
	err := x.r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		return &failure{status: http.StatusRequestEntityTooLarge, title: "Too large",
			detail: "The request is larger than any that makes a key."}
	}
	if err != nil {
		return badRequest("The form could not be read.")
	}
	return nil
}

// formToken returns the token that a form carries, by which a repeat is known.
// It is empty when the form has none.
func (x *exchange) formToken() string {
	token := x.r.PostForm.Get("issue_token")
	if len(token) > 255 || strings.ContainsFunc(token, func(r rune) bool { return r < 0x20 || r > 0x7e }) {
		return ""
	}
	return token
}

// An answer is what a form that is shown again says of what was sent.
type answer struct {
	Problems map[string]string // by their field
	Notice   string
}

// answer is the one to a failure: the messages at the fields, or else a notice.
func (f *failure) answer() answer {
	if f.problems == nil {
		return answer{Notice: f.detail}
	}
	fields := make(map[string]string)
	for _, p := range f.problems {
		fields[p.Field] = strings.TrimPrefix(fields[p.Field]+" "+p.Message, " ")
	}
	return answer{Problems: fields}
}

// title returns the title of a form, which says first that something is wrong:
// a screen reader begins with it.
func (a answer) title(title string) string {
	if a.Problems != nil || a.Notice != "" {
		return "Error: " + title
	}
	return title
}
