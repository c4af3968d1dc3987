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
	programs string // versions of what was tested
	earlier  string // the part until now: suites that were not run again keep their results
}

// rowOf and itemOf begin the lines about one suite.
func (s suite) rowOf() string  { return "| " + s.title + " |" }
func (s suite) itemOf() string { return "* " + s.name + ": " }

// kept returns the lines of the earlier part that begin so.
func (p page) kept(begin string) (out string) {
	for line := range strings.Lines(p.earlier) {
		if strings.HasPrefix(line, begin) {
			out += line
		}
	}
	return out
}

// outcome returns that of a suite, and whether it was run.
func (p page) outcome(name string) (outcome, bool) {
	i := slices.IndexFunc(p.outcomes, func(o outcome) bool { return o.name == name })
	if i < 0 {
		return outcome{}, false
	}
	return p.outcomes[i], true
}

// rows returns the table's lines, in the order of all.
func (p page) rows() (out string) {
	for _, t := range all() {
		if o, ran := p.outcome(t.name); ran {
			out += fmt.Sprintf("%s %s | %s | %d | %d | %d | %.0f | %s |\n", t.rowOf(), o.version, o.what, o.count(passed), o.count(failed), o.count(skipped), o.took.Minutes(), p.programs)
		} else {
			out += p.kept(t.rowOf())
		}
	}
	return out
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
	kubernetes, machine, _ := strings.Cut(node, ", ")
	programs := []string{"Kubernetes " + kubernetes, firstWords(own)}
	if p.onVPP() {
		vpp, err := p.run(nodeName(1), "", filepath.Join(p.vppPath(), "vppctl"), "show", "version")
		if err != nil {
			return "", err
		}
		programs = append(programs, firstWords(vpp))
	}
	p.programs = strings.Join(programs, ", ")
	var b strings.Builder
	fmt.Fprintf(&b, "### `make e2e-kubernetes ARGS=%q`\n\n%d nodes with %s.\n\n", p.key(), p.Nodes, machine)
	b.WriteString("| suite | version | part | passed | failed | not run | minutes | with |\n|---|---|---|---|---|---|---|---|\n")
	b.WriteString(p.rows())
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
	for _, t := range all() {
		o, ran := p.outcome(t.name)
		if !ran {
			_, section, _ := strings.Cut(p.earlier, "\n"+title+":\n\n")
			section, _, _ = strings.Cut(section, "\n\n")
			lines = slices.AppendSeq(lines, strings.Lines(page{earlier: section + "\n"}.kept(t.itemOf())))
		}
		for _, r := range o.results {
			if r.state == s {
				lines = append(lines, strings.TrimSuffix(fmt.Sprintf("%s%s: %s", t.itemOf(), r.name, r.why), ": ")+"\n")
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

// parts returns a page's part of a key, with what is before and behind it.
func parts(file, key string) (before, part, after string, err error) {
	old, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", "", "", err
	}
	before, rest, there := strings.Cut(string(old), fmt.Sprintf(partBegin, key))
	part, after, ends := strings.Cut(rest, fmt.Sprintf(partEnd, key))
	if there && !ends {
		return "", "", "", fmt.Errorf("%s: %q is missing", file, strings.TrimSpace(fmt.Sprintf(partEnd, key)))
	}
	if !there {
		before += "\n"
	}
	return before, part, after, nil
}

// replacePart replaces the part of a key, or adds it behind everything else.
func replacePart(file, key, text string) error {
	before, _, after, err := parts(file, key)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(before+fmt.Sprintf(partBegin, key)+text+fmt.Sprintf(partEnd, key)+after), 0o644)
}
