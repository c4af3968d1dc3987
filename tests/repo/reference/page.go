package reference

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// metric is a metric as described by the page, or by a registry.
type metric struct {
	name, kind string   // kind: counter, gauge, histogram; empty when no series says it
	labels     []string // sorted
}

// family reports whether a row is about all metrics that begin so.
func (m metric) family() bool { return strings.HasSuffix(m.name, "*") }

// Read returns the page; root is the top of the repository as the caller sees it.
func Read(root string) (string, error) {
	b, err := os.ReadFile(filepath.Join(root, "docs", "reference", "metrics.md"))
	return string(b), err
}

var code = regexp.MustCompile("`([^`]+)`")

// rows returns the metrics that the page names below the heading of a program.
func rows(page, program string) (out []metric, err error) {
	heading := "\n## " + program + "\n"
	_, section, ok := strings.Cut("\n"+page, heading)
	if !ok {
		return nil, fmt.Errorf("the page has no heading %q", strings.TrimSpace(heading))
	}
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.Lines(section) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		m, err := row(line)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return out, nil
}

// row reads a line: name, type, labels, meaning, unit.
func row(line string) (m metric, err error) {
	cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
	if len(cells) != 5 {
		return m, fmt.Errorf("%s has %d cells, want name, type, labels, meaning and unit", cells[0], len(cells))
	}
	for i := range cells {
		if cells[i] = strings.TrimSpace(cells[i]); cells[i] == "" && i != 2 {
			return m, fmt.Errorf("%s has an empty cell", cells[0])
		}
	}
	m = metric{name: strings.Trim(cells[0], "`"), kind: cells[1]}
	for _, label := range code.FindAllStringSubmatch(cells[2], -1) {
		m.labels = append(m.labels, label[1])
	}
	slices.Sort(m.labels)
	if m.family() && strings.HasPrefix(m.name, "sluice_") {
		return m, fmt.Errorf("%s: metrics of ours are named one by one", m.name)
	}
	return m, nil
}
