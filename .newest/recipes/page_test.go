package recipes

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const pages = "../../.github/"

var (
	pageFile    = regexp.MustCompile(`\((\.\./[a-z0-9_./]+\.go)\)`)
	pageExample = regexp.MustCompile("`(Example\\w*)`")
	pageBlock   = regexp.MustCompile("(?s)\n```go\n(.*?\n)```\n")
)

// TestPages: each part of the pages shows lines of the file that it names
// first, the examples that it names are in a file that it links to, and each
// recipe has a section.
func TestPages(t *testing.T) {
	shown := shownOf(t, "RECIPES.md")
	for _, r := range recipes {
		if !shown["../.newest/recipes/"+r.file] {
			t.Errorf("the page does not show %s", r.file)
		}
	}
	shownOf(t, "GUIDES.md")
	shownOf(t, "OPERATING.md")
}

// TestTheStepsOfTheGuides: the steps of a workflow that the guides show are
// those of the tested one, and YAML.
func TestTheStepsOfTheGuides(t *testing.T) {
	guides, err := os.ReadFile(pages + "GUIDES.md")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile("../../middleware/contracttest/cmd/contractcheck/testdata/workflow.yml")
	if err != nil {
		t.Fatal(err)
	}
	_, shown, _ := strings.Cut(string(guides), "\n```yaml\n")
	shown, _, _ = strings.Cut(shown, "```\n")
	type step struct{ Run, Uses string }
	var steps []step
	if err := yaml.Unmarshal([]byte(shown), &steps); err != nil || !strings.Contains(string(whole), shown) {
		t.Errorf("the guides show steps that the workflow does not have, or that are not YAML: %v\n%s", err, shown)
	}
	var workflow struct {
		Jobs map[string]struct{ Steps []step }
	}
	if err := yaml.Unmarshal(whole, &workflow); err != nil {
		t.Fatal(err)
	}
	for _, s := range append(steps, workflow.Jobs["contract"].Steps...) {
		if (s.Run == "") == (s.Uses == "") {
			t.Errorf("a step runs %q and uses %q", s.Run, s.Uses)
		}
	}
	if len(steps) < 3 {
		t.Errorf("the guides show %d steps", len(steps))
	}
}

// shownOf returns the files that a page shows.
func shownOf(t *testing.T, name string) (shown map[string]bool) {
	t.Helper()
	page, err := os.ReadFile(pages + name)
	if err != nil {
		t.Fatal(err)
	}
	shown = map[string]bool{}
	for _, section := range strings.Split(string(page), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		files := pageFile.FindAllStringSubmatch(section, -1)
		blocks := pageBlock.FindAllStringSubmatch(section, -1)
		if files == nil {
			if len(blocks) > 0 {
				t.Fatalf("%s: the section names no file", title)
			}
			continue
		}
		linked := make([]string, len(files))
		for i, file := range files {
			source, err := os.ReadFile(pages + file[1])
			if err != nil {
				t.Fatal(err)
			}
			linked[i] = string(source)
		}
		for _, example := range pageExample.FindAllStringSubmatch(section, -1) {
			if !strings.Contains(strings.Join(linked, ""), "\nfunc "+example[1]+"() {\n") {
				t.Errorf("%s: there is no %s in %v", title, example[1], files)
			}
		}
		for _, block := range blocks {
			lines := "\n" + linked[0]
			for depth := 0; depth < 3 && !strings.Contains(lines, "\n"+block[1]); depth++ {
				lines = strings.ReplaceAll(lines, "\n\t", "\n") // the page shows the inside of a function
			}
			if !strings.Contains(lines, "\n"+block[1]) {
				t.Errorf("%s: these lines are not in %s:\n%s", title, files[0][1], block[1])
			}
			shown[files[0][1]] = true
		}
	}
	return shown
}
