package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
)

// served reports whether a response shows what the read shows: it has all that
// the response to the read has, and an unknown path gets something else.
func (p *probe) served(a answer) bool { return p.shows(a, p.sample) }

// shows is served for the response to another GET.
func (p *probe) shows(a, sample answer) bool {
	if a.to.method == "HEAD" {
		return (a.mediaType() == "" || a.mediaType() == sample.mediaType()) && p.done(a)
	}
	if a.body == "" || a.mediaType() != sample.mediaType() {
		return false
	}
	got := members(a.body)
	for name := range members(sample.body) {
		if !got[name] {
			return false
		}
	}
	return p.done(a)
}

// done reports whether a request was carried out. An app that answers every
// path the same, such as with its page, has not done it.
func (p *probe) done(a answer) bool {
	if !a.ok() || a.mediaType() == "text/html" {
		return false
	}
	control := p.do(a.to.at(unknown(a.to.path)))
	return control.status != a.status || control.mediaType() != a.mediaType() ||
		disjoint(members(control.body), members(a.body))
}

var word = regexp.MustCompile(`[A-Za-z]{2,}`)

// unknown returns a path like this one that leads nowhere.
func unknown(path string) string {
	path, query, _ := strings.Cut(path, "?")
	words := word.FindAllStringIndex(path, -1)
	if words == nil {
		return path + "contract-unknown"
	}
	last := words[len(words)-1]
	return path[:last[0]] + "contract-unknown" + path[last[1]:] + "?" + query
}

// members returns the names in a JSON object.
func members(body string) map[string]bool {
	var object map[string]json.RawMessage
	if json.Unmarshal([]byte(body), &object) != nil {
		return nil
	}
	names := make(map[string]bool)
	for name := range object {
		names[name] = true
	}
	return names
}

// disjoint reports whether two objects have members, and none in common.
func disjoint(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return false
		}
	}
	return len(a) > 0 && len(b) > 0
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
		path + ".json", path + "/contract.css", path + ".css", path + "%0A", path + "%ff",
		base + "/%25" + fmt.Sprintf("%02X", rest[0]) + rest[1:], path + "/", "/" + path, path + "//", path + "%2F",
		base + "/./" + rest, base + "/x/../" + rest, path + "/.", path + ";x", path + "%20",
		strings.ToUpper(path), base + "/" + strings.ToUpper(rest[:1]) + rest[1:],
		base + "/%" + fmt.Sprintf("%02X", rest[0]) + rest[1:],
	}
	if base != "" {
		version := "2"
		if strings.HasSuffix(base, version) {
			version = "3"
		}
		all = append(all, base[:len(base)-1]+version+"/"+rest, base+"//"+rest, base+"%2F"+rest, base+"%5C"+rest)
	}
	if i := strings.LastIndex(base, "/"); i > 0 {
		all = append(all, base[:i]+"%2F"+base[i+1:]+"/"+rest)
	}
	for i := range all {
		all[i] += query
	}
	return all
}
