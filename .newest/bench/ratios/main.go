// Ratios writes the tables of BENCHMARKS.md and draws its pictures, from what
// ../page has printed. benchstat compares peers.
//
//	ratios FOLDER <page.txt
package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := writePage(os.Args[1], read(os.Stdin)); err != nil {
		log.Fatal(err)
	}
}

// A run is what its programs have printed.
type run struct {
	about   string            // when, where and how
	figures map[string]sample // by what was measured, and the unit
	missing []string          // what was asked for and is not there
}

var benchmark = regexp.MustCompile(`^Benchmark(\S+?)(-\d+)?\s+\d+\s+(.*)$`)

// read passes over the lines that it does not know.
func read(from io.Reader) *run {
	r := &run{figures: map[string]sample{}}
	for in := bufio.NewScanner(from); in.Scan(); {
		if m := benchmark.FindStringSubmatch(in.Text()); m != nil {
			name, measured := m[1], strings.Fields(m[3])
			if strings.HasPrefix(name, "Processors") {
				name += m[2]
			}
			for i := 0; i+1 < len(measured); i += 2 {
				v, _ := strconv.ParseFloat(measured[i], 64)
				r.figures[name+" "+measured[i+1]] = append(r.figures[name+" "+measured[i+1]], v)
			}
		} else if strings.Contains(in.Text(), ", commit ") {
			r.about = in.Text()
		}
	}
	return r
}

// get notes what is not there.
func (r *run) get(what string) sample {
	if r.figures[what] == nil {
		r.missing = append(r.missing, what)
		return sample{1}
	}
	return r.figures[what]
}

// A sample has a figure of each round.
type sample []float64

func (s sample) quantile(q float64) float64 {
	s = append(slices.Sorted(slices.Values(s)), math.MaxFloat64, math.MaxFloat64) // that of no figure
	at := q * float64(len(s)-3)
	i := int(at)
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}

func (s sample) median() float64 { return s.quantile(0.5) }

// String is the median and the middle half.
func (s sample) String() string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", s.median(), s.quantile(0.25), s.quantile(0.75))
}

// of divides the figures of each round.
func (s sample) of(base sample) (ratios sample) {
	for i := range min(len(s), len(base)) {
		ratios = append(ratios, s[i]/base[i])
	}
	return ratios
}

// What the page shows, and what of it was to be reached (0: nothing was set).
var (
	requestRows = []struct {
		path, name string
		aim        float64
	}{
		{"get-hot", "GET, one key", 0.40},
		{"get-10k-keys", "GET, 10,000 keys", 1},
		{"get-100k-keys", "GET, 100,000 keys", 1},
		{"401-missing", "401, no key", 0.50},
		{"401-unknown", "401, unknown key", 0.50},
		{"403", "403", 0.50},
		{"429", "429", 0.50},
		{"post-fresh", "create with a fresh key", 0.60},
		{"post-bursts", "the same, with empty stores", 0.60},
		{"post-replay", "its repeat", 0.50},
	}
	serverRows = []struct {
		peer, method, connections, name, server string
		aim                                     float64
	}{
		{"sallyport", "GET", "32", "GET, stores in memory", "sallyport", 0.88},
		{"echo", "GET", "32", "GET, stores in memory", "echo", 0},
		{"hand-lru", "GET", "32", "GET, stores in memory", "by hand", 0},
		{"sallyport", "POST", "32", "create, in memory", "sallyport", 0.65},
		{"sethvargo+hand", "POST", "32", "create, in memory", "sethvargo+hand", 0},
		{"hand-lru", "POST", "32", "create, in memory", "by hand", 0},
		{"redis-ahead", "GET", "32", "GET, Redis", "Ahead of 100 ms", 0.80},
		{"redis", "GET", "32", "GET, Redis", "without Ahead", 0},
		{"redis-ahead", "POST", "32", "create, Redis", "Ahead of 100 ms", 0.36},
		{"redis-ahead", "POST", "128", "create, Redis, 128 connections", "Ahead of 100 ms", 0.45},
		{"postgres-pgx-joined", "POST", "16", "create, Postgres, 16 connections", "joined, idempgx", 0.68},
		{"postgres-joined", "POST", "16", "create, Postgres, 16 connections", "joined, idemsql", 0.60},
		{"postgres-leased", "POST", "16", "create, Postgres, 16 connections", "leased, idemsql", 0},
		{"postgres-pgx-joined", "POST", "64", "create, Postgres, 64 connections", "joined, idempgx", 0.68},
		{"postgres-joined", "POST", "64", "create, Postgres, 64 connections", "joined, idemsql", 0.60},
	}
	classes      = map[string]string{"echo": "peer", "sethvargo+hand": "peer", "by hand": "hand"}    // else ours
	compositions = []string{"chi+httprate", "hlog+lru+ulule", "sethvargo+hand", "gin+ulule", "echo"} // on net/http
	stores       = [][2]string{
		{"keystore.Cached", "`keystore.Cached`, known key"},
		{"ratelimit.Memory", "`ratelimit.Memory`, one decision"},
		{"idem.Memory-replay", "`idem.Memory`, repeat"},
		{"idem.Memory-fresh", "`idem.Memory`, claim and settle"},
	}
)

