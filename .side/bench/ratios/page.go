package main

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What the page shows, and what of it was to be reached (0: nothing was set).
var (
	requestTitle = "Processor time of a request, of the best composition on net/http"
	requestRows  = []struct {
		row, name string
		aim       float64
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

	serverTitle = "Requests a second, of the bare server"
	serverRows  = []struct {
		name, method, connections string
		peers                     []serverPeer
	}{
		{"GET, stores in memory", "GET", "32", []serverPeer{
			{ours, "", 0.88}, {"echo", "", 0}, {byHand, "by hand", 0}}},
		{"create, in memory", "POST", "32", []serverPeer{
			{ours, "", 0.65}, {"sethvargo+hand", "", 0}, {byHand, "by hand", 0}}},
		{"GET, Redis", "GET", "32", []serverPeer{{"redis-ahead", "Ahead of 100 ms", 0.80}, {"redis", "without Ahead", 0}}},
		{"create, Redis", "POST", "32", []serverPeer{{"redis-ahead", "Ahead of 100 ms", 0.36}}},
		{"create, Redis, 128 connections", "POST", "128", []serverPeer{{"redis-ahead", "Ahead of 100 ms", 0.45}}},
		{"create, Postgres, 16 connections", "POST", "16", onPostgres},
		{"create, Postgres, 64 connections", "POST", "64", onPostgres[:2]}, // leased refuses some
	}
	onPostgres = []serverPeer{
		{"postgres-pgx-joined", "joined, idempgx", 0.68},
		{"postgres-joined", "joined, idemsql", 0.60},
		{"postgres-leased", "leased, idemsql", 0},
	}

	growthTitle = "Processor time of a call, by how much the store holds"
	growthRows  = [][2]string{
		{"keystore.Cached", "`keystore.Cached`, known key"},
		{"ratelimit.Memory", "`ratelimit.Memory`, one decision"},
		{"idem.Memory-replay", "`idem.Memory`, repeat"},
		{"idem.Memory-fresh", "`idem.Memory`, claim and settle"},
	}

	processorRows  = [][2]string{{"get", "GET"}, {"post-fresh", "create"}, {"post-replay", "repeat"}}
	processorPeers = []string{ours, byHand, "bare"}
	organizations  = []string{"/organizations=1", "/organizations=1000"}
)

type serverPeer struct {
	peer, name string
	aim        float64
}

// base names the server that a peer is measured beside.
func (p serverPeer) base() string {
	for _, of := range []string{"postgres-pgx", "postgres"} {
		if strings.HasPrefix(p.peer, of) {
			return of + "-bare"
		}
	}
	return "bare"
}

// writePage writes the parts of BENCHMARKS.md between <!-- NAME --> and
// <!-- end -->, and the pictures. A run that lacks a figure writes nothing.
func writePage(folder string, r run) error {
	file := filepath.Join(folder, "BENCHMARKS.md")
	before, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	const metric = "cpu-ns/op"
	page, missing := string(before), lacks(r, metric)
	for name, text := range map[string]string{
		"run":      "Measured " + r.about + ".\n",
		"requests": requestTable(r.paths, metric),
		"servers":  serverTable(r.servers),
		"growth":   growthTable(r.growth, metric),

		"processors": processorTable(r.processors),
	} {
		head, rest, begun := strings.Cut(page, "<!-- "+name+" -->\n")
		_, tail, ended := strings.Cut(rest, "<!-- end -->")
		if !begun || !ended {
			missing = append(missing, fmt.Errorf("%s has no part %s", file, name))
			continue
		}
		page = head + "<!-- " + name + " -->\n" + text + "<!-- end -->" + tail
	}
	if missing != nil {
		return errors.Join(missing...)
	}
	for name, text := range map[string]string{
		"requests.svg":  barChart(requestTitle, requestGroups(r.paths, metric)),
		"servers.svg":   barChart(serverTitle, serverGroups(r.servers)),
		"growth.svg":    lineChart(growthTitle, growthLines(r.growth, metric)),
		"BENCHMARKS.md": page,
	} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// lacks says which figures of the page a run does not have.
func lacks(r run, metric string) (missing []error) {
	need := func(there bool, what ...any) {
		if !there {
			missing = append(missing, fmt.Errorf("the run has not %s", fmt.Sprint(what...)))
		}
	}
	need(r.about != "", "what it ran on")
	for _, row := range requestRows {
		need(len(r.paths.at[row.row][ours][metric]) > 0, row.row)
	}
	for _, row := range serverRows {
		for _, p := range row.peers {
			need(found(r.servers, row.method, row.connections, p) != nil,
				row.method, " ", p.peer, " / ", p.base(), ", ", row.connections, " connections")
		}
	}
	for _, row := range growthRows {
		need(r.growth.at["1000000"][row[0]] != nil, row[0], " with 1000000 entries")
	}
	for _, row := range processorRows {
		for _, of := range organizations {
			for _, peer := range processorPeers {
				need(r.processors.at[row[0]+of][peer+" 2"] != nil, peer, " with two processors: ", row[0], of)
			}
		}
	}
	return missing
}

// requestGroups has ours, the best peer and the one by hand for each row, of the
// best peer.
func requestGroups(t table, metric string) (groups []group) {
	for _, row := range requestRows {
		best, peers := t.best(row.row, metric, false), t.at[row.row]
		if best == "" {
			continue
		}
		g := group{name: row.name}
		for _, p := range [][3]string{{ours, ours, "ours"}, {best, best, "peer"}, {byHand, "by hand", "hand"}} {
			if each := ratios(peers[p[0]][metric], peers[best][metric]); each != nil {
				g.bars = append(g.bars, barOf(p[1], p[2], each))
			}
		}
		groups = append(groups, g)
	}
	return groups
}

func requestTable(t table, metric string) string {
	s := "| request | best composition | ours, of it | ours, of by hand | aim |\n|---|---|--:|--:|--:|\n"
	for _, row := range requestRows {
		best, peers := t.best(row.row, metric, false), t.at[row.row]
		of := ratios(peers[ours][metric], peers[best][metric])
		s += fmt.Sprintf("| %s | %s | %s | %s |%s |\n", row.name, best, spread(of),
			spread(ratios(peers[ours][metric], peers[byHand][metric])), aim(row.aim, hundredths(median(of)) <= row.aim))
	}
	between := func(peer, of string, rows ...int) string {
		var each []float64
		for _, i := range rows {
			row := requestRows[i].row
			base := cmp.Or(of, t.best(row, metric, false))
			if v := ratios(t.at[row][peer][metric], t.at[row][base][metric]); v != nil {
				each = append(each, median(v))
			}
		}
		return fmt.Sprintf("%.2f to %.2f", quantile(each, 0), quantile(each, 1))
	}
	return s + fmt.Sprintf("\n**So**: of the processor time of the best composition a GET takes %s, a refusal %s,\n"+
		"a create or its repeat %s; of that of code by hand all take %s. As pieces a GET takes\n"+
		"%s of what it takes in an API.\n",
		between(ours, "", 0, 1, 2), between(ours, "", 3, 4, 5, 6), between(ours, "", 7, 8, 9),
		between(ours, byHand, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9), between(ours+"-pieces", ours, 0, 1))
}

func found(all []server, method, connections string, p serverPeer) []float64 {
	for _, s := range all {
		if s.method == method && s.connections == connections && s.peer == p.peer && s.base == p.base() {
			return s.ratios
		}
	}
	return nil
}

func serverGroups(all []server) (groups []group) {
	for _, row := range serverRows {
		g := group{name: row.name}
		for _, p := range row.peers {
			class := map[string]string{byHand: "hand", "echo": "peer", "sethvargo+hand": "peer"}[p.peer]
			each := found(all, row.method, row.connections, p)
			g.bars = append(g.bars, barOf(cmp.Or(p.name, p.peer), cmp.Or(class, "ours"), each))
		}
		groups = append(groups, g)
	}
	return groups
}

func serverTable(all []server) string {
	s := "| request | with | of bare | aim |\n|---|---|--:|--:|\n"
	for _, row := range serverRows {
		for _, p := range row.peers {
			each := found(all, row.method, row.connections, p)
			s += fmt.Sprintf("| %s | %s | %s |%s |\n", row.name, cmp.Or(p.name, p.peer), spread(each),
				aim(p.aim, hundredths(median(each)) >= p.aim))
		}
	}
	lost := func(method, connections, peer string) string {
		return fmt.Sprintf("%.0f %%", 100-100*median(found(all, method, connections, serverPeer{peer: peer})))
	}
	return s + fmt.Sprintf("\n**So**: with all in memory a server answers %s fewer GETs a second than a bare one,\n"+
		"and %s fewer creates; with Redis and `Ahead` %s and %s; of creates in Postgres, joined by `idempgx`, %s.\n",
		lost("GET", "32", ours), lost("POST", "32", ours), lost("GET", "32", "redis-ahead"),
		lost("POST", "32", "redis-ahead"), lost("POST", "16", "postgres-pgx-joined"))
}

func growthLines(t table, metric string) (lines []line) {
	for _, row := range growthRows {
		l := line{name: strings.ReplaceAll(row[1], "`", "")}
		for _, entries := range t.rows {
			if v := t.at[entries][row[0]][metric]; v != nil {
				var x float64
				fmt.Sscan(entries, &x)
				l.points = append(l.points, point{x, median(v), quantile(v, 0.25), quantile(v, 0.75)})
			}
		}
		lines = append(lines, l)
	}
	return lines
}

func growthTable(t table, metric string) string {
	s := "| nanoseconds a call |"
	for _, entries := range t.rows {
		var x float64
		fmt.Sscan(entries, &x)
		s += " " + power(x) + " |"
	}
	s += " bytes each |\n|---|" + strings.Repeat("--:|", len(t.rows)+1) + "\n"
	for _, row := range growthRows {
		s += "| " + row[1] + " |"
		var bytes []float64
		for _, entries := range t.rows {
			f := t.at[entries][row[0]]
			s += fmt.Sprintf(" %s |", thousands(median(f[metric])))
			bytes = append(bytes, median(f["bytes/entry"]))
		}
		if low, high := quantile(bytes, 0), quantile(bytes, 1); high-low < 1 {
			s += fmt.Sprintf(" %.0f |\n", high)
		} else {
			s += fmt.Sprintf(" %.0f to %.0f |\n", low, high)
		}
	}
	return s
}

// processorTable says how many times as many requests several processors serve
// as one.
func processorTable(t table) string {
	s := "| request | processors | sallyport | by hand | bare | sallyport, 1,000 organizations | by hand | bare |\n" +
		"|---|" + strings.Repeat("--:|", 1+len(organizations)*len(processorPeers)) + "\n"
	for _, row := range processorRows {
		for _, n := range []string{"2", "4", "8"} {
			if t.at[row[0]+organizations[0]][ours+" "+n] == nil {
				continue // there are not so many
			}
			s += "| " + row[1] + " | " + n
			for _, of := range organizations {
				at := t.at[row[0]+of]
				for _, peer := range processorPeers {
					s += " | " + spread(ratios(at[peer+" 1"]["ns/op"], at[peer+" "+n]["ns/op"]))
				}
			}
			s += " |\n"
		}
	}
	return s
}

// spread is the median and the middle half.
func spread(each []float64) string {
	return fmt.Sprintf("%.2f (%.2f–%.2f)", median(each), quantile(each, 0.25), quantile(each, 0.75))
}

// hundredths rounds as the table does.
func hundredths(v float64) float64 { return math.Round(v*100) / 100 }

func aim(aim float64, reached bool) string {
	switch {
	case aim == 0:
		return ""
	case reached:
		return fmt.Sprintf(" %.2f", aim)
	}
	return fmt.Sprintf(" %.2f ✗", aim)
}

func power(v float64) string {
	return "10" + string([]rune("⁰¹²³⁴⁵⁶⁷⁸⁹")[int(math.Round(math.Log10(v)))%10])
}

func thousands(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%d,%03d", int(v)/1000, int(v)%1000)
	}
	return fmt.Sprintf("%.0f", v)
}

// sortedByEnd puts the line that ends lowest first.
func sortedByEnd(lines []line) []line {
	return slices.SortedFunc(slices.Values(lines), func(a, b line) int {
		if len(a.points) == 0 || len(b.points) == 0 {
			return len(a.points) - len(b.points)
		}
		return cmp.Compare(a.points[len(a.points)-1].mid, b.points[len(b.points)-1].mid)
	})
}
