package main

import (
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

func refuse(status int, code, detail string) error {
	return &middleware.Problem{Status: status, Code: code, Detail: detail}
}

func badRequest(detail string) error { return refuse(http.StatusBadRequest, "bad_request", detail) }

var errNoTask = refuse(http.StatusNotFound, "not_found",
	"Your organization has no task of this id in the environment of the API key.")

// readPage returns the page that the query asks for. Parameters that it does
// not know are left alone.
func readPage(r *http.Request) (limit int, after string, err error) {
	values, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return 0, "", badRequest(`The query could not be read: percent-encode its values, and join parameters by "&".`)
	}
	limit = defaultLimit
	if v := values["limit"]; v != nil {
		limit, err = strconv.Atoi(v[0])
		if err != nil || limit < 1 || limit > maxLimit || len(v) > 1 {
			return 0, "", badRequest(fmt.Sprintf("The parameter limit is one number from 1 to %d.", maxLimit))
		}
	}
	if v := values["cursor"]; v != nil {
		if after = v[0]; !isTaskID(after) || len(v) > 1 {
			return 0, "", badRequest("The parameter cursor is not one that a page ended with. Follow the Link header of " +
				"the page before, or leave it out to begin with the newest task.")
		}
	}
	return limit, after, nil
}

// readTitle returns the title of the task that the body asks for. The body is
// read as JSON whatever the Content-Type says, and members other than title are
// left alone, so that a newer client is not refused.
func readTitle(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxTaskBody))
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return "", refuse(http.StatusRequestEntityTooLarge, "body_too_large",
			fmt.Sprintf("The body of a task is at most %d bytes.", maxTaskBody))
	}
	if err != nil {
		return "", badRequest("The body ended before it was whole.")
	}
	var input struct {
		Title string `json:"title"`
	}
	if !utf8.Valid(body) || json.Unmarshal(body, &input) != nil {
		return "", badRequest(`The body is not a JSON object in UTF-8 whose member "title" is a string, ` +
			`such as {"title": "Light the harbour"}.`)
	}
	switch title := input.Title; {
	case strings.TrimSpace(title) == "":
		return "", badRequest(`The member "title" is missing or blank.`)
	case utf8.RuneCountInString(title) > maxTitle:
		return "", badRequest(fmt.Sprintf(`The member "title" is longer than %d characters.`, maxTitle))
	case strings.ContainsFunc(title, unicode.IsControl):
		return "", badRequest(`The member "title" contains a control character, such as a line break.`)
	}
	return input.Title, nil
}
