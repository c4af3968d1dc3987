package graph

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/intstr"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/analysis/preview"
)

// Change is a state and what becomes of it.
type Change struct {
	Was, Is     matrix.Matrix
	Differences []preview.Difference
}

// otherPorts stands for the ports that no policy names, of a pod that declares none.
var otherPorts = matrix.Port{Name: "other ports", Protocol: api.TCP, Number: 64999}

// Matrix returns who can talk to whom by the specification, without dataplanes.
func Matrix(m explain.Manifests, s matrix.Selection) (matrix.Matrix, error) {
	spec := oracle.New(m.State(), oracle.AllowNodeTraffic(!m.DenyNode))
	endpoints := m.Endpoints()
	if err := s.Check(endpoints); err != nil {
		return matrix.Matrix{}, err
	}
	withPorts(endpoints, spec, egressPorts(m.State().Policies))
	return matrix.Compute(endpoints, s, preview.Judge(m)), nil
}

// Compute compares two states.
func Compute(ctx context.Context, before, after explain.Manifests, s matrix.Selection) (Change, error) {
	report, err := preview.Compare(ctx, before, after, preview.Options{})
	if err != nil {
		return Change{}, err
	}
	return Join(before, after, s, report.Differences)
}

// Join returns two states that were compared, with the differences that are selected.
func Join(before, after explain.Manifests, s matrix.Selection, differences []preview.Difference) (c Change, err error) {
	if c.Is, err = Matrix(after, s); err != nil {
		return c, err
	}
	if c.Was, err = Matrix(before, s); err != nil {
		c.Was = matrix.Matrix{} // what is selected may be new
	}
	if c.Is.Namespaces != c.Was.Namespaces { // there are too many workloads before or after
		c.Was, c.Is = c.Was.Grouped(), c.Is.Grouped()
	}
	c.Differences = slices.DeleteFunc(slices.Clone(differences), func(d preview.Difference) bool { return !isSelected(s, d) })
	c.mark()
	return c, nil
}

// Marked returns the matrix of the state after a change, with the cells that it changes marked.
// Unlike Compute it does not say why, which takes much less time.
func Marked(ctx context.Context, before, after explain.Manifests, s matrix.Selection) (matrix.Matrix, error) {
	pairs, err := preview.Pairs(ctx, before, after, "")
	if err != nil {
		return matrix.Matrix{}, err
	}
	side := func(workload string) (out preview.Side) {
		if workload != preview.Outside { // cells outside are compared by their blocks
			out.Groups = []string{workload}
		}
		return out
	}
	var differences []preview.Difference
	for _, p := range pairs {
		for change, is := range map[preview.Change]bool{preview.Opened: p.Opens, preview.Closed: p.Closes} {
			if is {
				differences = append(differences, preview.Difference{Change: change, From: side(p.From), To: side(p.To)})
			}
		}
	}
	c, err := Join(before, after, s, differences)
	return c.Is, err
}

// isSelected reports whether a difference is about a pair that is asked for.
func isSelected(s matrix.Selection, d preview.Difference) bool {
	for _, from := range slices.Concat(d.From.Groups, d.From.Outside) {
		for _, to := range slices.Concat(d.To.Groups, d.To.Outside) {
			if s.Wants(from, to) {
				return true
			}
		}
	}
	return false
}

// mark marks the cells of the matrix that a change changes: those of pods by what was compared
// exactly, those of addresses outside by what their cells were.
func (c *Change) mark() {
	for _, d := range c.Differences {
		for _, from := range d.From.Groups {
			for _, to := range d.To.Groups {
				c.Is.Mark(from, to, d.Change == preview.Opened)
			}
		}
	}
	for _, d := range c.Is.Diff(c.Was) {
		c.Is.Mark(d.From, d.To, d.Is > d.Was)
	}
}

// withPorts adds to the ports that pods declare those that policies name for them. Pods that
// declare none are asked about those that egress rules name, too, and about one that stands for all
// others.
func withPorts(endpoints []matrix.Endpoint, spec *oracle.Oracle, egress []matrix.Port) {
	for i, e := range endpoints {
		if e.External {
			continue
		}
		ports := slices.Clone(e.Ports)
		for _, a := range e.Addrs {
			for _, pod := range spec.PodsAt(a) {
				for _, id := range spec.Selecting(pod) {
					if np := spec.NetworkPolicy(id); np != nil {
						for _, r := range np.Spec.Ingress {
							ports = withPortsOf(ports, r.Ports)
						}
					}
				}
			}
		}
		if len(e.Ports) == 0 {
			for _, p := range egress {
				ports = withPort(ports, p)
			}
			ports = append(ports, otherPorts)
		}
		endpoints[i].Ports = ports
	}
}

// mostPorts bounds the ports that a pod is asked about.
const mostPorts = 12

// egressPorts returns the numbers that egress rules name.
func egressPorts(policies []*networkingv1.NetworkPolicy) (out []matrix.Port) {
	for _, np := range policies {
		for _, r := range np.Spec.Egress {
			out = withPortsOf(out, r.Ports)
		}
	}
	return out
}

// withPortsOf adds the numbers that a rule names, each once.
func withPortsOf(ports []matrix.Port, named []networkingv1.NetworkPolicyPort) []matrix.Port {
	for _, p := range named {
		protocol, known := protocolOf(p.Protocol)
		if known && p.Port != nil && p.Port.Type == intstr.Int && p.Port.IntVal >= 1 && p.Port.IntVal <= 65535 {
			ports = withPort(ports, matrix.Port{Protocol: protocol, Number: uint16(p.Port.IntVal)})
		}
	}
	return ports
}

// withPort adds a port, unless it is there or there are many.
func withPort(ports []matrix.Port, add matrix.Port) []matrix.Port {
	has := func(p matrix.Port) bool { return p.Protocol == add.Protocol && p.Number == add.Number }
	if len(ports) >= mostPorts || slices.ContainsFunc(ports, has) {
		return ports
	}
	return append(ports, add)
}

// protocols are those of ports by their names in Kubernetes.
var protocols = map[corev1.Protocol]api.Protocol{corev1.ProtocolTCP: api.TCP, corev1.ProtocolUDP: api.UDP, corev1.ProtocolSCTP: api.SCTP}

// protocolOf returns the protocol of a port, which is TCP where none is named.
func protocolOf(p *corev1.Protocol) (out api.Protocol, known bool) {
	if p == nil {
		return api.TCP, true
	}
	out, known = protocols[*p]
	return out, known
}

// Examples returns a pod of each workload, by whose name a question may ask about it.
func Examples(c explain.Cluster) map[string]string {
	out := map[string]string{}
	for _, p := range c.Pods {
		id, workload := explain.PodID(p).String(), explain.GroupName(p)
		if has, ok := out[workload]; explain.IsLive(p) && len(p.GetIps()) > 0 && (!ok || id < has) {
			out[workload] = id
		}
	}
	return out
}
