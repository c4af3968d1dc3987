package cluster

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodeDrawer draws nodes and what happens to them.
type nodeDrawer struct{ draws }

func nodeName(i int) string { return fmt.Sprintf("node-%d", i) }

func nodeAddresses(i int) []string {
	return []string{fmt.Sprintf("192.168.%d.%d", i/250, 1+i%250), fmt.Sprintf("fd00:9::%x", 1+i)}
}

func (d nodeDrawer) node(i int) *corev1.Node {
	n := newNode(i)
	if d.cfg.Admin > 0 {
		n.Labels = d.labels(nodeKeys)
	}
	return n
}

func newNode(i int) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(i)}}
	for _, a := range nodeAddresses(i) {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeHostName, Address: n.Name})
	return n
}

// add adds a node that has no pods yet. Clusters grow to at most one and a half times their
// configured size, plus one.
func (d nodeDrawer) add(s *State) string {
	if len(s.Nodes) > d.cfg.Nodes+d.cfg.Nodes/2 {
		return ""
	}
	n := d.node(len(s.Nodes))
	s.Nodes = append(s.Nodes, n)
	return "add node " + n.Name
}

func (d nodeDrawer) relabel(s *State) string {
	if len(s.Nodes) == 0 {
		return ""
	}
	i := d.Below(len(s.Nodes), "node")
	n := s.Nodes[i].DeepCopy()
	n.Labels = d.labels(nodeKeys)
	s.Nodes[i] = n
	return "relabel node " + n.Name
}
