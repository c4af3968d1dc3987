package convert

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api/model"
)

// convertNode keeps the labels and every address of a node. It silently drops host names from the
// list of addresses.
func convertNode(n *corev1.Node, at place) *model.Node {
	at = at.child("status", "addresses")
	out := &model.Node{Name: n.Name, Labels: sortedLabels(n.Labels)}
	for i, a := range n.Status.Addresses {
		addr, err := parseAddr(a.Address)
		switch {
		case err == nil:
			out.Addresses = append(out.Addresses, addr.String())
		case a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP:
			at.index(i).child("address").errorf("%v", err)
		}
	}
	slices.Sort(out.Addresses)
	out.Addresses = slices.Compact(out.Addresses)
	return out
}
