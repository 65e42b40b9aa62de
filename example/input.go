package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/middleware"
)

const (
	maxTaskBody  = 64 << 10 // bytes
	maxTitle     = 200      // characters
	defaultLimit = 100      // tasks a page
	maxLimit     = 1000
)

// readPage returns the page that the query asks for, or the problem with it,
// which has a Status then. Other parameters are left alone.
func readPage(r *http.Request) (limit int, after cursor, problem middleware.Problem) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, cursor{}, badRequest(`The query could not be read: percent-encode its values, and join parameters by "&".`)
	}
	limit = defaultLimit
	if v := values["limit"]; v != nil {
		limit, err = strconv.Atoi(v[0])
		if err != nil || limit < 1 || limit > maxLimit || len(v) > 1 {
			return 0, cursor{}, badRequest(fmt.Sprintf("The parameter limit is one number from 1 to %d.", maxLimit))
		}
	}
	if v := values["cursor"]; v != nil {
		after, err = parseCursor(v[0])
		if err != nil || len(v) > 1 {
			return 0, cursor{}, badRequest("The parameter cursor is not one that a page ended with. Follow the Link header of " +
				"the page before, or leave it out to begin with the newest task.")
		}
	}
	return limit, after, middleware.Problem{}
}

// readTitle returns the title of the task that the body asks for, or the
// problem with it, which has a Status then. The body is read as JSON whatever
// the Content-Type says, and members other than title are left alone, so that a
// newer client is not refused.
func readTitle(w http.ResponseWriter, r *http.Request) (string, middleware.Problem) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTaskBody))
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return "", middleware.Problem{
			Status: http.StatusRequestEntityTooLarge,
			Code:   "body_too_large",
			Detail: fmt.Sprintf("The body of a task is at most %d bytes.", tooLarge.Limit),
		}
	}
	if err != nil {
		return "", badRequest("The body ended before it was whole.")
	}
	var input struct {
		Title *string `json:"title"`
	}
	if !utf8.Valid(body) || json.Unmarshal(body, &input) != nil {
		if len(bytes.TrimSpace(body)) == 0 {
			return "", badRequest(`The body is empty. Send a JSON object such as {"title": "Light the harbour"}.`)
		}
		return "", badRequest(`The body is not a JSON object in UTF-8 whose member "title" is a string, ` +
			`such as {"title": "Light the harbour"}.`)
	}
	switch title := input.Title; {
	case title == nil:
		return "", badRequest(`The member "title" is missing.`)
	case strings.TrimSpace(*title) == "":
		return "", badRequest(`The member "title" is blank.`)
	case utf8.RuneCountInString(*title) > maxTitle:
		return "", badRequest(fmt.Sprintf(`The member "title" is longer than %d characters.`, maxTitle))
	case strings.ContainsFunc(*title, unicode.IsControl):
		return "", badRequest(`The member "title" contains a control character, such as a line break.`)
	}
	return *input.Title, middleware.Problem{}
}

func badRequest(detail string) middleware.Problem {
	return middleware.Problem{Status: http.StatusBadRequest, Code: "bad_request", Detail: detail}
}
