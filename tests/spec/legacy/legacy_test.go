package legacy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
)

const (
	nodeIP    = "192.168.0.1"
	outsideIP = "198.51.100.7"
)

// fataler is a *testing.T or a *rapid.T.
type fataler interface{ Fatalf(string, ...any) }

// text writes a world down, a JSON object per line.
func (w world) text(t fataler) string {
	var b strings.Builder
	line := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatalf("%v", err)
		}
		b.Write(append(raw, '\n'))
	}
	for _, p := range w.policies {
		line(p)
	}
	for _, p := range w.pods {
		var ports []map[string]any
		for name, number := range p.ports {
			ports = append(ports, map[string]any{"name": name, "containerPort": number})
		}
		line(map[string]any{
			"apiVersion": "v1", "kind": "Pod", "metadata": metadata{Name: p.name, Namespace: p.namespace, Labels: p.labels},
			"spec":   map[string]any{"containers": []any{map[string]any{"name": "c", "ports": ports}}},
			"status": map[string]any{"phase": "Running", "podIP": p.ip, "hostIP": nodeIP},
		})
	}
	for _, ns := range w.namespaces {
		if ns.absent {
			continue
		}
		m := metadata{Name: ns.name, Labels: ns.labels}
		if ns.annotation != "" {
			m.Annotations = map[string]string{"net.beta.kubernetes.io/network-policy": ns.annotation}
		}
		line(map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": m})
	}
	return b.String()
}

// routes are the two ways from a text to objects of today.
var routes = map[string]func(t fataler, text string) []kinds.Object{
	"reflected": func(t fataler, text string) []kinds.Object {
		l, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text), manifests.AcceptLegacy())
		if err != nil || len(l.Problems) > 0 {
			t.Fatalf("%v, %v", err, l.Problems)
		}
		return l.Objects
	},
	"written and read": func(t fataler, text string) []kinds.Object { return throughText(t, text, legacy.Before17) },
}

func throughText(t fataler, text string, cluster legacy.Cluster) []kinds.Object {
	m, err := manifests.ModerniseFiles([]string{manifests.Stdin}, strings.NewReader(text), cluster)
	if err != nil || len(m.Problems) > 0 {
		t.Fatalf("%v, %v", err, m.Problems)
	}
	var b bytes.Buffer
	if err := decode.WriteYAML(&b, m.Trees); err != nil {
		t.Fatalf("%v", err)
	}
	objs, problems := manifests.Decode(&b, "f")
	if len(problems) > 0 {
		t.Fatalf("what was converted is not accepted: %v", problems)
	}
	return objs
}

func oracleOf(objs []kinds.Object) *oracle.Oracle {
	var s oracle.State
	for _, o := range append(objs, kinds.ImpliedNamespaces(objs)...) {
		s.Add(o.Object)
	}
	return oracle.New(s)
}

// differences asks both sides about every flow.
func (w world) differences(o *oracle.Oracle) (out []string) {
	ask := func(src string, t traffic, to pod) {
		for _, t.protocol = range []string{"TCP", "UDP"} {
			for _, t.port = range []uint16{53, 80, 8080} {
				flow := api.Flow{Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(to.ip), Protocol: api.TCP, DstPort: t.port}
				if t.protocol == "UDP" {
					flow.Protocol = api.UDP
				}
				if want, got := w.isTrafficAllowed(t, to), o.Allowed(flow); want != got {
					out = append(out, fmt.Sprintf("%v to %s/%s: allowed is %v, the proposal says %v", flow, to.namespace, to.name, got, want))
				}
			}
		}
	}
	for _, to := range w.pods {
		for i := range w.pods {
			if from := &w.pods[i]; from.ip != to.ip {
				ask(from.ip, traffic{from: from}, to)
			}
		}
		ask(outsideIP, traffic{}, to)
		ask(nodeIP, traffic{kubelet: true}, to)
	}
	return out
}

