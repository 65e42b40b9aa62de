package console

import (
	"errors"
	"mime"
	"net/http"
	"strings"
)

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
