package renderertest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Dump formats everything that is installed, with origins after a semicolon. Recorders with the
// same content have the same dump, independently of their transactions.
func (r *Recorder) Dump() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.dump()
}

func (s *state) dump() string {
	var b strings.Builder
	for _, pod := range slices.SortedFunc(maps.Keys(s.pods), api.PodID.Compare) {
		cfg := s.pods[pod]
		fmt.Fprintf(&b, "pod %s", pod)
		for _, a := range cfg.IPs {
			fmt.Fprintf(&b, " %s", a)
		}
		b.WriteByte('\n')
		dumpList(&b, "ingress", cfg.Ingress)
		dumpList(&b, "egress", cfg.Egress)
	}
	for _, id := range slices.Sorted(maps.Keys(s.sets)) {
		fmt.Fprintf(&b, "set %s\n", id)
		for _, p := range s.sets[id].prefixes() {
			fmt.Fprintf(&b, "  %s\n", p)
		}
	}
	return b.String()
}

func dumpList(b *strings.Builder, direction string, l *renderer.RuleList) {
	if l == nil {
		fmt.Fprintf(b, "  %s open\n", direction)
		return
	}
	fmt.Fprintf(b, "  %s\n", direction)
	for i, rule := range l.All() {
		fmt.Fprintf(b, "    %s", rule)
		for j, o := range l.Origins(i) {
			sep := ", "
			if j == 0 {
				sep = "; "
			}
			b.WriteString(sep + o.String())
		}
		b.WriteByte('\n')
	}
}
