package middleware

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/sallyport-go/sallyport/keystore"
	"github.com/sallyport-go/sallyport/middleware/internal/codes"
	"github.com/sallyport-go/sallyport/scope"
)

// A Problem is a refusal, as RFC 9457 (Problem Details for HTTP APIs) describes
// one. The members of the default body are named in the comments.
type Problem struct {
	Status int    // "status"; "type" is "about:blank" and "title" the status's own phrase (RFC 9457, section 4.2.1)
	Code   string // "code": stable, for programs
	Detail string // "detail": what was wrong and what to do, for people

	// RetryAfter is the wait that the Retry-After header tells: whole seconds,
	// rounded up, at least 1. Zero means no header.
	RetryAfter time.Duration

	// Challenge is the WWW-Authenticate header, or "".
	Challenge string

	Policy  string       // "policy": the rate limit or the quota that refused
	Missing []scope.Name // "missing_scopes"

	// ResetsAt is when the next period of a quota begins: "resets_at", in UTC and
	// whole seconds. Zero leaves it out.
	ResetsAt time.Time

	// OriginalStatus and OriginalLocation are what is left of a response that was
	// not retained: "original_status", and its Location in "original_location".
	OriginalStatus   int
	OriginalLocation string

	requestID string // "request_id"; left out when empty

	caller *keystore.Caller // whose API key is refused, for the Event and Uses only
	log    error            // why credentials are refused, for the log only
	head   *head            // nil, or of a Problem with this status, detail and code
	again  codes.Advice
	quota  bool // "type" and "violated-policies" are those of FieldsDraft11
}

// problems are the rows of [codes.Table].
var problems = func() map[string]*Problem {
	all := make(map[string]*Problem, len(codes.Table))
	for code, row := range codes.Table {
		all[code] = &Problem{Status: row.Status, Code: code, Detail: row.Detail, RetryAfter: row.RetryAfter,
			again: row.Again}
		all[code].makeHead()
	}
	return all
}()

// refusal returns a copy of the table's row of a code.
func refusal(code string) *Problem {
	p := *problems[code]
	return &p
}

func (p *Problem) of(c *keystore.Caller) *Problem {
	p.caller = c
	return p
}

// Error makes a *Problem an error, for [Options].Authenticate to return.
func (p *Problem) Error() string { return "middleware: " + p.Code + ": " + p.Detail }

const problemType = "application/problem+json"

// append writes the body by hand, because encoding/json would cost more than
// the rest of the stage.
func (p *Problem) append(b []byte) []byte {
	if h := p.head; h != nil && !p.quota && h.status == p.Status && h.detail == p.Detail && h.code == p.Code {
		b = append(b, h.body...)
	} else {
		b = p.appendHead(b)
	}
	b = appendMember(b, "request_id", p.requestID)
	b = appendMember(b, "policy", p.Policy)
	if p.quota {
		b = append(appendString(append(b, `,"violated-policies":[`...), p.Policy), ']')
	}
	if !p.ResetsAt.IsZero() {
		b = appendMember(b, "resets_at", p.ResetsAt.UTC().Format(time.RFC3339))
	}
	for i, name := range p.Missing {
		b = append(b, [...]string{`,"missing_scopes":[`, `,`}[min(i, 1)]...)
		b = appendString(b, string(name))
	}
	if len(p.Missing) > 0 {
		b = append(b, ']')
	}
	if p.OriginalStatus != 0 {
		b = strconv.AppendInt(append(b, `,"original_status":`...), int64(p.OriginalStatus), 10)
	}
	b = appendMember(b, "original_location", p.OriginalLocation)
	return append(b, '}', '\n')
}

func (p *Problem) appendHead(b []byte) []byte {
	if p.quota {
		b = append(b, `{"type":"https://iana.org/assignments/http-problem-types#quota-exceeded","title":"Quota Exceeded"`...)
	} else {
		b = append(b, `{"type":"about:blank"`...)
		b = appendMember(b, "title", http.StatusText(p.Status))
	}
	b = strconv.AppendInt(append(b, `,"status":`...), int64(p.Status), 10)
	b = appendMember(b, "detail", p.Detail)
	return appendMember(b, "code", p.Code)
}

// A head is the start of a body, made in advance for the problems that are sent
// often: a refusal has to be cheaper than what it refuses. It depends on
// nothing but these fields.
type head struct {
	status       int
	detail, code string
	body         string
}

func (p *Problem) makeHead() {
	p.head = &head{p.Status, p.Detail, p.Code, string(p.appendHead(nil))}
}

// appendMember appends a member of an object, unless its value is "".
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	return appendString(b, value)
}

// appendString appends s as a JSON string.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c-0x20 >= utf8.RuneSelf-0x20 || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always marshals
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
