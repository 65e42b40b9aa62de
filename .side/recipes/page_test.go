package recipes

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	pageFile  = regexp.MustCompile(`\(\.\./\.side/recipes/([a-z0-9]+\.go)\)`)
	pageBlock = regexp.MustCompile("(?s)\n```go\n(.*?\n)```\n")
)

// TestPage: each part of the page shows lines of the file that it names, and
// each recipe has a section.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../.github/RECIPES.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, section := range strings.Split(string(page), "\n## ") {
		title, _, _ := strings.Cut(section, "\n")
		blocks := pageBlock.FindAllStringSubmatch(section, -1)
		file := pageFile.FindStringSubmatch(section)
		if len(blocks) > 0 && file == nil {
			t.Fatalf("%s: the section names no file", title)
		}
		for _, block := range blocks {
			source, err := os.ReadFile(file[1])
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(source), "\n"+block[1]) {
				t.Errorf("%s: these lines are not in %s:\n%s", title, file[1], block[1])
			}
			shown[file[1]] = true
		}
	}
	for _, r := range recipes {
		if !shown[r.file] {
			t.Errorf("the page does not show %s", r.file)
		}
	}
}
