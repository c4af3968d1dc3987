package main

import (
	"net/netip"

	policyapi "github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
)

// party is a client or a server: a pod or, where pod is empty, a machine, or a pod in the network
// of one.
type party struct {
	name string
	node int // 0: outside the cluster, where kube-proxy translates nothing
	pod  policyapi.PodID
	ips  []netip.Addr // by family
}

func (p party) end(family int) oracle.Endpoint {
	return oracle.Endpoint{Pod: p.pod, Addr: p.ips[family]}
}

// kind is what clients connect to.
type kind int

const (
	direct     kind = iota // the server's own address
	named                  // the same, of which CoreDNS is asked first
	clusterIP              // an address that every node translates for its own pods and itself
	externalIP             // an address that every node translates for all, with a source of its own
	nodePort               // the same at a node's address
	hostPort               // a port of the server at its node's address
)

// way is one way to a server.
type way struct {
	name    string
	kind    kind
	service string
	node    int   // of a port; to which the outside sends for an external address
	local   bool  // internalTrafficPolicy or externalTrafficPolicy is Local
	mirrors bool  // kube-proxy masquerades what leads back to its sender on another node, too
	to      party // without a name: a service without endpoints
}

// translates returns the node that translates what a client sends; 0: none.
func (w way) translates(c party) int {
	switch {
	case w.kind == nodePort || w.kind == hostPort || w.kind == externalIP && c.node == 0:
		return w.node
	case w.kind == clusterIP || w.kind == externalIP:
		return c.node
	}
	return 0
}

// masquerades reports whether the server's node sees the node that translated as the source. That
// is so for all packets to addresses of nodes and to external ones without externalTrafficPolicy
// Local, and for packets of a pod that lead back to it.
func (w way) masquerades(c party) bool {
	atAll := w.translates(c) != w.to.node && w.translates(c) != 0
	return atAll && (w.kind == nodePort || w.kind == externalIP) && (!w.local || w.mirrors && c.pod == w.to.pod)
}

// works reports whether kube-proxy leads a client to the server in a cluster without policies.
func (w way) works(c party) bool {
	at := w.translates(c)
	switch {
	case w.to.name == "":
		return false
	case w.kind == named:
		return c.node != 0
	case w.kind == direct || w.kind == hostPort:
		return true
	case at == 0:
		return false
	case !w.local || at == w.to.node || w.masquerades(c):
		return true
	}
	// For the pods of all nodes and for the node itself, a node port is not Local. But what comes
	// to the port of another node is answered past it, by the server's own address.
	return w.kind == nodePort && at == c.node
}

// allowed reports whether the server must answer a client: where nothing is translated behind the
// policy of an end, the policy sees the other end.
func (w way) allowed(o *oracle.Oracle, c party, nodes []party, family int, protocol policyapi.Protocol) bool {
	at, source, destination := w.translates(c), c, w.to
	if w.masquerades(c) {
		source = nodes[at]
	}
	if at != 0 && at != c.node {
		destination = nodes[at]
	}
	const anyPort = 1 // no policy of the table has ports
	return w.works(c) && o.Decide(c.end(family), destination.end(family), protocol, anyPort).Egress.Allowed &&
		o.Decide(source.end(family), w.to.end(family), protocol, anyPort).Ingress.Allowed
}
