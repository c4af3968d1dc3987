package cache

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/plugins/policy/internal/intent"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
)

func everyPod() *model.ClusterPolicy_Peer {
	return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{}, Pods: &model.LabelSelector{}}}}
}

func network(cidr string) *model.ClusterPolicy_Peer {
	return &model.ClusterPolicy_Peer{Peer: &model.ClusterPolicy_Peer_Network{Network: cidr}}
}

func invalidSelector() *model.LabelSelector {
	return &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "a"}}}
}

// ruleText returns the result of a rule as text.
func ruleText(r intent.Rule) string {
	var parts []string
	if r.AnyPeer {
		parts = append(parts, "everyone")
	}
	for _, p := range r.Peers {
		switch {
		case p.Block != nil:
			parts = append(parts, p.Block.CIDR.String())
		case p.Nodes != nil:
			parts = append(parts, "nodes "+p.Nodes.String())
		default:
			parts = append(parts, "pods "+p.Namespaces.String()+"/"+p.Pods.String())
		}
	}
	parts = append(parts, "on")
	if r.AnyPort {
		parts = append(parts, "everything")
	}
	for _, p := range r.Ports {
		parts = append(parts, fmt.Sprint(p.Protocol, " ", p.Range, p.Name))
	}
	return [...]string{"deny", "allow", "pass"}[r.Action] + " " + strings.Join(parts, " ")
}

// Unknown parts fail closed: they allow nothing, and they deny everything.
func TestParserOfClusterRulesFailsClosed(t *testing.T) {
	tcp := model.Protocol_PROTOCOL_TCP
	number := func(first, last uint32) []*model.ClusterPolicy_Port {
		return []*model.ClusterPolicy_Port{{Protocol: tcp, Port: &model.ClusterPolicy_Port_Number{Number: first}, EndPort: last}}
	}
	name := []*model.ClusterPolicy_Port{{Port: &model.ClusterPolicy_Port_Name{Name: "web"}}}
	for _, tt := range []struct {
		name                 string
		peers                []*model.ClusterPolicy_Peer
		ports                []*model.ClusterPolicy_Port // none: any
		allows, denies, pass string                      // "": nothing is wrong with it
	}{
		{name: "a network", peers: []*model.ClusterPolicy_Peer{network("10.0.0.0/8")}, allows: "10.0.0.0/8 on everything"},
		{name: "a network with host bits", peers: []*model.ClusterPolicy_Peer{network("10.1.2.3/8")}, allows: "10.0.0.0/8 on everything"},
		{
			name:   "nodes",
			peers:  []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: &model.LabelSelector{MatchLabels: lbls("zone=1")}}}},
			allows: "nodes zone=1 on everything",
		},
		{name: "a range", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: number(80, 90), allows: "pods / on tcp 80-90"},
		{name: "a name", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: name, allows: "pods / on any anyweb"},
		{name: "a protocol", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: []*model.ClusterPolicy_Port{{Protocol: tcp}}, allows: "pods / on tcp any"},
		{name: "no peers", allows: "on everything", denies: "everyone on everything"},
		{name: "an empty peer", peers: []*model.ClusterPolicy_Peer{{}, everyPod()}, allows: "pods / on everything", denies: "everyone on everything"},
		{
			name: "the name of a domain", peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_DomainName{DomainName: "a.org"}}},
			allows: "on everything", denies: "everyone on everything",
		},
		{name: "no network", peers: []*model.ClusterPolicy_Peer{network("10.0.0.0")}, allows: "on everything", denies: "everyone on everything"},
		{
			name: "an invalid selector", peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Nodes{Nodes: invalidSelector()}}},
			allows: "on everything", denies: "everyone on everything",
		},
		{
			name: "a selector of pods only", peers: []*model.ClusterPolicy_Peer{{Peer: &model.ClusterPolicy_Peer_Pods{Pods: &model.ClusterPolicy_Pods{Pods: &model.LabelSelector{}}}}},
			allows: "on everything", denies: "everyone on everything",
		},
		{
			name: "an unknown protocol", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: []*model.ClusterPolicy_Port{{Protocol: 9}},
			allows: "pods / on", denies: "everyone on everything",
		},
		{name: "an inverted range", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: number(90, 80), allows: "pods / on", denies: "pods / on"},
		{name: "no port", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: number(0, 80), allows: "pods / on", denies: "pods / on"},
		{name: "a port that was wrong", peers: []*model.ClusterPolicy_Peer{everyPod()}, ports: []*model.ClusterPolicy_Port{{Invalid: true}}, allows: "pods / on", denies: "pods / on"},
		{name: "a name of what is no pod", peers: []*model.ClusterPolicy_Peer{network("10.0.0.0/8")}, ports: name, allows: "10.0.0.0/8 on", denies: "10.0.0.0/8 on"},
	} {
		if tt.denies == "" {
			tt.denies = tt.allows
		}
		for action, want := range map[model.ClusterPolicy_Action]string{
			model.ClusterPolicy_ACTION_ALLOW: "allow " + tt.allows, model.ClusterPolicy_ACTION_DENY: "deny " + tt.denies,
			model.ClusterPolicy_ACTION_PASS: "pass " + tt.denies, model.ClusterPolicy_ACTION_UNSPECIFIED: "deny " + tt.denies,
		} {
			if tt.denies == "everyone on everything" && action == model.ClusterPolicy_ACTION_PASS {
				want = "deny " + tt.denies
			}
			m := onePolicy("p", 0, "")
			m.Egress = []*model.ClusterPolicy_Rule{{Action: action, Peers: tt.peers, Ports: tt.ports, AnyPort: len(tt.ports) == 0}}
			c := New()
			c.Update(changes(m), &diary{})
			if diff := cmp.Diff(want, strings.TrimSuffix(ruleText(c.PolicySpecs()[0].Egress[0]), " ")); diff != "" {
				t.Errorf("%s, %s: %s", tt.name, action, diff)
			}
			c.Update(model.Changes{Resync: true}, &diary{})
			if n := len(c.policies.selectors.byText); n > 0 {
				t.Errorf("%s: %d selectors are left over", tt.name, n)
			}
		}
	}
}

