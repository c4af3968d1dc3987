package main

import (
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// outcome is a suite that was run.
type outcome struct {
	suite
	version string
	results []result
	took    time.Duration
}

func (o outcome) count(s state) (n int) {
	for _, r := range o.results {
		if r.state == s {
			n++
		}
	}
	return n
}

// page is the part of a page about one kind of cluster.
type page struct {
	*lab
	outcomes []outcome
}

// key names the kind of cluster, as the flags of up do.
func (p page) key() string {
	if p.onVPP() {
		return fmt.Sprintf("--dataplane vpp --proxy %s --family %s", p.Proxy, p.Family)
	}
	return fmt.Sprintf("--cni %s --proxy %s --family %s", p.CNI, p.Proxy, p.Family)
}

// text returns the part in Markdown.
func (p page) text() (string, error) {
	node, err := p.kube("", "get", "node", nodeName(1), "-o", "jsonpath={.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}, Linux {.status.nodeInfo.kernelVersion}")
	if err != nil {
		return "", err
	}
	own, err := p.run(control, "", p.Bin+"/sluicectl", "version")
	if err != nil {
		return "", err
	}
	programs := []string{firstWords(own)}
	if p.onVPP() {
		vpp, err := p.run(nodeName(1), "", filepath.Join(p.vppPath(), "vppctl"), "show", "version")
		if err != nil {
			return "", err
		}
		programs = append(programs, firstWords(vpp))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "### `make e2e-kubernetes ARGS=%q`\n\nKubernetes %s, %d nodes; %s.\n\n", p.key(), node, p.Nodes, strings.Join(programs, ", "))
	b.WriteString("| suite | version | part | passed | failed | not run | minutes |\n|---|---|---|---|---|---|---|\n")
	for _, o := range p.outcomes {
		fmt.Fprintf(&b, "| %s | %s | %s | %d | %d | %d | %.0f |\n", o.title, o.version, o.what, o.count(passed), o.count(failed), o.count(skipped), o.took.Minutes())
	}
	p.list(&b, "Failed", failed)
	p.list(&b, "Not run", skipped)
	return b.String(), nil
}

// firstWords returns the name and the version of a program that says more.
func firstWords(text string) string {
	words := strings.Fields(text)
	return strings.Join(words[:min(2, len(words))], " ")
}

// list writes the names of all tests that ended so.
func (p page) list(b *strings.Builder, title string, s state) {
	var lines []string
	for _, o := range p.outcomes {
		for _, r := range o.results {
			if r.state == s {
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("* %s: %s: %s", o.name, r.name, r.why), ": ")+"\n")
			}
		}
	}
	if slices.Sort(lines); len(lines) > 0 {
		fmt.Fprintf(b, "\n%s:\n\n%s", title, strings.Join(lines, ""))
	}
}

// verdict is an error when a test failed.
func (p page) verdict() error {
	n := 0
	for _, o := range p.outcomes {
		n += o.count(failed)
	}
	if n > 0 {
		return fmt.Errorf("%d tests failed", n)
	}
	return nil
}

// version returns that of a program's module.
func version(program string) string {
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		return "unknown"
	}
	return info.Main.Version
}

// partBegin and partEnd enclose the part of one key.
const (
	partBegin = "<!-- begin %s -->\n"
	partEnd   = "<!-- end %s -->\n"
)

// replacePart replaces the part of a key, or adds it behind everything else.
func replacePart(file, key, text string) error {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	begin, end := fmt.Sprintf(partBegin, key), fmt.Sprintf(partEnd, key)
	before, rest, there := strings.Cut(string(old), begin)
	_, after, ends := strings.Cut(rest, end)
	if there && !ends {
		return fmt.Errorf("%s: %q is missing", file, strings.TrimSpace(end))
	}
	if !there {
		before += "\n"
	}
	return os.WriteFile(file, []byte(before+begin+text+end+after), 0o644)
}
