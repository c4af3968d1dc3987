package arch

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	testName = regexp.MustCompile(`\b(Test[A-Z]\w*)(\.\.\.)?`) // with dots, those that begin so
	testFunc = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	// notInAnchors is what a heading has and its anchor has not.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// tree returns the texts of all files of the project that end in one of some ways, by path.
func tree(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	root, out := filepath.Join("..", ".."), map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if name := d.Name(); d.IsDir() && strings.HasPrefix(name, ".") && len(name) > 2 {
			return fs.SkipDir // of tools
		}
		if d.IsDir() || !slices.Contains(endings, filepath.Ext(path)) {
			return nil
		}
		text, err := os.ReadFile(path)
		out[path] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// anchors are the places of a page that links may name.
func anchors(page string) (out []string) {
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		out = append(out, strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(m[1])), ""), " ", "-"))
	}
	return out
}

// badLinks returns the links of a page that lead nowhere.
func badLinks(pages map[string]string, path string) (bad []string) {
	for _, m := range link.FindAllStringSubmatch(pages[path], -1) {
		if strings.Contains(m[1], ":") {
			continue // elsewhere
		}
		file, anchor, _ := strings.Cut(m[1], "#")
		to := path
		if file != "" {
			to = filepath.Join(filepath.Dir(path), file)
		}
		page, ok := pages[to]
		if _, err := os.Stat(to); !ok && err != nil || ok && anchor != "" && !slices.Contains(anchors(page), anchor) {
			bad = append(bad, m[1])
		}
	}
	return bad
}

func TestLinksLeadToPages(t *testing.T) {
	pages := tree(t, ".md")
	if len(pages) < 50 {
		t.Fatalf("only %d pages were found", len(pages))
	}
	for path := range pages {
		for _, l := range badLinks(pages, path) {
			t.Errorf("%s: the link %s leads nowhere", path, l)
		}
	}
	pages["here.md"] = "# A `heading`, with words\n[a](#a-heading-with-words) [b](#another) [c](nowhere.md) [d](links_test.go) [e](https://example.test/#x)"
	if bad := badLinks(pages, "here.md"); !slices.Equal(bad, []string{"#another", "nowhere.md"}) {
		t.Errorf("bad links of an example are %q", bad)
	}
}

func TestDocsNameExistingTests(t *testing.T) {
	var known []string
	for path, text := range tree(t, ".go") {
		if strings.HasSuffix(path, "_test.go") {
			for _, m := range testFunc.FindAllStringSubmatch(text, -1) {
				known = append(known, m[1])
			}
		}
	}
	for path, text := range tree(t, ".md") {
		for _, m := range testName.FindAllStringSubmatch(text, -1) {
			is := func(name string) bool { return name == m[1] || m[2] != "" && strings.HasPrefix(name, m[1]) }
			if !slices.ContainsFunc(known, is) {
				t.Errorf("%s names %s, which there is not", path, m[0])
			}
		}
	}
}

// TestDocsPagesAreReachable by links, from the list of pages.
func TestDocsPagesAreReachable(t *testing.T) {
	pages := tree(t, ".md")
	start := filepath.Join("..", "..", "docs", "README.md")
	reached, next := map[string]bool{start: true}, []string{start}
	for len(next) > 0 {
		from := next[0]
		next = next[1:]
		for _, m := range link.FindAllStringSubmatch(pages[from], -1) {
			file, _, _ := strings.Cut(m[1], "#")
			if to := filepath.Join(filepath.Dir(from), file); pages[to] != "" && !reached[to] {
				reached[to] = true
				next = append(next, to)
			}
		}
	}
	for path := range pages {
		if strings.HasPrefix(path, filepath.Join("..", "..", "docs")+"/") && !reached[path] {
			t.Errorf("no link leads from docs/README.md to %s", path)
		}
	}
}