// TestParserLimitsNamesTimesPeers: another writer may have stored the value. The
// rule fails closed, the next one is enforced, and no selector is left over.
func TestParserLimitsNamesTimesPeers(t *testing.T) {
	name := &model.ClusterPolicy_Port{Port: &model.ClusterPolicy_Port_Name{Name: "web"}}
	large := func(action model.ClusterPolicy_Action) *model.ClusterPolicy_Rule {
		return &model.ClusterPolicy_Rule{Action: action, Peers: slices.Repeat([]*model.ClusterPolicy_Peer{everyPod()}, 317), Ports: slices.Repeat([]*model.ClusterPolicy_Port{name}, 317)}
	}
	for action, c := range map[model.ClusterPolicy_Action]struct{ becomes, want string }{
		model.ClusterPolicy_ACTION_ALLOW:       {"matches nothing", "allow on"},
		model.ClusterPolicy_ACTION_DENY:        {"denies everything", "deny everyone on everything"},
		model.ClusterPolicy_ACTION_PASS:        {"denies everything", "deny everyone on everything"},
		model.ClusterPolicy_ACTION_UNSPECIFIED: {"denies everything", "deny everyone on everything"},
	} {
		m := onePolicy("p", 0, "")
		m.Egress = []*model.ClusterPolicy_Rule{large(action), {Action: model.ClusterPolicy_ACTION_ALLOW, Peers: []*model.ClusterPolicy_Peer{everyPod()}, Ports: []*model.ClusterPolicy_Port{name}}}
		m.Ingress = []*model.ClusterPolicy_Rule{large(action)} // of ingress every pod has its own numbers
		c0 := New()
		problems := c0.Update(changes(m), &diary{})
		spec := c0.PolicySpecs()[0]
		if got := strings.TrimSpace(ruleText(spec.Egress[0])); got != c.want {
			t.Errorf("%s: %s, want %s", action, got, c.want)
		}
		if got := ruleText(spec.Egress[1]); got != "allow pods / on any anyweb" {
			t.Errorf("%s: the next rule is %s", action, got)
		}
		if len(spec.Ingress[0].Ports) != 1 {
			t.Errorf("%s: the ingress rule is %s", action, ruleText(spec.Ingress[0]))
		}
		if text := fmt.Sprint(problems); !strings.Contains(text, "spec.egress[0]: the rule "+c.becomes+": its 100489 combinations") {
			t.Errorf("%s: %s", action, text)
		}
		c0.Update(model.Changes{Resync: true}, &diary{})
		if n := len(c0.policies.selectors.byText); n > 0 {
			t.Errorf("%s: %d selectors are left over", action, n)
		}
	}
}

