package main

import (
	"bufio"
	"cmp"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// figures are those of one peer in one row, in the order of the rounds.
type figures map[string][]float64 // by unit

// A table has the figures of each peer in each row, both in the order in which
// they were first met.
type table struct {
	rows, peers []string
	at          map[string]map[string]figures // row, peer
}

// A run is what its programs have printed.
type run struct {
	about  string // when, where and how
	paths  table
	growth table // rows are numbers of entries, peers are stores
	// rows are paths and numbers of organizations, peers are followed by numbers
	// of processors
	processors table
	servers    []server
}

// A server was measured beside another one, in turns.
type server struct {
	method, peer, base, connections string
	ratios                          []float64 // of requests a second, turn by turn
}

var (
	benchmark = regexp.MustCompile(
		`^Benchmark(\w+?)(?:/(?:peer|store)=([^/]+)/(?:path|entries)=(\S+?))?(-\d+)?\s+\d+\s+(.*)$`)
	aTurn    = regexp.MustCompile(`^(\S+): (\d+) requests/s, .*?(, \d+ refused)?$`)
	compared = regexp.MustCompile(`^(GET|POST) (\S+) / (\S+), (\d+) connections: `)
	aboutRun = regexp.MustCompile(`^\d{4}-\d\d-\d\d, commit `)
)

func (t *table) add(row, peer string, measured []string) {
	if t.at == nil {
		t.at = make(map[string]map[string]figures)
	}
	if t.at[row] == nil {
		t.at[row] = make(map[string]figures)
		t.rows = append(t.rows, row)
	}
	f := t.at[row][peer]
	if f == nil {
		f = make(figures)
		t.at[row][peer] = f
	}
	if !slices.Contains(t.peers, peer) {
		t.peers = append(t.peers, peer)
	}
	for i := 0; i+1 < len(measured); i += 2 {
		if v, err := strconv.ParseFloat(measured[i], 64); err == nil {
			f[measured[i+1]] = append(f[measured[i+1]], v)
		}
	}
}

// read passes over the lines that it does not know. A turn in which the server
// refused requests is no turn.
func read(from io.Reader) (r run) {
	turns := make(map[string][]float64) // by peer
	for in := bufio.NewScanner(from); in.Scan(); {
		line := in.Text()
		if m := benchmark.FindStringSubmatch(line); m != nil {
			name, peer, row, measured := m[1], m[2], m[3], strings.Fields(m[5])
			switch {
			case name == "Growth":
				r.growth.add(row, peer, measured)
			case name == "Processors":
				r.processors.add(row, peer+" "+cmp.Or(strings.TrimPrefix(m[4], "-"), "1"), measured)
			case row != "":
				if strings.HasPrefix(row, "take-") || strings.HasSuffix(row, "-parallel") {
					row += " " + cmp.Or(strings.TrimPrefix(m[4], "-"), "1") + " cpu"
				}
				r.paths.add(row, peer, measured)
			}
		} else if m := aTurn.FindStringSubmatch(line); m != nil && m[3] == "" {
			rate, _ := strconv.ParseFloat(m[2], 64)
			turns[m[1]] = append(turns[m[1]], rate)
		} else if m := compared.FindStringSubmatch(line); m != nil {
			s := server{method: m[1], peer: m[2], base: m[3], connections: m[4]}
			s.ratios = ratios(turns[s.peer], turns[s.base])
			r.servers = append(r.servers, s)
			clear(turns)
		} else if aboutRun.MatchString(line) {
			r.about = line
		}
	}
	return r
}

// ratios divides the figures of each round.
func ratios(ours, theirs []float64) (each []float64) {
	for i := range min(len(ours), len(theirs)) {
		each = append(each, ours[i]/theirs[i])
	}
	return each
}

func median(v []float64) float64 { return quantile(v, 0.5) }

func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(v))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
