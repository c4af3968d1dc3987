package oracle

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/network-policy-api/apis/v1alpha1"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
)

// outlined is a cluster in which policies name pods in every way.
func outlined(t *testing.T) *Oracle {
	t.Helper()
	var s State
	for text, object := range map[string]any{
		`{metadata: {name: shop, labels: {team: shop}}}`: &corev1.Namespace{},
		`{metadata: {name: web, namespace: shop, labels: {app: web}}, status: {phase: Running, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}}`:             &corev1.Pod{},
		`{metadata: {name: agent, namespace: shop, labels: {app: web}}, spec: {hostNetwork: true}, status: {phase: Running, podIPs: [{ip: 10.0.0.9}]}}`: &corev1.Pod{},
		`{metadata: {name: a, namespace: shop}, spec: {podSelector: {}, policyTypes: [Ingress], ingress: [{from: [{podSelector: {matchLabels: {app: web}}}, {podSelector: {matchLabels: {app: db}}}], ports: [{port: 80}]}, {}],
		  egress: [{to: [{ipBlock: {cidr: "fd00::/64"}}]}]}}`: &networkingv1.NetworkPolicy{},
		`{metadata: {name: b, namespace: shop}, spec: {podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.0.0.1/32]}}]}]}}`:      &networkingv1.NetworkPolicy{},
		`{metadata: {name: refused, namespace: shop}, spec: {podSelector: {}, policyTypes: [Sideways], ingress: [{from: [{podSelector: {}}]}]}}`:                               &networkingv1.NetworkPolicy{},
		`{metadata: {name: guard}, spec: {priority: 7, subject: {namespaces: {}}, ingress: [{name: shops, action: Deny, from: [{namespaces: {matchLabels: {team: shop}}}]}]}}`: &v1alpha1.AdminNetworkPolicy{},
	} {
		if err := yaml.Unmarshal([]byte(text), object); err != nil {
			t.Fatal(err)
		}
		s.Add(object)
	}
	return New(s)
}

func outlineTexts(rules []RuleText) (out []string) {
	for _, r := range rules {
		text := api.OriginTexts([]api.Origin{r.Origin}) + ": " + string(r.Action) + " " + strings.Join(r.Peers, " | ") + ", " + strings.Join(r.Ports, " | ")
		if r.Note != "" {
			text += " (" + r.Note + ")"
		}
		out = append(out, text)
	}
	return out
}

func TestOracleNamingFindsPoliciesOfPod(t *testing.T) {
	o := outlined(t)
	for id, want := range map[string][]string{
		"web": {
			"ingress rule 0 of shop/a:  from app=web, port 80/tcp",
			"egress rule 0 of shop/a:  to fd00::/64, every port and protocol (no effect: the policy does not isolate egress)",
			"ingress rule 0 of AdminNetworkPolicy guard: Deny from every pod in namespaces team=shop, every port and protocol",
		},
		"agent": {"egress rule 0 of shop/b:  to 10.0.0.0/24 except 10.0.0.1/32, every port and protocol"}, // no selector selects what is in the host network
		"none":  nil,
	} {
		if d := cmp.Diff(want, outlineTexts(o.Naming(api.PodID{Namespace: "shop", Name: id}))); d != "" {
			t.Errorf("%s (-want +got):\n%s", id, d)
		}
	}
}

func TestOracleRulesAreOfOnePolicy(t *testing.T) {
	o := outlined(t)
	want := []string{
		"ingress rule 0 of shop/a:  from app=web | from app=db, port 80/tcp",
		"ingress rule 1 of shop/a:  from anywhere, every port and protocol",
		"egress rule 0 of shop/a:  to fd00::/64, every port and protocol (no effect: the policy does not isolate egress)",
	}
	if d := cmp.Diff(want, outlineTexts(o.Rules(api.PolicyID{Namespace: "shop", Name: "a"}))); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if r := o.Rules(api.PolicyID{Namespace: "shop", Name: "refused"}); r != nil {
		t.Errorf("a policy that is refused has the rules %v", r)
	}
	if r := o.Rules(api.PolicyID{Kind: api.AdminNetworkPolicy, Name: "guard"}); len(r) != 1 || r[0].Name != "shops" {
		t.Errorf("a policy of administrators has the rules %v", r)
	}
}

func TestOracleSelectingIsByLabels(t *testing.T) {
	o := outlined(t)
	want := []string{"AdminNetworkPolicy guard", "NetworkPolicy shop/a", "NetworkPolicy shop/b"}
	var got []string
	for _, id := range o.Selecting(api.PodID{Namespace: "shop", Name: "web"}) {
		got = append(got, id.String())
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, name := range []string{"agent", "none"} {
		if ids := o.Selecting(api.PodID{Namespace: "shop", Name: name}); ids != nil {
			t.Errorf("%s is selected by %v", name, ids)
		}
	}
}
