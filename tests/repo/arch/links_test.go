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
	goTest   = regexp.MustCompile(`go test (?:[^\n\x60\\]|\\\||\\\n)+`)
	argument = regexp.MustCompile(`'[^']*'|[^\s']+`)
	testable = regexp.MustCompile(`(?m)^func ((?:Test|Benchmark|Fuzz)\w*)\(`)
	// notInAnchors is what a heading has and its anchor has not.
	notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}_ -]`)
)

// tree returns the texts of all files of the project that end in one of some ways, by path.
func tree(t *testing.T, endings ...string) map[string]string {
	t.Helper()
	root, out := filepath.Join("..", "..", ".."), map[string]string{}
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

// missing returns the patterns of a "go test" command that match no test of its packages. tests has
// those of each folder.
func missing(command string, tests map[string][]string) (bad []string) {
	args := argument.FindAllString(strings.NewReplacer(`\|`, "|", "\\\n", " ").Replace(command), -1)
	var packages, patterns []string
	for i, arg := range args {
		if strings.HasPrefix(arg, "./") {
			packages = append(packages, arg)
		}
		if i > 0 && slices.Contains([]string{"-run", "-bench", "-fuzz"}, args[i-1]) {
			if p, _, _ := strings.Cut(strings.Trim(arg, "'"), "/"); p != "^$" && p != "XXX" {
				patterns = append(patterns, p)
			}
		}
	}
	for _, p := range patterns {
		re, err := regexp.Compile(p)
		found := err != nil || len(packages) == 0 // a part of a command
		for folder, names := range tests {
			in := slices.ContainsFunc(packages, func(pkg string) bool {
				of, all := strings.CutSuffix(strings.TrimPrefix(pkg, "./"), "...")
				return folder == of || all && strings.HasPrefix(folder+"/", of)
			})
			found = found || in && slices.ContainsFunc(names, re.MatchString)
		}
		if !found {
			bad = append(bad, p)
		}
	}
	return bad
}

func TestDocsCommandsFindTheirTests(t *testing.T) {
	tests, commands := map[string][]string{}, 0
	for path, text := range tree(t, ".go") {
		if folder, err := filepath.Rel(filepath.Join("..", "..", ".."), filepath.Dir(path)); err == nil && strings.HasSuffix(path, "_test.go") {
			for _, m := range testable.FindAllStringSubmatch(text, -1) {
				tests[folder] = append(tests[folder], m[1])
			}
		}
	}
	for path, text := range tree(t, ".md") {
		for _, command := range goTest.FindAllString(text, -1) {
			commands++
			for _, pattern := range missing(command, tests) {
				t.Errorf("%s: %s: there is no %s", path, command, pattern)
			}
		}
	}
	if commands < 50 {
		t.Errorf("only %d commands were found", commands)
	}
	if bad := missing("go test -run '^$' -bench 'Xyz/x' ./tests/...", tests); !slices.Equal(bad, []string{"Xyz"}) {
		t.Errorf("of an example, %q are missing", bad)
	}
}

// TestDocsPagesAreReachable by links, from the list of pages.
func TestDocsPagesAreReachable(t *testing.T) {
	pages := tree(t, ".md")
	start := filepath.Join("..", "..", "..", "docs", "README.md")
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
		if strings.HasPrefix(path, filepath.Join("..", "..", "..", "docs")+"/") && !reached[path] {
			t.Errorf("no link leads from docs/README.md to %s", path)
		}
	}
}
