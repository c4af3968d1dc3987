package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/tests/spec/conformance"
	"github.com/sluice-net/sluice/tests/spec/conformance/replay"
)

// page returns the page in Markdown.
func (m *measurement) page() string {
	var b strings.Builder
	fmt.Fprintf(&b, intro, m.verdict())
	m.writeSuites(&b)
	b.WriteString(method)
	m.writeResults(&b)
	m.writeSkipped(&b)
	for _, s := range m.suites {
		m.writeFeatures(&b, s)
	}
	m.writeMismatches(&b)
	b.WriteString(rest)
	return b.String()
}

const intro = `# Conformance: the public suites, replayed

` + "`make conformance`" + ` writes this page; edit ` + "`tests/spec/conformance/report`" + ` instead. %s

## What is replayed

`

const method = `
The suites were run against recorders that took down their objects and the verdicts that they expect; the files are not part of the module. They are looked for in
` + "`../shared/conformance`, seen from the root of the module; [tests/spec/conformance/README.md](../../tests/spec/conformance/README.md) documents the format, and how to add another one." + `

A *subject* is the oracle, which gets the Kubernetes objects of a step, or a fleet: the whole pipeline on every node of the suite's cluster, over one kind of dataplane. A fleet lives as
long as the suite. It receives what a step changes, also from one case to the next. After every step a new fleet receives the whole state at once: what the two have installed must be equal, and the
new one is asked as well.

* **Addresses.** A suite is replayed with the IPv4 addresses that were recorded, with their images in IPv6, and with both on every pod. The image of a.b.c.d/n is fd00:c0ff::a.b.c.d/n+96 and that
  of 0.0.0.0/0 is ::/0, so that verdicts carry over. With both, the blocks of policies are those of one family. In the other family such a policy means something else, which no suite says: the oracle does.
  Networks of administrators are blocks, and a ::/0 that was recorded beside 0.0.0.0/0 changes places with it. Nodes have addresses as pods have them.
* **A pod and itself.** Rows in which a pod talks to itself expect a permit, whatever the suite says. In a fleet such a packet never leaves the pod, so these rows say nothing about a stack.
* **Services.** The e2e suite probes through one Service per pod with equal ports; here the pod is probed, as policies judge after translation.
* **Directions.** Cyclonus states the verdict of each end. The oracle is compared with both.

## How to run it

` + "```" + `
make conformance                              # everything, and this page; exit status of the command: 1 mismatch or failure, 2 suites absent
go test ./tests/spec/conformance/...               # every case, a part of the probes; with -short a smaller one
go test -v -run Suites ./tests/spec/conformance/replay
` + "```" + `
`

const rest = `
## What the suites do not notice

Passing them is a beginning: they notice only some ways to misread a policy.
` + "`" + `go run ./tests/repo/mutation -suites conformance` + "`" + ` prints which seeded faults of the product they miss.
No public suite, as recorded, asks about the following; own scenarios do, on the same subjects.

* structure: the default of
  [policyTypes](../../tests/spec/scenarios/structure/row-04-policy-types-default.txt),
  [NotIn](../../tests/spec/scenarios/structure/row-14-not-in-matches-when-key-is-missing.txt) without the
  key, [namespaces](../../tests/spec/scenarios/structure/row-17-namespaces-that-come-and-go.txt) that
  come and go
* [ports](../../tests/spec/scenarios/ports): named ones of the peer and of sidecars
* [blocks](../../tests/spec/scenarios/blocks): host bits, and that families never cross
* [pods](../../tests/spec/scenarios/pods): traffic of the own node, the host network, pods that wait for
  an address, terminate or have finished
* [tiers](../../tests/spec/scenarios/tiers): equal priorities, isolation of one direction, subjects and
  their changes, nodes as peers, actions and peers that are not understood, domain names
* [connections](../../tests/spec/scenarios/connections): what needs more than the first packet of a flow,
  such as replies, established flows, ICMP errors and fragments; protocols that rules cannot name
* [both families](../../tests/spec/scenarios/blindspots) in one cluster, and the
  [bugs](../../tests/spec/scenarios/bugs) of earlier implementations

Nor do they ask what passes while a change is under way, a call fails, or a dataplane restarts:
` + "`" + `renderer/renderertest` + "`" + `, ` + "`" + `renderer/acl` + "`" + ` and [tests/spec/differential](../design/differential.md) do.
`

