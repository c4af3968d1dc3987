package explain

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/services"
	"github.com/sluice-net/sluice/internal/view"
)

// Matrix says who can talk to whom, packet by packet of the node's embedded dataplane, and how
// often that does not do what the specification says.
func (n Node) Matrix(c Cluster, s matrix.Selection) (out view.Matrix, err error) {
	endpoints := c.Endpoints()
	if err := s.Check(endpoints); err != nil {
		return out, err
	}
	out.Matrix = matrix.Compute(endpoints, s, func(f api.Flow) bool {
		verdict, _ := n.Send(f)
		if (verdict == api.Permit) != n.Expects(f) {
			out.Differ++
		}
		return verdict == api.Permit
	})
	return out, nil
}

func namedPorts(p *model.Pod) (out []matrix.Port) {
	for _, port := range p.GetNamedPorts() {
		out = append(out, matrix.Port{Name: port.GetName(), Protocol: services.Protocol(port.GetProtocol()), Number: uint16(port.GetPort())})
	}
	return out
}

// outsidePort is asked of addresses outside of the cluster, beside the ports that
// policies name for them.
var outsidePort = matrix.Port{Name: "https", Protocol: api.TCP, Number: 443}

// Endpoints are the rows and columns of the matrix: pods grouped by what they run,
// and a few addresses outside of the cluster.
func (c Cluster) Endpoints() []matrix.Endpoint {
	var out []matrix.Endpoint
	for _, p := range c.Pods {
		if addrs := Addresses(p); IsLive(p) && len(addrs) > 0 {
			out = append(out, matrix.Endpoint{Group: GroupName(p), Addrs: addrs, Ports: namedPorts(p)})
		}
	}
	return append(out, c.outside()...)
}

// GroupName returns the name under which a pod is shown: its namespace and application.
func GroupName(p *model.Pod) string {
	return GroupOf(api.PodID{Namespace: p.GetNamespace(), Name: p.GetName()}, Labels(p))
}

// GroupOf is GroupName for a pod with these labels.
func GroupOf(pod api.PodID, set map[string]string) string {
	app := cmp.Or(set["app.kubernetes.io/name"], set["app"], set["k8s-app"], pod.Name)
	return pod.Namespace + "/" + app
}

// internet is an address of a range that is reserved for documentation (RFC 5737).
var internet = netip.MustParseAddr("198.51.100.7")

// maxOutside bounds the rows for blocks that policies name.
const maxOutside = 6

// outside returns the internet, and for every block that policies name an address
// in it and one in each of its holes, as far as they are outside of the cluster.
func (c Cluster) outside() []matrix.Endpoint {
	out := []matrix.Endpoint{{Group: "internet", External: true, Addrs: []netip.Addr{internet}, Ports: []matrix.Port{outsidePort}}}
	seen := map[string]bool{}
	add := func(text string) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil || prefix.Bits() == 0 || seen[text] || len(out) > maxOutside || c.holdsPod(prefix) {
			return
		}
		seen[text] = true
		addr := prefix.Masked().Addr()
		if !prefix.IsSingleIP() {
			addr = addr.Next()
		}
		out = append(out, matrix.Endpoint{Group: prefix.Masked().String(), External: true, Addrs: []netip.Addr{addr}, Ports: []matrix.Port{outsidePort}})
	}
	for _, np := range c.Policies {
		for _, r := range slices.Concat(np.GetIngress(), np.GetEgress()) {
			for _, peer := range r.GetPeers() {
				for _, text := range append([]string{peer.GetIpBlock().GetCidr()}, peer.GetIpBlock().GetExcept()...) {
					add(text)
				}
			}
		}
	}
	for _, p := range c.ClusterPolicies {
		for _, r := range p.GetEgress() {
			for _, peer := range r.GetPeers() {
				add(peer.GetNetwork())
			}
		}
	}
	return out
}

func (c Cluster) holdsPod(prefix netip.Prefix) bool {
	return slices.ContainsFunc(c.Pods, func(p *model.Pod) bool {
		return slices.ContainsFunc(Addresses(p), prefix.Contains)
	})
}