// writePage writes the parts of BENCHMARKS.md between <!-- NAME --> and
// <!-- end -->, and the pictures. A run that lacks a figure writes nothing.
func writePage(folder string, r *run) error {
	before, err := os.ReadFile(filepath.Join(folder, "BENCHMARKS.md"))
	parts, files, page := map[string]string{"run": "Measured " + r.about + ".\n"}, map[string]string{}, string(before)
	parts["requests"], files["requests.svg"] = requests(r)
	parts["servers"], files["servers.svg"] = servers(r)
	parts["growth"], files["growth.svg"] = growth(r)
	parts["processors"] = processors(r)
	for name, text := range parts {
		part := regexp.MustCompile("(?s)(<!-- " + name + " -->\n).*?(<!-- end -->)")
		if !part.MatchString(page) {
			r.missing = append(r.missing, "a page with the part "+name)
		}
		page = part.ReplaceAllString(page, "${1}"+text+"${2}")
	}
	if err != nil || r.missing != nil {
		return errors.Join(err, fmt.Errorf("the run has not %s", strings.Join(r.missing, ", ")))
	}
	files["BENCHMARKS.md"] = page
	for name, text := range files {
		err = errors.Join(err, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	return err
}

func requests(r *run) (table, picture string) {
	var groups []group
	var toBest, toHand, pieces sample
	table = "| request | best composition | ours, of it | ours, of by hand | aim |\n|---|---|--:|--:|--:|\n"
	for i, row := range requestRows {
		name := func(peer string) string { return "Path/peer=" + peer + "/path=" + row.path + " cpu-ns/op" }
		best := slices.MinFunc(compositions, func(a, b string) int {
			return cmp.Compare(r.figures[name(a)].median(), r.figures[name(b)].median())
		})
		us, peer, hand := r.get(name("sallyport")), r.get(name(best)), r.get(name("hand-lru"))
		of, ofHand := us.of(peer), us.of(hand)
		table += fmt.Sprintf("| %s | %s | %s | %s |%s |\n", row.name, best, of, ofHand, aim(row.aim, of, -1))
		groups = append(groups, group{row.name, []bar{{"sallyport", "ours", of}, {best, "peer", peer.of(peer)},
			{"by hand", "hand", hand.of(peer)}}})
		toBest, toHand = append(toBest, of.median()), append(toHand, ofHand.median())
		if i < 2 {
			pieces = append(pieces, r.get(name("sallyport-pieces")).of(us).median())
		}
	}
	between := func(s sample) string { return fmt.Sprintf("%.2f to %.2f", s.quantile(0), s.quantile(1)) }
	return table + fmt.Sprintf("\n**So**: of the processor time of the best composition a GET takes %s, a refusal %s,\n"+
		"a create or its repeat %s; of that of code by hand all take %s. As pieces a GET takes\n"+
		"%s of what it takes in an API.\n",
		between(toBest[:3]), between(toBest[3:7]), between(toBest[7:]), between(toHand), between(pieces),
	), barChart("Processor time of a request, of the best composition on net/http", groups)
}

func servers(r *run) (table, picture string) {
	groups, lost := []group{}, []any{}
	table = "| request | with | of bare | aim |\n|---|---|--:|--:|\n"
	for i, row := range serverRows {
		of := r.get("Loopback/peer=" + row.peer + "/method=" + row.method + "/connections=" + row.connections + " ratio")
		table += fmt.Sprintf("| %s | %s | %s |%s |\n", row.name, row.server, of, aim(row.aim, of, 1))
		if i == 0 || row.name != serverRows[i-1].name {
			groups = append(groups, group{name: row.name})
		}
		g := &groups[len(groups)-1]
		g.bars = append(g.bars, bar{row.server, cmp.Or(classes[row.server], "ours"), of})
		lost = append(lost, 100-100*of.median())
	}
	return table + fmt.Sprintf("\n**So**: with all in memory a server answers %.0f %% fewer GETs a second "+
			"than a bare one,\nand %.0[4]f %% fewer creates; with Redis and `Ahead` %.0[7]f %% and %.0[9]f %%; "+
			"of creates in Postgres, joined by `idempgx`, %.0[11]f %%.\n", lost...),
		barChart("Requests a second, of the bare server", groups)
}

func growth(r *run) (table, picture string) {
	var lines []group
	table = "| nanoseconds a call | 10³ | 10⁴ | 10⁵ | 10⁶ | bytes each |\n|---|--:|--:|--:|--:|--:|\n"
	for _, row := range stores {
		l, bytes := group{name: strings.ReplaceAll(row[1], "`", "")}, sample(nil)
		table += "| " + row[1] + " |"
		for i, power := range []string{"10³", "10⁴", "10⁵", "10⁶"} {
			name := "Growth/store=" + row[0] + "/entries=1000" + "000"[:i]
			ns := r.get(name + " cpu-ns/op")
			table += fmt.Sprintf(" %.0f |", ns.median())
			l.bars, bytes = append(l.bars, bar{power, "", ns}), append(bytes, r.get(name+" bytes/entry").median())
		}
		table += fmt.Sprintf(" %.0f to %.0f |\n", bytes.quantile(0), bytes.quantile(1))
		lines = append(lines, l)
	}
	return table, lineChart("Processor time of a call, by how much the store holds", lines)
}

// processors says how many times as many requests two of them serve as one.
func processors(r *run) string {
	table := "| request | processors | sallyport | by hand | bare | sallyport, 1,000 organizations | by hand | bare |\n" +
		"|---|--:|--:|--:|--:|--:|--:|--:|\n"
	for _, row := range [][2]string{{"get", "GET"}, {"post-fresh", "create"}, {"post-replay", "repeat"}} {
		table += "| " + row[1] + " | 2"
		for i := range 6 {
			name := fmt.Sprintf("Processors/peer=%s/path=%s/organizations=%d", []string{"sallyport", "hand-lru", "bare"}[i%3],
				row[0], []int{1, 1000}[i/3])
			table += " | " + r.get(name+" ns/op").of(r.get(name+"-2 ns/op")).String()
		}
		table += " |\n"
	}
	return table
}

// aim is reached if the median as it is shown is on that side.
func aim(aim float64, s sample, side float64) string {
	if aim == 0 {
		return ""
	}
	missed := side*math.Round(s.median()*100) < side*math.Round(aim*100)
	return fmt.Sprintf(" %.2f%s", aim, map[bool]string{true: " ✗"}[missed])
}
