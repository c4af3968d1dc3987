package shapes

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Kinds of peers, ports and subjects of a Genome.
var (
	peerKinds    = []string{"one pod", "all pods but one", "half of the pods", "every pod", "one address", "all but one address", "nested blocks", "nested IPv6", "scattered blocks"}
	portKinds    = []string{"its own port", "scattered ports", "overlapping ranges", "adjacent ranges", "every port"}
	subjectKinds = []string{"every pod", "one pod", "half of the pods"}
)

// Genome describes manifests of a tenant, for a search for those that cost most. Every value has
// meaning for every other.
type Genome struct {
	Pods, Local         int // pods of the tenant, and how many of them are on the node
	Policies, Rules     int // Rules of each policy
	Peers, Ports        int // of each rule
	Peer, Port, Subject string
	Second              string // kind of every other peer
	Egress              bool   // rules are of both directions
	Own                 bool   // each local pod has a policy of its own besides
	Seed                uint64
}

// most are the largest values that are looked at.
const (
	mostPods     = 1500
	mostLocal    = 110
	mostPolicies = 200
	mostParts    = 4000
)

// RandomGenome returns one that is the outcome of many mutations.
func RandomGenome(r *rand.Rand) Genome {
	g := Genome{Seed: r.Uint64()}
	for range 20 {
		g = g.Mutate(r)
	}
	return g
}

// Mutate returns one that differs in one or two values.
func (g Genome) Mutate(r *rand.Rand) Genome {
	amounts := []struct {
		value *int
		most  int
	}{{&g.Pods, mostPods}, {&g.Local, mostLocal}, {&g.Policies, mostPolicies}, {&g.Rules, mostParts}, {&g.Peers, mostParts}, {&g.Ports, mostParts}}
	for range 1 + r.IntN(2) {
		switch i := r.IntN(len(amounts) + 5); i - len(amounts) {
		default:
			x := amounts[i]
			scaled := float64(max(*x.value, 1)) * []float64{0.25, 0.5, 0.8, 1.25, 2, 4, 16}[r.IntN(7)]
			*x.value = min(max(int(scaled), 1), x.most)
		case 0:
			g.Peer = peerKinds[r.IntN(len(peerKinds))]
		case 1:
			g.Port = portKinds[r.IntN(len(portKinds))]
		case 2:
			g.Subject, g.Egress = subjectKinds[r.IntN(len(subjectKinds))], r.IntN(2) == 0
		case 3:
			g.Second = peerKinds[r.IntN(len(peerKinds))]
		case 4:
			g.Own = !g.Own
		}
	}
	return g
}

// String is JSON.
func (g Genome) String() string {
	text, err := json.Marshal(g)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Objects returns the manifests, of which policies take so many bytes at most: what is beyond is
// left out.
func (g Genome) Objects(most int) []any {
	r := rand.New(rand.NewPCG(g.Seed, 1))
	out := pods(max(g.Pods, 1), func(i int) map[string]string {
		labels := byID(i)
		for k := range 16 {
			if r.IntN(2) == 0 {
				labels[fmt.Sprintf("h%d", k)] = ""
			}
		}
		return labels
	})
	for i, o := range out {
		if p, ok := o.(*corev1.Pod); ok {
			p.Spec.NodeName = map[bool]string{true: Node, false: "n2"}[i < g.Local]
		}
	}
	bytes, n := 0, 0
	for p := range g.Policies {
		np := policy(fmt.Sprintf("p%d", p))
		np.Spec.PodSelector = *g.subject(r, p)
		for range g.Rules {
			n++
			rule := networkingv1.NetworkPolicyIngressRule{}
			for i := range g.Ports {
				rule.Ports = append(rule.Ports, g.port(r, n+i)...)
			}
			for i := range g.Peers {
				kind := g.Peer
				if i%2 == 1 {
					kind = g.Second
				}
				rule.From = append(rule.From, g.peer(r, kind, n*g.Peers+i))
			}
			size := Bytes([]any{rule})
			if bytes += size; bytes > most {
				break
			}
			np.Spec.Ingress = append(np.Spec.Ingress, rule)
			if g.Egress && bytes+size <= most {
				bytes += size
				np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: rule.Ports, To: rule.From})
			}
		}
		if g.Egress {
			np.Spec.PolicyTypes = append(np.Spec.PolicyTypes, networkingv1.PolicyTypeEgress)
		}
		out = append(out, np)
		if bytes > most {
			break
		}
	}
	if g.Own {
		out = withOwnPolicies(out)
	}
	return out
}

func (g Genome) subject(r *rand.Rand, p int) *metav1.LabelSelector {
	switch g.Subject {
	case "one pod":
		return &metav1.LabelSelector{MatchLabels: byID(p % max(g.Local, 1))}
	case "half of the pods":
		return half(r)
	}
	return &metav1.LabelSelector{}
}

func half(r *rand.Rand) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprintf("h%d", r.IntN(16)), Operator: metav1.LabelSelectorOpExists}}}
}

func (g Genome) peer(r *rand.Rand, kind string, n int) networkingv1.NetworkPolicyPeer {
	pods := max(g.Pods, 1)
	switch kind {
	case "one pod":
		return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{MatchLabels: byID(n % pods)}}
	case "all pods but one":
		return notIn(byID(n % pods)["id"])
	case "half of the pods":
		return networkingv1.NetworkPolicyPeer{PodSelector: half(r)}
	case "one address":
		return block(host(n) + "/32")
	case "all but one address":
		return block("0.0.0.0/0", host(n)+"/32")
	case "nested blocks":
		return nested([]byte{byte(8 + r.IntN(3)), byte(r.IntN(2)), byte(r.IntN(2)), byte(r.IntN(4))}, 1+r.IntN(31))
	case "nested IPv6":
		b := make([]byte, 16)
		b[0] = 0xfd
		for i := 1; i < 16; i++ {
			b[i] = byte(r.IntN(2))
		}
		return nested(b, 8+r.IntN(120))
	case "scattered blocks":
		return nested([]byte{byte(1 + r.IntN(220)), byte(r.IntN(256)), byte(r.IntN(256)), 0}, 9+r.IntN(16))
	}
	return networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}
}

// nested is a block around an address with an exception in it.
func nested(b []byte, bits int) networkingv1.NetworkPolicyPeer {
	a, _ := netip.AddrFromSlice(b)
	around, within := netip.PrefixFrom(a, bits).Masked(), netip.PrefixFrom(a, bits+1).Masked()
	return block(around.String(), within.String())
}

func (g Genome) port(r *rand.Rand, n int) []networkingv1.NetworkPolicyPort {
	switch g.Port {
	case "its own port":
		return []networkingv1.NetworkPolicyPort{number(1 + 2*(n%32000))}
	case "scattered ports":
		return []networkingv1.NetworkPolicyPort{number(1 + r.IntN(65535))}
	case "overlapping ranges":
		return []networkingv1.NetworkPolicyPort{span(1+n%32000, 65535-n%32000)}
	case "adjacent ranges":
		first := 1 + 4*(n%16000)
		return []networkingv1.NetworkPolicyPort{span(first, first+3)}
	}
	return nil
}
