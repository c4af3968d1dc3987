package agent

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/explain"
	"github.com/sluice-net/sluice/internal/matrix"
)

// clusterState is what the store holds at one moment.
type clusterState struct{ explain.Cluster }

// decodeState leaves out what cannot be decoded; datasync reports it.
func decodeState(prefix string, entries []model.Entry) clusterState {
	var s clusterState
	for _, e := range entries {
		id, err := model.ParseKey(prefix, e.Key)
		if err != nil {
			continue
		}
		m, err := model.Decode(id, e.Value)
		if err != nil {
			continue
		}
		switch m := m.(type) {
		case *model.Namespace:
			s.Namespaces = append(s.Namespaces, m)
		case *model.Pod:
			s.Pods = append(s.Pods, m)
		case *model.NetworkPolicy:
			s.Policies = append(s.Policies, m)
		case *model.Node:
			s.Nodes = append(s.Nodes, m)
		case *model.ClusterPolicy:
			s.ClusterPolicies = append(s.ClusterPolicies, m)
		}
	}
	return s
}

func namedPorts(p *model.Pod) (out []matrix.Port) {
	for _, port := range p.GetNamedPorts() {
		out = append(out, matrix.Port{Name: port.GetName(), Protocol: explain.Protocol(port.GetProtocol()), Number: uint16(port.GetPort())})
	}
	return out
}

// outsidePort is asked of addresses outside of the cluster, beside the ports that
// policies name for them.
var outsidePort = matrix.Port{Name: "https", Protocol: api.TCP, Number: 443}

// endpoints are the rows and columns of the matrix: pods grouped by what they run,
// and a few addresses outside of the cluster.
func (s clusterState) endpoints() []matrix.Endpoint {
	var out []matrix.Endpoint
	for _, p := range s.Pods {
		if addrs := explain.Addresses(p); explain.IsLive(p) && len(addrs) > 0 {
			out = append(out, matrix.Endpoint{Group: groupName(p), Addrs: addrs, Ports: namedPorts(p)})
		}
	}
	return append(out, s.outside()...)
}

// groupName says what a pod is shown as: its namespace and application.
func groupName(p *model.Pod) string {
	set := explain.Labels(p)
	app := cmp.Or(set["app.kubernetes.io/name"], set["app"], set["k8s-app"], p.GetName())
	return p.GetNamespace() + "/" + app
}

// internet is an address that is documented to be nobody's.
var internet = netip.MustParseAddr("198.51.100.7")

// maxOutside bounds the rows for blocks that policies name.
const maxOutside = 6

// outside returns the internet, and for every block that policies name an address
// in it and one in each of its holes, as far as they are outside of the cluster.
func (s clusterState) outside() []matrix.Endpoint {
	out := []matrix.Endpoint{{Group: "internet", External: true, Addrs: []netip.Addr{internet}, Ports: []matrix.Port{outsidePort}}}
	seen := map[string]bool{}
	add := func(text string) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Bits() == 0 || seen[text] || len(out) > maxOutside || s.holdsPod(prefix) {
			return
		}
		seen[text] = true
		addr := prefix.Masked().Addr()
		if !prefix.IsSingleIP() {
			addr = addr.Next()
		}
		out = append(out, matrix.Endpoint{Group: prefix.Masked().String(), External: true, Addrs: []netip.Addr{addr}, Ports: []matrix.Port{outsidePort}})
	}
	for _, np := range s.Policies {
		for _, r := range slices.Concat(np.GetIngress(), np.GetEgress()) {
			for _, peer := range r.GetPeers() {
				for _, text := range append([]string{peer.GetIpBlock().GetCidr()}, peer.GetIpBlock().GetExcept()...) {
					add(text)
				}
			}
		}
	}
	for _, p := range s.ClusterPolicies {
		for _, r := range p.GetEgress() {
			for _, peer := range r.GetPeers() {
				add(peer.GetNetwork())
			}
		}
	}
	return out
}

func (s clusterState) holdsPod(prefix netip.Prefix) bool {
	return slices.ContainsFunc(s.Pods, func(p *model.Pod) bool {
		return slices.ContainsFunc(explain.Addresses(p), prefix.Contains)
	})
}
