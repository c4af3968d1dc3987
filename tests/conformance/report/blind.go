package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/tests/conformance/faults"
)

const blindIntro = `
## What the suites do not notice

Passing them is a beginning. Each line below is an oracle that is wrong in one way (` + "`tests/conformance/faults`" + `), and how many cases of a suite notice it: as recorded, and with both families on
every pod, which is this replay's own. A case begins anew, as it does where suites run. The last column is how many of %d sequences of %d random states notice it, the clusters that ` + "`tests/differential`" + `
draws from; 0 means rarely, not never. Rows are those of the semantics. Faults about admin policies are looked for in cases that have some.

`

const blindRest = `
Besides, no suite asks what needs more than the first packet of a flow on a quiet cluster: replies and established flows, ICMP errors and fragments
([tests/scenarios/connections](../../tests/scenarios/connections)); what passes while a change is under way, a call that fails, a restart (` + "`renderer/renderertest`, `renderer/acl`, [tests/differential](../design/differential.md)" + `);
traffic of nodes, pods in the host network, pods that wait for an address or have finished ([tests/scenarios/pods](../../tests/scenarios/pods)); clusters of both families
([tests/scenarios/blindspots](../../tests/scenarios/blindspots)); the bugs of earlier implementations ([tests/scenarios/bugs](../../tests/scenarios/bugs)). Scenarios run on the same subjects as the suites.
`

// writeFaults writes where each fault is noticed, and what covers those that no public
// suite notices.
func (m *measurement) writeFaults(b *strings.Builder) {
	fmt.Fprintf(b, blindIntro, m.random.sequences, m.random.steps+1)
	b.WriteString("| fault | rows |")
	for _, s := range m.suites {
		fmt.Fprintf(b, " %s, of %d | with both families |", s.name, len(s.Cases))
	}
	b.WriteString(" random |\n|---|---|" + strings.Repeat("---|---|", len(m.suites)) + "---|\n")
	var unseen []int
	for i, f := range m.faults {
		n := m.noticed[i]
		fmt.Fprintf(b, "| %s | %s |", f.Name, f.Rows)
		for j := range m.suites {
			fmt.Fprintf(b, " %s | %s |", cell(n.recorded[j]), cell(n.both[j]))
		}
		fmt.Fprintf(b, " %d |\n", n.random)
		if !n.public() {
			unseen = append(unseen, i)
		}
	}
	if len(unseen) > 0 {
		m.writeUnseen(b, unseen)
	}
	b.WriteString(blindRest)
}

// cell says plainly that nothing notices a fault.
func cell(cases int) string {
	if cases == 0 {
		return "no"
	}
	return fmt.Sprint(cases)
}

func (m *measurement) writeUnseen(b *strings.Builder, unseen []int) {
	fmt.Fprintf(b, "\nThe public suites, as recorded, do not notice %d of these %d faults. Own scenarios are about them:\n\n", len(unseen), len(m.faults))
	for _, i := range unseen {
		fmt.Fprintf(b, "* %s: %s\n", m.faults[i].Name, m.links(m.faults[i]))
	}
}

// links returns links to the scenarios of a fault's rows.
func (m *measurement) links(f faults.Fault) string {
	var out []string
	for row := range strings.SplitSeq(f.Rows, ", ") {
		for _, path := range m.scenarios[row] {
			name := path[strings.LastIndex(path, "/")+1:]
			out = append(out, fmt.Sprintf("[%s](../../%s/%s)", strings.TrimSuffix(name, ".txt"), scenarioDir, path))
		}
	}
	if len(out) == 0 {
		return "**none**"
	}
	return strings.Join(slices.Compact(out), ", ")
}
