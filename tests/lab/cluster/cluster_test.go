package cluster

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
)

func TestSequenceDependsOnSeedOnly(t *testing.T) {
	a, b := RandomSequence(7, Small(), 50), RandomSequence(7, Small(), 50)
	if diff := cmp.Diff(a, b); diff != "" {
		t.Errorf("two runs differ:\n%s", diff)
	}
	if cmp.Equal(a[0].State, Random(8, Small())) {
		t.Error("two seeds give one state")
	}
}

func TestStepKeepsPreviousState(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before := Gen(Small()).Draw(t, "state")
		copied := Copy(before)
		step := GenStep(Small(), before).Draw(t, "step")
		if diff := cmp.Diff(copied, before); diff != "" {
			t.Fatalf("%s changed the state before:\n%s", step.What, diff)
		}
	})
}

func TestStateIsAlwaysPossible(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		for _, step := range GenSequence(Small(), 12).Draw(t, "sequence") {
			checkState(t, step)
		}
	})
}

func checkState(t *rapid.T, step Step) {
	names := map[string]bool{}
	claim := func(kind, namespace, name string) {
		key := kind + " " + namespace + "/" + name
		if names[key] {
			t.Fatalf("after %q two objects are %s", step.What, key)
		}
		names[key] = true
	}
	for _, o := range AdminPolicies(step.State) {
		claim(kindOf(o), "", o.GetName())
	}
	nodes := map[string]*corev1.Node{}
	for _, n := range step.State.Nodes {
		nodes[n.Name] = n
	}
	for _, n := range step.State.Namespaces {
		claim("Namespace", "", n.Name)
	}
	for _, np := range step.State.Policies {
		claim("NetworkPolicy", np.Namespace, np.Name)
	}
	for _, p := range step.State.Pods {
		claim("Pod", p.Namespace, p.Name)
		if addrs := nodes[p.Spec.NodeName].Status.Addresses; p.Status.HostIPs[1].IP != addrs[1].Address {
			t.Fatalf("after %q %s has host %v on a node with %v", step.What, p.Name, p.Status.HostIPs, addrs)
		}
	}
	for addr, n := range addressesOf(step.State.Pods) {
		if n > 1 {
			t.Fatalf("after %q %d pods have %s", step.What, n, addr)
		}
	}
}

func TestStateSharesAddressesOnRequest(t *testing.T) {
	cfg := SmallWithSharedAddresses()
	for seed := range uint64(50) {
		for _, n := range addressesOf(Random(seed, cfg).Pods) {
			if n > 1 {
				return
			}
		}
	}
	t.Error("no two pods of 50 clusters share an address")
}

// TestStateReachesEveryShape guards the generators against losing a shape.
func TestStateReachesEveryShape(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(300) {
		for _, step := range RandomSequence(seed, Small(), 20) {
			if step.What != nothing {
				seen["step "+step.Action] = true
			}
			noteShapes(step.State, seen)
		}
	}
	want := []string{
		"host network", "finished", "terminating", "no address", "two addresses", "IPv6 only", "IPv6 first", "sidecar", "namespace unknown",
		"types nil", "types [Ingress]", "types [Egress]", "types [Ingress Egress]", "types nil with egress rules", "no rules", "rule without fields",
		"peers nil", "peers empty", "peer without field", "block and selector", "except", "two excepts", "both selectors", "IPv6 block",
		"selects all", "all pods", "all namespaces", "value is empty",
		"ports nil", "ports empty", "port empty", "port named", "port range", "port SCTP", "port unknown protocol", "whole range", "port of protocol",
		"NotIn", "DoesNotExist", "Exists", "In", "invalid operator",
	}
	for _, a := range Actions() {
		want = append(want, "step "+a)
	}
	for _, w := range want {
		if !seen[w] {
			t.Errorf("never seen: %s", w)
		}
	}
}

func noteShapes(s State, seen map[string]bool) {
	for _, p := range s.Pods {
		seen["host network"] = seen["host network"] || p.Spec.HostNetwork
		seen["finished"] = seen["finished"] || p.Status.Phase == corev1.PodFailed
		seen["terminating"] = seen["terminating"] || p.DeletionTimestamp != nil
		seen["no address"] = seen["no address"] || len(p.Status.PodIPs) == 0
		seen["two addresses"] = seen["two addresses"] || len(p.Status.PodIPs) == 2
		seen["IPv6 first"] = seen["IPv6 first"] || len(p.Status.PodIPs) == 2 && strings.Contains(p.Status.PodIP, ":")
		seen["IPv6 only"] = seen["IPv6 only"] || len(p.Status.PodIPs) == 1 && strings.Contains(p.Status.PodIP, ":")
		for _, c := range p.Spec.InitContainers {
			seen["sidecar"] = seen["sidecar"] || c.RestartPolicy != nil
		}
		known := slices.ContainsFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == p.Namespace })
		seen["namespace unknown"] = seen["namespace unknown"] || !known
	}
	for _, np := range s.Policies {
		types := "nil"
		if np.Spec.PolicyTypes != nil {
			var names []string
			for _, t := range np.Spec.PolicyTypes {
				names = append(names, string(t))
			}
			types = "[" + strings.Join(names, " ") + "]"
		}
		seen["types "+types] = true
		seen["types nil with egress rules"] = seen["types nil with egress rules"] || np.Spec.PolicyTypes == nil && len(np.Spec.Egress) > 0
		seen["no rules"] = seen["no rules"] || len(np.Spec.Ingress)+len(np.Spec.Egress) == 0
		seen["selects all"] = seen["selects all"] || isAll(&np.Spec.PodSelector)
		for _, r := range np.Spec.Ingress {
			noteRule(r.From, r.Ports, seen)
		}
		for _, r := range np.Spec.Egress {
			noteRule(r.To, r.Ports, seen)
		}
	}
}

