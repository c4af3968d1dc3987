package ksr

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
)

// node keeps the labels and every address of a node. Names of the node, which stand
// among its addresses, are left out without a word.
func node(n *corev1.Node) *model.Node {
	out := &model.Node{Name: n.Name, Labels: sortedLabels(n.Labels)}
	for _, a := range n.Status.Addresses {
		if addr, err := parseAddr(a.Address); err == nil {
			out.Addresses = append(out.Addresses, addr.String())
		}
	}
	slices.Sort(out.Addresses)
	out.Addresses = slices.Compact(out.Addresses)
	return out
}
