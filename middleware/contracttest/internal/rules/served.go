package rules

import (
	"fmt"
	"net/http"
	"strings"
)

// sequence sends requests one after the other on one connection, and all of
// them again when one was rate-limited.
func (p *probe) sequence(requests ...request) []answer {
	closed := 0
	for range maxRetries {
		p.pause()
		answers, denied := p.onOneConnection(requests)
		switch {
		case denied:
			p.limited(answers[len(answers)-1])
		case len(answers) == len(requests):
			return answers
		case closed == 2 && len(answers) == 0:
			p.fault(answer{to: requests[0]}, "got no response on a connection of its own")
		case closed == 2:
			p.vacuousf("the server closes its connections after a response")
		default:
			closed++
		}
	}
	p.unclearf("the server went on answering 429 after %d waits", maxRetries)
	panic("not reached")
}

func (p *probe) onOneConnection(requests []request) (answers []answer, denied bool) {
	c := p.dial()
	defer c.Close()
	for _, r := range requests {
		c.send(p.text(r))
		a, err := c.next(r.method)
		if err != nil {
			return answers, false
		}
		a.to = r
		p.note(a)
		p.saw(a)
		answers = append(answers, a)
		if a.status == http.StatusTooManyRequests {
			return answers, true
		}
	}
	return answers, false
}

func separator(path string) string {
	if strings.Contains(path, "?") {
		return "&"
	}
	return "?"
}

// spellings returns other ways to write a path.
func spellings(base, path string) []string {
	path, query, _ := strings.Cut(path, "?")
	if query != "" {
		query = "?" + query
	}
	rest := strings.TrimPrefix(path, base+"/")
	all := []string{
		path + "/", "/" + path, base + "//" + rest, path + "//",
		base + "%2F" + rest, path + "%2F", strings.Replace(base, "/v", "%2Fv", 1) + "/" + rest,
		base + "/./" + rest, base + "/x/../" + rest, path + "/.", path + ";x", path + "%20",
		strings.ToUpper(path), base + "/" + strings.ToUpper(rest[:1]) + rest[1:],
		base + "/%" + fmt.Sprintf("%02X", rest[0]) + rest[1:],
	}
	for i := range all {
		all[i] += query
	}
	return all
}

// served reports whether a response is what a live key gets for the read. The
// page of an app that answers every path is not, nor is any other answer that
// an unknown path gets as well.
func (p *probe) served(a answer, path string) bool {
	if !a.ok() || a.mediaType() != p.sample.mediaType() {
		return false
	}
	if a.body == p.sample.body {
		return true
	}
	if a.mediaType() == "text/html" {
		return false
	}
	clean, _, _ := strings.Cut(p.target.Read, "?")
	name := clean[strings.LastIndexByte(clean, '/')+1:]
	unknown := path + "x"
	if len(name) > 2 {
		unknown = strings.Replace(path, name[1:], "contract-unknown", 1)
	}
	control := p.do(get(unknown, ""))
	return !control.ok() || control.mediaType() != a.mediaType() || disjoint(members(control.body), members(a.body))
}

// done reports whether a method was carried out. An app that answers every
// path the same has not done it.
func (p *probe) done(a answer) bool {
	if !a.ok() || a.mediaType() == "text/html" {
		return false
	}
	unknown := get(p.target.Base+"/contract-unknown", "")
	unknown.method = a.to.method
	control := p.do(unknown.anew())
	return control.status != a.status || control.mediaType() != a.mediaType() || disjoint(members(control.body), members(a.body))
}

// shows reports whether a response has all that the response to a read has.
func (p *probe) shows(a answer) bool {
	if !a.ok() || a.body == "" || a.mediaType() == "text/html" {
		return false
	}
	if a.body == p.sample.body {
		return true
	}
	want, got := members(p.sample.body), members(a.body)
	for name := range want {
		if !got[name] {
			return false
		}
	}
	return len(want) > 0 && p.done(a)
}

// servedHead is served for HEAD, whose response has no body and may lack what
// describes one.
func (p *probe) servedHead(a answer) bool {
	if a.ok() && a.mediaType() == "" {
		unknown := get(p.target.Base+"/contract-unknown", "")
		unknown.method = "HEAD"
		return !p.do(unknown).ok()
	}
	if !a.ok() || a.mediaType() != p.sample.mediaType() {
		return false
	}
	return a.mediaType() != "text/html" || a.header.Get("Content-Length") == p.sample.header.Get("Content-Length")
}
