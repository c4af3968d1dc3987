package embedding

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/leaks"
)

func TestMain(m *testing.M) { leaks.Main(m) }

const root = "../../.."

// TestGuideShowsCodeThatRuns: every block of Go in the guide is a file of the
// example, and every file of it is shown.
func TestGuideShowsCodeThatRuns(t *testing.T) {
	guide, err := os.ReadFile(filepath.Join(root, "docs", "guide", "embedding.md"))
	if err != nil {
		t.Fatal(err)
	}
	var shown []string
	for _, m := range regexp.MustCompile("(?s)`(docs/examples/(?:embedding|renderer)/[a-z]+\\.go)`:\n\n```go\n(.*?)```").FindAllSubmatch(guide, -1) {
		code, err := os.ReadFile(filepath.Join(root, string(m[1])))
		if err != nil {
			t.Fatal(err)
		}
		if string(code) != string(m[2]) {
			t.Errorf("%s is not what the guide shows", m[1])
		}
		shown = append(shown, string(m[1]))
	}
	if blocks := len(regexp.MustCompile("(?m)^```go").FindAll(guide, -1)); blocks != len(shown) {
		t.Errorf("the guide has %d blocks of Go, of which %d are files", blocks, len(shown))
	}
	files, err := filepath.Glob(filepath.Join(root, "docs/examples/[er]*/*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimPrefix(f, root+"/")
		if !strings.HasSuffix(name, "doc.go") && !strings.HasSuffix(name, "_test.go") && !slices.Contains(shown, name) {
			t.Errorf("the guide does not show %s", name)
		}
	}
}
