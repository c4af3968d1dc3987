package docker

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestDockerignoreKeepsWhatBuildNeeds compares the list of what the build may read with the
// packages that the programs are made of.
func TestDockerignoreKeepsWhatBuildNeeds(t *testing.T) {
	needed := append(packages(t), "go.mod", "go.sum")
	for _, p := range checkIgnore(read(t, ".dockerignore"), needed) {
		t.Error(p)
	}
}

// packages returns the directories of this module that the programs are made of.
func packages(t *testing.T) (dirs []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f", `{{with .Module}}{{if .Main}}{{$.ImportPath}}{{end}}{{end}}`, "./cmd/...")
	cmd.Dir = root
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	for line := range strings.Lines(string(out)) {
		dirs = append(dirs, strings.TrimPrefix(strings.TrimSpace(line), module+"/"))
	}
	if len(dirs) < 10 {
		t.Fatalf("go list found only %v", dirs)
	}
	return dirs
}

// checkIgnore returns what is wrong with a .dockerignore: it lists what the build may
// read, after a line that forbids all the rest.
func checkIgnore(text string, needed []string) (problems []string) {
	lines := logicalLines(text)
	if len(lines) == 0 || lines[0] != "*" {
		return []string{"the first line must be *: what is not listed does not get into an image"}
	}
	var allowed []string
	for _, line := range lines[1:] {
		name, ok := strings.CutPrefix(line, "!")
		if !ok {
			problems = append(problems, fmt.Sprintf("%q: want !PATH", line))
			continue
		}
		problems = append(problems, checkExists(root, name)...)
		allowed = append(allowed, name)
	}
	for _, path := range needed {
		covers := func(a string) bool { return path == a || strings.HasPrefix(path, a+string(filepath.Separator)) }
		if !slices.ContainsFunc(allowed, covers) {
			problems = append(problems, "the build needs "+path+" and does not get it")
		}
	}
	return problems
}
