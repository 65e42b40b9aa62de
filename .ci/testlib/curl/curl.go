// Package curl reads the commands of curl that a page or a program shows, for
// tests that send what they say.
package curl

import (
	"net/http"
	"regexp"
	"strings"
)

// word is one of a shell that knows no quotes within words.
var word = regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`)

// Request returns what a command sends, in a shell in which KEY is key. It is
// nil if the line is another command.
func Request(line, key string) (*http.Request, error) {
	var args []string
	for _, m := range word.FindAllStringSubmatch(strings.ReplaceAll(line, "$KEY", key), -1) {
		args = append(args, m[1]+m[2]+m[3])
	}
	if len(args) == 0 || args[0] != "curl" {
		return nil, nil
	}
	method, target, body, header := http.MethodGet, "", "", http.Header{}
	for i := 1; i < len(args); i++ {
		switch args[i] {
		case "-i", "-N":
		case "-H":
			i++
			name, value, _ := strings.Cut(args[i], ": ")
			header.Add(name, value)
		case "-d":
			i++
			method, body = http.MethodPost, args[i]
			header.Set("Content-Type", "application/x-www-form-urlencoded")
		default:
			target = args[i]
		}
	}
	r, err := http.NewRequest(method, target, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header
	return r, nil
}
