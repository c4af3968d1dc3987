package kube

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

type fields = map[string]any

// TestRefusedClosesWhatItMaySelect: a refused policy that has no older version closes as much as
// can be read of whom it is for, in the directions in which it may deny.
func TestRefusedClosesWhatItMaySelect(t *testing.T) {
	labelled := func(key string) fields { return fields{"matchLabels": fields{key: "x"}} }
	unknown := fields{"matchExpressions": []any{fields{"key": "app", "operator": "in", "values": []any{"x"}}}}
	rules := func(field, action string) func(fields) {
		return func(spec fields) {
			spec[field] = []any{fields{"action": action, map[string]string{"ingress": "from", "egress": "to"}[field]: []any{fields{"namespaces": fields{}}}}}
		}
	}
	subject := func(s fields) func(fields) { return func(spec fields) { spec["subject"] = s } }
	set := func(name string, v any) func(fields) { return func(spec fields) { spec[name] = v } }
	for name, c := range map[string]struct {
		changes []func(fields)
		want    string // the subject's namespaces, its pods, what is denied, the priority
	}{
		"an unknown operator":                 {[]func(fields){subject(fields{"namespaces": unknown})}, "nobody ingress 5"},
		"an unknown operator in pods":         {[]func(fields){subject(fields{"pods": fields{"namespaceSelector": labelled("team"), "podSelector": unknown}})}, "team=x all ingress 5"},
		"the same in every namespace":         {[]func(fields){subject(fields{"pods": fields{"namespaceSelector": fields{}, "podSelector": unknown}})}, "nobody ingress 5"},
		"an unknown operator in namespaces":   {[]func(fields){subject(fields{"pods": fields{"namespaceSelector": unknown, "podSelector": labelled("app")}})}, "nobody ingress 5"},
		"a subject of a type that is none":    {[]func(fields){set("subject", "x")}, "nobody ingress 5"},
		"no subject":                          {[]func(fields){set("subject", nil)}, "nobody ingress 5"},
		"a priority that is none":             {[]func(fields){set("priority", int64(-1))}, "all all ingress 0"},
		"a priority of a type that is none":   {[]func(fields){set("priority", "x")}, "all all ingress 0"},
		"no priority":                         {[]func(fields){set("priority", nil)}, "all all ingress 0"},
		"an unknown field":                    {[]func(fields){set("schedule", "x")}, "all all ingress egress 5"},
		"an unknown field of a rule":          {[]func(fields){set("egress", []any{fields{"action": "Deny", "when": "x"}})}, "all all ingress egress 5"},
		"rules that are none":                 {[]func(fields){set("egress", "x")}, "all all ingress egress 5"},
		"rules that only allow":               {[]func(fields){rules("ingress", "Allow"), subject(fields{"namespaces": labelled("team")}), set("priority", int64(1001))}, "team=x all 0"},
		"rules that allow, with a bad one":    {[]func(fields){rules("ingress", "Allow"), set("egress", []any{fields{"action": "Allow", "when": "x"}})}, "all all 5"},
		"rules that pass":                     {[]func(fields){rules("egress", "Pass"), set("priority", int64(1001))}, "all all ingress egress 0"},
		"nothing that can be read, at a time": {[]func(fields){set("subject", "x"), set("priority", "y"), set("ingress", int64(7))}, "nobody ingress 0"},
	} {
		t.Run(name, func(t *testing.T) {
			obj := custom(func(spec map[string]any) {
				for _, change := range c.changes {
					change(spec)
				}
				for key, v := range spec {
					if v == nil {
						delete(spec, key)
					}
				}
			})
			id := model.ID{Kind: model.KindAdminNetworkPolicy, Name: "shut"}
			msg, problems := messageOf(id, obj)
			got, ok := refused(id, obj, problems).(*model.ClusterPolicy)
			if msg != nil || !ok || got.GetRefused() == "" || got.GetName() != "shut" || got.GetTier() != model.ClusterPolicy_TIER_ADMIN {
				t.Fatalf("it is %v, with %v in its place", msg, got)
			}
			if text := textOf(got); text != c.want {
				t.Errorf("it is %q, want %q", text, c.want)
			}
		})
	}
}