func TestParserClosesIngressOfEgressPeers(t *testing.T) {
	m := onePolicy("p", 0, "")
	m.Ingress = []*model.ClusterPolicy_Rule{
		{Action: model.ClusterPolicy_ACTION_PASS, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{network("10.0.0.0/8")}},
		{Action: model.ClusterPolicy_ACTION_ALLOW, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{network("10.0.0.0/8"), everyPod()}},
	}
	c := New()
	c.Update(changes(m), &diary{})
	for i, want := range []string{"deny everyone on everything", "allow pods / on everything"} {
		if got := ruleText(c.PolicySpecs()[0].Ingress[i]); got != want {
			t.Errorf("rule %d: %s, want %s", i, got, want)
		}
	}
}

func TestParserRefusesPassOfLastTier(t *testing.T) {
	m := onePolicy("default", 1001, "")
	m.Kind, m.Tier = model.ClusterPolicy_KIND_BASELINE_ADMIN_NETWORK_POLICY, model.ClusterPolicy_TIER_BASELINE
	m.Egress = []*model.ClusterPolicy_Rule{{Action: model.ClusterPolicy_ACTION_PASS, AnyPort: true, Peers: []*model.ClusterPolicy_Peer{everyPod()}}}
	c := New()
	if found := c.Update(changes(m), &diary{}); len(found) != 1 || found[0].Field != "spec.egress[0].action" {
		t.Errorf("found %v", found)
	}
	if got := ruleText(c.PolicySpecs()[0].Egress[0]); got != "deny pods / on everything" {
		t.Error(got)
	}
}

func TestPoliciesWithoutPriorityAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*model.ClusterPolicy){
		"no tier":      func(m *model.ClusterPolicy) { m.Tier = 0 },
		"wrong tier":   func(m *model.ClusterPolicy) { m.Tier = model.ClusterPolicy_TIER_BASELINE },
		"low priority": func(m *model.ClusterPolicy) { m.Priority = 1001 },
	} {
		c := New()
		c.Update(changes(onePolicy("p", 7, "")), &diary{})
		m := onePolicy("p", 8, "")
		spoil(m)
		ch := changes(m)
		ch.Resync = true
		if found := c.Update(ch, &diary{}); len(found) != 1 {
			t.Errorf("%s: %v", name, found)
		}
		if specs := c.PolicySpecs(); len(specs) != 1 || specs[0].Priority != 7 {
			t.Errorf("%s: the good policy is not kept: %v", name, specs)
		}
	}
	c := New()
	m := onePolicy("p", 7, "")
	m.Subject.Namespaces = invalidSelector()
	if found := c.Update(changes(m), &diary{}); len(found) != 1 || c.PolicySpecs()[0].Subject != nil {
		t.Errorf("an invalid subject: %v %v", found, c.PolicySpecs())
	}
}

func TestSubjectsDifferByLabelsOfNamespaces(t *testing.T) {
	c := New()
	m := onePolicy("p", 0, "")
	m.Subject.Namespaces.MatchLabels = lbls("env=1")
	c.Update(changes(m, onePolicy("all", 0, "")), &diary{})
	in, out := intent.Labels{{Key: "env", Value: "1"}}, intent.Labels{{Key: "env", Value: "2"}}
	for _, tt := range []struct {
		a, b intent.Labels
		want bool
	}{
		{in, out, true}, {out, in, true}, {in, in, false}, {out, intent.Labels{{Key: "x", Value: "y"}}, false}, {nil, out, true}, {out, nil, true}, {nil, nil, false},
	} {
		if got := c.SubjectsDiffer(tt.a, tt.b); got != tt.want {
			t.Errorf("%v %v: %t", tt.a, tt.b, got)
		}
	}
}

func TestMatchNodesByLabels(t *testing.T) {
	c := New()
	found := c.Update(changes(
		&model.Node{Name: "a", Labels: lbls("zone=1"), Addresses: []string{"10.0.0.2", "10.0.0.1", "10.0.0.2"}},
		&model.Node{Name: "b", Labels: lbls("zone=2"), Addresses: []string{"::ffff:10.0.0.3", "b.example.org"}},
	), &diary{})
	if len(found) != 1 || found[0].Object != "Node b" {
		t.Errorf("found %v", found)
	}
	for text, want := range map[string]string{"zone=1": "a[10.0.0.1 10.0.0.2]", "zone=2": "b[10.0.0.3]", "zone=3": ""} {
		table := newSelectorTable()
		sel, err := table.acquire(&model.LabelSelector{MatchLabels: lbls(text)})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for n := range c.MatchNodes(sel) {
			got = append(got, fmt.Sprintf("%s%v", n.Name, n.Addresses))
		}
		slices.Sort(got)
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}