// verdict sums everything up in one sentence.
func (m *measurement) verdict() string {
	probes := 0
	for _, r := range m.results {
		probes += r.Probes + r.ResyncProbes
	}
	var subjects []string
	for _, k := range m.kinds {
		subjects = append(subjects, k.Name)
	}
	return fmt.Sprintf("**%s** in %d probes of %s.", count(m.mismatches(), "mismatch", "mismatches"), probes, strings.Join(subjects, ", "))
}

func count(n int, one, many string) string {
	switch n {
	case 0:
		return "No " + one
	case 1:
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (m *measurement) writeSuites(b *strings.Builder) {
	b.WriteString("| suite | source | cases | steps | probes | of a pod to itself |\n|---|---|---|---|---|---|\n")
	for _, s := range m.suites {
		steps, loopbacks := 0, 0
		for _, c := range s.Cases {
			steps += len(c.Steps)
			for _, step := range c.Steps {
				for _, p := range step.Probes {
					if p.Loopback() {
						loopbacks++
					}
				}
			}
		}
		fmt.Fprintf(b, "| %s | %s | %d | %d | %d | %d |\n", s.name, s.Source, len(s.Cases), steps, s.Probes(), loopbacks)
	}
}

func (m *measurement) writeResults(b *strings.Builder) {
	b.WriteString("\n## Result\n\n" +
		"Probes are flows that were asked; those *by the oracle* are the ones that no suite states. A resync is a new fleet beside the one that runs. Session rules are for TCP and\n" +
		"UDP: other flows are *unseen*. What they deny because a rule has more ports than they can list is *closed*, and reported by the renderer.\n\n" +
		"| suite | subject | addresses | cases | steps | changes | probes | to itself | by the oracle | unseen | closed | directions | resyncs | their probes | mismatches |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range m.results {
		fmt.Fprintf(b, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %d | %s |\n", r.Suite, r.Subject, r.Addressing,
			r.Cases, r.Steps, r.Changes, r.Probes, r.Loopbacks, r.Unstated, r.Unseen, r.Closed, r.Directions, r.Resyncs, r.ResyncProbes, bold(r.Mismatches))
	}
}

// bold makes what should be 0 visible when it is not.
func bold(n int) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("**%d**", n)
}

func (m *measurement) writeSkipped(b *strings.Builder) {
	reasons := map[string]int{}
	for _, r := range m.results {
		for reason, n := range r.Skipped {
			reasons[r.Suite+": "+reason] = n // the same for every subject
		}
	}
	b.WriteString("\n")
	if len(reasons) == 0 {
		b.WriteString("No case and no step was skipped.\n")
	}
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		fmt.Fprintf(b, "* skipped, %s: %d steps\n", reason, reasons[reason])
	}
}

// writeFeatures writes which cases passed, by the tags of a suite.
func (m *measurement) writeFeatures(b *strings.Builder, s suite) {
	bySubject := map[string][]replay.Result{}
	var all []replay.Result
	for _, r := range m.results {
		if r.Suite == s.name {
			bySubject[r.Subject] = append(bySubject[r.Subject], r)
			all = append(all, r)
		}
	}
	fmt.Fprintf(b, "\n### %s by feature\n\nCases with all probes right, of those that have the tag, each with %d kinds of addresses.\n\n| tag |", s.name, len(conformance.Addressings))
	for _, k := range m.kinds {
		fmt.Fprintf(b, " %s |", k.Name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(m.kinds)) + "\n")
	for _, tag := range replay.Tags(all) {
		fmt.Fprintf(b, "| %s |", tag)
		for _, k := range m.kinds {
			fmt.Fprintf(b, " %s |", sum(bySubject[k.Name], tag))
		}
		b.WriteString("\n")
	}
}

// sum adds up the scores of a tag.
func sum(results []replay.Result, tag string) string {
	var total replay.Score
	for _, r := range results {
		if s := r.Features[tag]; s != nil {
			total.Passed += s.Passed
			total.Total += s.Total
		}
	}
	text := fmt.Sprintf("%d/%d", total.Passed, total.Total)
	if total.Passed < total.Total {
		text = "**" + text + "**"
	}
	return text
}

func (m *measurement) writeMismatches(b *strings.Builder) {
	b.WriteString("\n## Mismatches\n\n")
	if m.mismatches() == 0 {
		b.WriteString("None. There is no list of mismatches that are excused.\n")
	}
	for _, r := range m.results {
		if r.Mismatches == 0 {
			continue
		}
		fmt.Fprintf(b, "%s on %s, %s: %d in %d cases, the first ones:\n\n", r.Suite, r.Subject, r.Addressing, r.Mismatches, r.Failed)
		for _, mm := range r.Reports {
			fmt.Fprintf(b, "```\n%s\n```\n\n", strings.TrimSpace(mm.String()))
		}
	}
}
