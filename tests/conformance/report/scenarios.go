package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// scenarioDir is where the scenarios are, seen from the root of the module.
const scenarioDir = "tests/scenarios"

var ofRow = regexp.MustCompile(`^row-(\d+)-.*\.txt$`)

// scenarios returns the scenarios of every row of the semantics, as paths below
// scenarioDir.
func scenarios() (map[string][]string, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	return scenariosOf(filepath.Join(root, filepath.FromSlash(scenarioDir)))
}

// moduleRoot returns the directory of go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil || dir == filepath.Dir(dir) {
			return dir, err
		}
		dir = filepath.Dir(dir)
	}
}

func scenariosOf(dir string) (map[string][]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "*", "row-*.txt"))
	if err != nil {
		return nil, err
	}
	slices.Sort(paths)
	out := map[string][]string{}
	for _, path := range paths {
		if m := ofRow.FindStringSubmatch(filepath.Base(path)); m != nil {
			row := strings.TrimLeft(m[1], "0")
			out[row] = append(out[row], filepath.Base(filepath.Dir(path))+"/"+filepath.Base(path))
		}
	}
	return out, nil
}
