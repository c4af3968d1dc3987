package sequences

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/spec/conformance"
)

// recorded returns the cases of a recorded suite as lists: those with the most steps,
// and of the others a few, several to a list.
func recorded(suite *conformance.Suite) []list {
	cases := slices.Clone(suite.Cases)
	slices.SortStableFunc(cases, func(a, b conformance.Case) int { return cmp.Compare(len(b.Steps), len(a.Steps)) })
	n := min(renderertest.Extent(1, 5, len(cases)), len(cases))
	many, rest := cases[:n], cases[n:]
	var out []list
	for _, c := range many {
		out = append(out, recordedList(c.ID, c))
	}
	if count := min(renderertest.Extent(3, 6, 0), len(rest)); count > 0 {
		stride := len(rest) / count
		for i := 0; i+2 < count; i += 3 {
			c := []conformance.Case{rest[i*stride], rest[(i+1)*stride], rest[(i+2)*stride]}
			out = append(out, recordedList(fmt.Sprintf("%s and %s and %s", c[0].ID, c[1].ID, c[2].ID), c...))
		}
	}
	return out
}

// recordedList makes a list of the steps of cases, one after the other.
func recordedList(name string, cases ...conformance.Case) list {
	l := list{name: name, brief: true}
	found := map[string]*corev1.Node{}
	for _, c := range cases {
		for _, step := range c.Steps {
			s := step.State()
			l.states = append(l.states, s)
			for _, n := range s.Nodes {
				found[n.Name] = n
			}
			for _, p := range s.Pods {
				if found[p.Spec.NodeName] != nil {
					continue
				}
				found[p.Spec.NodeName] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: p.Spec.NodeName}}
			}
		}
	}
	l.nodes = slices.SortedFunc(maps.Values(found), func(a, b *corev1.Node) int { return cmp.Compare(a.Name, b.Name) })
	return l
}

// random returns lists that a seed draws.
func random() []list {
	cfg := cluster.Config{Namespaces: 2, Nodes: 2, Pods: 4, Policies: 3, Admin: 2, IPv6: true, Odd: true, Audit: true}
	var out []list
	for seed := range renderertest.Extent(2, 5, 150) {
		l := list{name: fmt.Sprintf("random %d", seed), denyNode: seed%5 == 4}
		for _, step := range cluster.RandomSequence(uint64(seed), cfg, 3) {
			l.states = append(l.states, step.State)
			l.nodes = cluster.Edited(cluster.State{Nodes: l.nodes}, cluster.Objects(cluster.State{Nodes: step.State.Nodes})).Nodes
		}
		out = append(out, l)
	}
	return out
}