func isAll(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}

func noteRule(peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, seen map[string]bool) {
	seen["peers nil"] = seen["peers nil"] || peers == nil
	seen["peers empty"] = seen["peers empty"] || peers != nil && len(peers) == 0
	seen["rule without fields"] = seen["rule without fields"] || len(peers)+len(ports) == 0
	for _, p := range peers {
		none := p.PodSelector == nil && p.NamespaceSelector == nil
		seen["peer without field"] = seen["peer without field"] || none && p.IPBlock == nil
		seen["block and selector"] = seen["block and selector"] || !none && p.IPBlock != nil
		seen["except"] = seen["except"] || p.IPBlock != nil && len(p.IPBlock.Except) > 0
		seen["two excepts"] = seen["two excepts"] || p.IPBlock != nil && len(p.IPBlock.Except) > 1
		seen["IPv6 block"] = seen["IPv6 block"] || p.IPBlock != nil && strings.Contains(p.IPBlock.CIDR, "::/")
		seen["all pods"] = seen["all pods"] || isAll(p.PodSelector)
		seen["all namespaces"] = seen["all namespaces"] || isAll(p.NamespaceSelector)
		seen["both selectors"] = seen["both selectors"] || p.PodSelector != nil && p.NamespaceSelector != nil
		if p.PodSelector == nil {
			continue
		}
		for _, e := range p.PodSelector.MatchExpressions {
			seen[string(e.Operator)] = true
			seen["value is empty"] = seen["value is empty"] || slices.Contains(e.Values, "")
			seen["invalid operator"] = seen["invalid operator"] || e.Operator == "Like"
		}
	}
	seen["ports nil"] = seen["ports nil"] || ports == nil
	seen["ports empty"] = seen["ports empty"] || ports != nil && len(ports) == 0
	for _, p := range ports {
		seen["whole range"] = seen["whole range"] || p.EndPort != nil && *p.EndPort == 65535
		seen["port of protocol"] = seen["port of protocol"] || p.Port == nil && p.Protocol != nil
		seen["port empty"] = seen["port empty"] || p.Port == nil && p.Protocol == nil && p.EndPort == nil
		seen["port named"] = seen["port named"] || p.Port != nil && p.Port.Type == intstr.String
		seen["port range"] = seen["port range"] || p.EndPort != nil && *p.EndPort > 80
		seen["port SCTP"] = seen["port SCTP"] || p.Protocol != nil && *p.Protocol == corev1.ProtocolSCTP
		seen["port unknown protocol"] = seen["port unknown protocol"] || p.Protocol != nil && *p.Protocol == "ICMP"
	}
}

func TestFlowsCoverEdges(t *testing.T) {
	s := State{
		Pods: []*corev1.Pod{{Status: corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.1.0.4"}}}}},
		Policies: []*networkingv1.NetworkPolicy{{Spec: networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "10.2.0.0/24", Except: []string{"10.2.0.128/25"}}}},
			Ports: []networkingv1.NetworkPolicyPort{{Port: number(80)}},
		}}}}},
	}
	flows := Flows(s)
	for _, src := range []string{"10.1.255.255", "10.2.0.0", "10.2.0.127", "10.2.0.128", "10.2.0.255", "10.2.1.0", "10.1.0.4", "198.51.100.7"} {
		for _, port := range []uint16{79, 80, 81} {
			for _, protocol := range []api.Protocol{api.TCP, api.UDP, api.SCTP} {
				want := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr("10.1.0.4"), Protocol: protocol, SrcPort: 40000, DstPort: port}
				if !slices.Contains(flows, want) {
					t.Errorf("%s is not among the flows", want)
				}
			}
		}
		icmp := api.Flow{Src: netip.MustParseAddr("10.1.0.4"), Dst: netip.MustParseAddr(src), Protocol: api.ICMP}
		if !slices.Contains(flows, icmp) {
			t.Errorf("%s is not among the flows", icmp)
		}
	}
}

func TestFlowsArePossibleAndHavePod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := Gen(Small()).Draw(t, "state")
		space := FlowSpace(s)
		all := map[api.Flow]bool{}
		for f := range space.All() {
			if all[f] {
				t.Fatalf("%s comes twice", f)
			}
			all[f] = true
			if f.Src.Is4() != f.Dst.Is4() || f.Src.Is4In6() || f.Src.IsUnspecified() {
				t.Fatalf("%s cannot exist", f)
			}
			if !slices.Contains(space.Pods, f.Src) && !slices.Contains(space.Pods, f.Dst) {
				t.Fatalf("%s has no pod", f)
			}
		}
		for _, f := range space.Random(NewRand(1), 50) {
			if !all[f] {
				t.Fatalf("%s was drawn but is not in the space", f)
			}
		}
	})
}

func BenchmarkRandomLarge(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if s := Random(1, Large(10000, 1000)); len(s.Pods) != 10000 {
			b.Fatal("pods are missing")
		}
	}
}
