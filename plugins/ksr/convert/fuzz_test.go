package convert

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatalf(string, ...any) }

// checkFailsClosed converts a policy and checks what must hold for any policy: no peer, port or
// rule is lost, each is well formed or matches nothing, and nothing matches nothing without a
// Problem.
func checkFailsClosed(t fataler, np *networkingv1.NetworkPolicy) {
	msg, problems := ToModel(np)
	if msg == nil {
		if len(problems) == 0 {
			t.Fatalf("refused without a problem")
		}
		return
	}
	got := msg.(*model.NetworkPolicy)
	closed := 0
	if got.IsolatesIngress {
		if len(got.Ingress) != len(np.Spec.Ingress) {
			t.Fatalf("%d ingress rules of %d", len(got.Ingress), len(np.Spec.Ingress))
		}
		for i, r := range np.Spec.Ingress {
			closed += checkRule(t, got.Ingress[i], len(r.From), r.Ports)
		}
	}
	if got.IsolatesEgress {
		if len(got.Egress) != len(np.Spec.Egress) {
			t.Fatalf("%d egress rules of %d", len(got.Egress), len(np.Spec.Egress))
		}
		for i, r := range np.Spec.Egress {
			closed += checkRule(t, got.Egress[i], len(r.To), r.Ports)
		}
	}
	if closed > len(problems) {
		t.Fatalf("%d fields match nothing, reported are %v", closed, problems)
	}
	if checkSelector(t, got.PodSelector) {
		t.Fatalf("kept with an invalid podSelector: %v", got)
	}
	first, second := encoded(t, np), encoded(t, np)
	if back, err := model.Decode(model.ID{Kind: model.KindNetworkPolicy, Namespace: np.Namespace, Name: np.Name}, first); err != nil || !bytes.Equal(first, second) {
		t.Fatalf("bytes %x and %x, read back as %v, %v", first, second, back, err)
	}
}

// checkRule returns how many peers and ports match nothing.
func checkRule(t fataler, r *model.NetworkPolicy_Rule, peers int, ports []networkingv1.NetworkPolicyPort) (closed int) {
	if len(r.Peers) != peers || len(r.Ports) != len(ports) {
		t.Fatalf("%d peers of %d and %d ports of %d", len(r.Peers), peers, len(r.Ports), len(ports))
	}
	for _, p := range r.Peers {
		if checkPeer(t, p) {
			closed++
		}
	}
	for i, p := range r.Ports {
		if p.Protocol == model.Protocol_PROTOCOL_UNSPECIFIED {
			t.Fatalf("port without a protocol: %v", p)
		}
		switch {
		case p.Invalid:
			closed++
		case (p.Port == nil) != (ports[i].Port == nil):
			t.Fatalf("port %v of %v", p, ports[i])
		case p.Port != nil && p.GetName() == "" && (p.GetNumber() < 1 || p.GetNumber() > 65535):
			t.Fatalf("port out of range: %v", p)
		case p.EndPort != 0 && (p.EndPort < p.GetNumber() || p.EndPort > 65535 || p.GetName() != ""):
			t.Fatalf("end of range: %v", p)
		}
	}
	return closed
}

// checkPeer reports whether the peer matches nothing.
func checkPeer(t fataler, p *model.NetworkPolicy_Peer) bool {
	if b := p.IpBlock; b != nil {
		if p.PodSelector != nil || p.NamespaceSelector != nil {
			t.Fatalf("block and selector: %v", p)
		}
		cidr, err := netip.ParsePrefix(b.Cidr)
		if err != nil || cidr != cidr.Masked() || cidr.String() != b.Cidr {
			t.Fatalf("not canonical: %v", b)
		}
		for _, text := range b.Except {
			if e, err := netip.ParsePrefix(text); err != nil || !strictlyWithin(e, cidr) || e.String() != text {
				t.Fatalf("except of %v", b)
			}
		}
		return false
	}
	invalidPods, invalidNamespaces := checkSelector(t, p.PodSelector), checkSelector(t, p.NamespaceSelector)
	return invalidPods || invalidNamespaces || p.PodSelector == nil && p.NamespaceSelector == nil
}

// checkSelector reports whether the selector is invalid, so that it matches nothing.
func checkSelector(t fataler, s *model.LabelSelector) bool {
	invalid := false
	for _, r := range s.GetMatchExpressions() {
		switch r.Operator {
		case model.LabelSelector_OPERATOR_UNSPECIFIED:
			invalid = true
		case model.LabelSelector_OPERATOR_IN, model.LabelSelector_OPERATOR_NOT_IN:
			if len(r.Values) == 0 {
				t.Fatalf("no values: %v", r)
			}
		default:
			if len(r.Values) > 0 {
				t.Fatalf("values: %v", r)
			}
		}
	}
	return invalid
}

func FuzzConvertPolicy(f *testing.F) {
	f.Fuzz(func(t *testing.T, spec []byte) {
		np := &networkingv1.NetworkPolicy{}
		if json.Unmarshal(spec, &np.Spec) != nil {
			return
		}
		np.Namespace, np.Name = "shop", "web"
		checkFailsClosed(t, np)
	})
}