// textOf describes a refused policy: whom it is for, in which directions it denies everything, and
// its priority.
func textOf(p *model.ClusterPolicy) string {
	words := []string{"nobody"}
	if s := p.GetSubject(); s != nil {
		words = nil
		for _, sel := range []*model.LabelSelector{s.GetNamespaces(), s.GetPods()} {
			word := "all"
			for _, l := range sel.GetMatchLabels() {
				word = l.GetKey() + "=" + l.GetValue()
			}
			words = append(words, word)
		}
	}
	denies := []*model.ClusterPolicy_Rule{{Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}}
	for word, rules := range map[string][]*model.ClusterPolicy_Rule{"ingress": p.GetIngress(), "egress": p.GetEgress()} {
		if len(rules) == 1 && proto.Equal(rules[0], denies[0]) {
			words = append(words, word)
		} else if len(rules) > 0 {
			words = append(words, "other rules")
		}
	}
	if n := len(words); n > 2 && words[n-1] == "ingress" && words[n-2] == "egress" {
		words[n-2], words[n-1] = words[n-1], words[n-2]
	}
	return strings.Join(append(words, string(rune('0'+p.GetPriority()))), " ")
}

// reflecting runs a mirror of NetworkPolicies over etcd, as a new process does.
func reflecting(t *testing.T, client *kvstore.Client, policies ...*networkingv1.NetworkPolicy) (stop func()) {
	t.Helper()
	mirror := reflect.NewMirror(model.DefaultPrefix, []model.Kind{model.KindNetworkPolicy}, slog.New(slog.DiscardHandler))
	mirror.Identify(reflect.Identity{Cluster: "c", Level: model.Level})
	s, _, _ := newPassThroughStore(t, model.KindNetworkPolicy)
	s.cfg.Sink = mirror
	var list []any
	for _, p := range policies {
		list = append(list, p)
	}
	if err := s.Replace(list, "1"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mirror.Run(ctx, owned{client}, time.Hour) }()
	programs.Eventually(t, func() error {
		if st := mirror.Status(); !st.Synced || st.Pending > 0 {
			return errors.New("not yet")
		}
		return nil
	})
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestSourceRestartKeepsPolicyThatItRefuses: what is in force of a policy stays after a restart,
// although its newest version is refused; a new one that is refused closes its namespace.
func TestSourceRestartKeepsPolicyThatItRefuses(t *testing.T) {
	client := inprocess.Start(t, embedded.Config{}).Client()
	stop := reflecting(t, client, policyOf("a", "Exists"))
	stop()
	stop = reflecting(t, client, policyOf("a", "Sometimes"), policyOf("b", "Sometimes"))
	defer stop()
	entries, _, err := client.List(t.Context(), model.KindRoot(model.DefaultPrefix, model.KindNetworkPolicy))
	if err != nil || len(entries) != 2 {
		t.Fatalf("etcd has %v: %v", entries, err)
	}
	for _, e := range entries {
		id, _ := model.ParseKey(model.DefaultPrefix, e.Key)
		m, err := model.Decode(id, e.Value)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := m.(*model.NetworkPolicy)
		n := len(p.GetPodSelector().GetMatchExpressions())
		switch why := p.GetRefused(); id.Name {
		case "a":
			if n != 1 || why != "" {
				t.Errorf("the policy in force is %v", p)
			}
		case "b":
			if n != 0 || !p.GetIsolatesIngress() || len(p.GetIngress()) != 0 || !strings.Contains(why, `"Sometimes" is not an operator`) {
				t.Errorf("the refused policy is %v", p)
			}
		}
	}
}

// TestRefusedPolicyKeepsItsSelector: what is refused for another reason closes only what it
// selects.
func TestRefusedPolicyKeepsItsSelector(t *testing.T) {
	for name, change := range map[string]func(*networkingv1.NetworkPolicy){
		"a type that is none": func(p *networkingv1.NetworkPolicy) { p.Spec.PolicyTypes = []networkingv1.PolicyType{"Sideways"} },
		"too many rules": func(p *networkingv1.NetworkPolicy) {
			p.Spec.Egress = make([]networkingv1.NetworkPolicyEgressRule, 100_001)
		},
	} {
		p := policyOf("a", "Exists")
		change(p)
		id := model.ID{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "a"}
		msg, problems := messageOf(id, p)
		got, _ := refused(id, p, problems).(*model.NetworkPolicy)
		if msg != nil || len(got.GetPodSelector().GetMatchExpressions()) != 1 || !got.GetIsolatesIngress() || !got.GetIsolatesEgress() || len(got.GetEgress()) != 0 {
			t.Errorf("%s: it is %v, with %v in its place", name, msg, got)
		}
	}
}