var (
	genLabels   = rapid.SampledFrom([]map[string]string{nil, {"role": "a"}, {"role": "b"}, {"role": "a", "user": "bob"}})
	genSelector = rapid.SampledFrom([]metav1.LabelSelector{
		{}, {MatchLabels: map[string]string{"role": "a"}}, {MatchLabels: map[string]string{"user": "bob"}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "role", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"b"}}}},
		{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "user", Operator: metav1.LabelSelectorOpExists}}},
	})
	genPort = rapid.Custom(func(t *rapid.T) port {
		var out port
		if p := rapid.SampledFrom([]string{"", "TCP", "UDP"}).Draw(t, "protocol"); p != "" {
			out.Protocol = &p
		}
		if p := rapid.SampledFrom([]intstr.IntOrString{{}, intstr.FromInt32(53), intstr.FromInt32(80), intstr.FromString("http"), intstr.FromString("none")}).Draw(t, "port"); p != (intstr.IntOrString{}) {
			out.Port = &p
		}
		return out
	})
	genPeer = rapid.Custom(func(t *rapid.T) peer {
		s := genSelector.Draw(t, "selector")
		if rapid.Bool().Draw(t, "of pods") {
			return peer{PodSelector: &s}
		}
		return peer{NamespaceSelector: &s}
	})
	genRule = rapid.Custom(func(t *rapid.T) ingressRule {
		var r ingressRule
		if rapid.Bool().Draw(t, "has ports") {
			ports := rapid.SliceOfN(genPort, 0, 2).Draw(t, "ports")
			r.Ports = &ports
		}
		if rapid.Bool().Draw(t, "has from") {
			from := rapid.SliceOfN(genPeer, 0, 2).Draw(t, "from")
			r.From = &from
		}
		return r
	})
	genWorld = rapid.Custom(func(t *rapid.T) world {
		w := world{namespaces: map[string]namespace{}}
		names := []string{"default", "shop", "data"}
		for n, name := range names {
			ns := namespace{
				name: name, labels: genLabels.Draw(t, "labels"), absent: rapid.IntRange(0, 4).Draw(t, "absent") == 0,
				annotation: rapid.SampledFrom([]string{`{"ingress": {"isolation": "DefaultDeny"}}`, "", "{}", `{"ingress":{}}`}).Draw(t, "annotation"),
			}
			if ns.absent {
				ns.labels = nil // the labels are unknown
			}
			w.namespaces[name] = ns
			for i := range rapid.IntRange(0, 3).Draw(t, "pods") {
				p := pod{namespace: name, name: fmt.Sprintf("p%d", i), labels: genLabels.Draw(t, "labels"), ip: fmt.Sprintf("10.0.%d.%d", n, i+1)}
				if number := rapid.SampledFrom([]uint16{0, 80, 8080}).Draw(t, "http"); number != 0 {
					p.ports = map[string]uint16{"http": number}
				}
				w.pods = append(w.pods, p)
			}
		}
		for i := range rapid.IntRange(0, 5).Draw(t, "policies") {
			w.policies = append(w.policies, networkPolicy{
				APIVersion: "extensions/v1beta1", Kind: "NetworkPolicy", Metadata: metadata{Name: fmt.Sprintf("n%d", i), Namespace: rapid.SampledFrom(names).Draw(t, "namespace")},
				Spec: networkPolicySpec{PodSelector: genSelector.Draw(t, "podSelector"), Ingress: rapid.SliceOfN(genRule, 0, 3).Draw(t, "ingress")},
			})
		}
		return w
	})
)

// TestConvertKeepsMeaningOfProposal: on either way, for every flow.
func TestConvertKeepsMeaningOfProposal(t *testing.T) {
	for name, route := range routes {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) {
			w := genWorld.Draw(t, "world")
			text := w.text(t)
			if d := w.differences(oracleOf(route(t, text))); len(d) > 0 {
				t.Fatalf("%d differences, the first is %s\n%s", len(d), d[0], text)
			}
		}))
	}
}

// TestComparisonCatchesDifferences what a wrong conversion would be.
func TestComparisonCatchesDifferences(t *testing.T) {
	none := []peer{}
	w := world{
		namespaces: map[string]namespace{"shop": {name: "shop", annotation: `{"ingress": {"isolation": "DefaultDeny"}}`}, "data": {name: "data"}},
		pods:       []pod{{namespace: "shop", name: "web", ip: "10.0.0.1"}, {namespace: "data", name: "db", ip: "10.0.0.2"}},
		policies: []networkPolicy{
			{APIVersion: "extensions/v1beta1", Kind: "NetworkPolicy", Metadata: metadata{Name: "a", Namespace: "shop"}, Spec: networkPolicySpec{Ingress: []ingressRule{{From: &none}}}},
			{APIVersion: "extensions/v1beta1", Kind: "NetworkPolicy", Metadata: metadata{Name: "b", Namespace: "data"}},
		},
	}
	right := throughText(t, w.text(t), legacy.Before17)
	if d := w.differences(oracleOf(right)); len(d) > 0 {
		t.Fatal(d)
	}
	for name, objs := range map[string][]kinds.Object{
		"as by a newer cluster": throughText(t, w.text(t), legacy.From17),
		"without isolation":     right[1:3],
	} {
		if len(w.differences(oracleOf(objs))) == 0 {
			t.Errorf("%s: nothing is found", name)
		}
	}
}
