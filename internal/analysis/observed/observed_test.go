package observed

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/described"
)

var noon = time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)

// permitted is a verdict about a flow that passed. It names the pods, as dataplanes do, but for
// some.
func permitted(o *oracle.Oracle, f api.Flow, named bool) view.PacketVerdict {
	p := view.PacketVerdict{Time: noon, Direction: api.Egress, Action: api.Permit, Flow: f}
	if at := o.PodsAt(f.Src); len(at) == 1 && named {
		p.Src.Pod = at[0]
	}
	if at := o.PodsAt(f.Dst); len(at) == 1 && named {
		p.Dst.Pod = at[0]
	}
	return p
}

func verdictsOf(t *testing.T, all ...view.PacketVerdict) *Verdicts {
	t.Helper()
	var v Verdicts
	for _, p := range all {
		if err := v.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	return &v
}

// TestSuggestPermitsLeast: on random clusters, random flows of a namespace are permitted, and one
// of them is not any more without any rule, peer or port of the policies.
func TestSuggestPermitsLeast(t *testing.T) {
	seeds, checked, parts := uint64(150), 0, 0
	if testing.Short() {
		seeds = 20
	}
	for seed := range seeds {
		s := cluster.Random(seed, cluster.Small())
		s.Policies, s.AdminPolicies, s.BaselinePolicies, s.ClusterPolicies = nil, nil, nil, nil
		m, r := described.Of(s), cluster.NewRand(seed)
		before := oracle.New(m.State())
		var verdicts []view.PacketVerdict
		var flows []api.Flow
		for _, f := range cluster.FlowSpace(m.State()).Random(r, 25) {
			if f.Protocol.HasPorts() && f.Src != f.Dst && f.DstPort > 0 {
				flows = append(flows, f)
				verdicts = append(verdicts, permitted(before, f, r.Below(4, "named") > 0))
			}
		}
		namespace := s.Pods[r.Below(len(s.Pods), "pod")].Namespace
		x, err := Suggest(m, verdictsOf(t, verdicts...), Options{Namespace: namespace})
		if err != nil {
			if !strings.Contains(err.Error(), ErrNothing.Error()) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		after := oracle.New(x.After().State())
		for _, f := range flows {
			if checked++; !after.Allowed(f) {
				t.Errorf("seed %d: %s is denied\n%s", seed, f, after.Verdict(f).Egress.Deciding)
			}
		}
		if len(x.Denied)+len(x.Left) > 0 {
			t.Errorf("seed %d: %v %v", seed, x.Denied, x.Left)
		}
		for _, p := range x.Policies {
			checkSelectors(t, m, &p)
			for what, less := range lessOf(p.NetworkPolicy) {
				changed := after.With(oracle.State{Policies: []*networkingv1.NetworkPolicy{less}})
				if parts++; !slices.ContainsFunc(flows, func(f api.Flow) bool { return !changed.Allowed(f) }) {
					t.Errorf("seed %d: no flow needs %s of %s: %+v", seed, what, p.Name, p.Spec)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
	if !testing.Short() && (checked < 500 || parts < 500) {
		t.Errorf("%d flows and %d parts: too few to mean anything", checked, parts)
	}
}

// checkSelectors compares what the selectors of a policy select with the workloads: none with a
// part of one, none with others.
func checkSelectors(t *testing.T, m explain.Manifests, p *Policy) {
	t.Helper()
	check := func(namespace string, s *metav1.LabelSelector) {
		t.Helper()
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil {
			t.Fatal(err)
		}
		of := map[string]bool{}
		for _, pod := range m.Pods {
			if pod.GetNamespace() == namespace && !pod.GetHostNetwork() && selector.Matches(explain.Labels(pod)) {
				of[explain.Labels(pod).String()] = true
			}
		}
		if len(of) != 1 {
			t.Errorf("%v in %s selects %v, want one workload", s, namespace, slices.Sorted(maps.Keys(of)))
		}
	}
	check(p.Namespace, &p.Spec.PodSelector)
	for _, r := range p.Spec.Ingress {
		for _, peer := range r.From {
			if peer.PodSelector != nil {
				check(namespaceOf(p, peer), peer.PodSelector)
			}
		}
	}
}

func namespaceOf(p *Policy, peer networkingv1.NetworkPolicyPeer) string {
	if peer.NamespaceSelector == nil {
		return p.Namespace
	}
	return peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"]
}

// lessOf returns a policy without each of its rules, peers and ports.
func lessOf(np networkingv1.NetworkPolicy) map[string]*networkingv1.NetworkPolicy {
	out := map[string]*networkingv1.NetworkPolicy{}
	for i, r := range np.Spec.Ingress {
		c := np.DeepCopy()
		c.Spec.Ingress = slices.Delete(c.Spec.Ingress, i, i+1)
		out[fmt.Sprint("ingress rule ", i)] = c
		for k := range r.From {
			if len(r.From) > 1 {
				c := np.DeepCopy()
				c.Spec.Ingress[i].From = slices.Delete(c.Spec.Ingress[i].From, k, k+1)
				out[fmt.Sprint("ingress rule ", i, " peer ", k)] = c
			}
		}
		for k := range r.Ports {
			if len(r.Ports) > 1 {
				c := np.DeepCopy()
				c.Spec.Ingress[i].Ports = slices.Delete(c.Spec.Ingress[i].Ports, k, k+1)
				out[fmt.Sprint("ingress rule ", i, " port ", k)] = c
			}
		}
	}
	for i, r := range np.Spec.Egress {
		c := np.DeepCopy()
		c.Spec.Egress = slices.Delete(c.Spec.Egress, i, i+1)
		out[fmt.Sprint("egress rule ", i)] = c
		for k := range r.To {
			if len(r.To) > 1 {
				c := np.DeepCopy()
				c.Spec.Egress[i].To = slices.Delete(c.Spec.Egress[i].To, k, k+1)
				out[fmt.Sprint("egress rule ", i, " peer ", k)] = c
			}
		}
		for k := range r.Ports {
			if len(r.Ports) > 1 {
				c := np.DeepCopy()
				c.Spec.Egress[i].Ports = slices.Delete(c.Spec.Egress[i].Ports, k, k+1)
				out[fmt.Sprint("egress rule ", i, " port ", k)] = c
			}
		}
	}
	return out
}

// TestSuggestNamesDeniedFlows: what other policies deny is named, on random clusters with policies
// of every kind, and nothing else is.
func TestSuggestNamesDeniedFlows(t *testing.T) {
	named := 0
	for seed := range uint64(60) {
		s := cluster.Random(seed, cluster.SmallWithAudit())
		m, r := described.Of(s), cluster.NewRand(seed)
		o := oracle.New(m.State())
		var verdicts []view.PacketVerdict
		flows := cluster.FlowSpace(m.State()).Random(r, 30)
		for _, f := range flows {
			verdicts = append(verdicts, permitted(o, f, true))
		}
		x, err := Suggest(m, verdictsOf(t, verdicts...), Options{Namespace: s.Pods[0].Namespace, Portless: true, Audit: seed%2 == 0})
		if err != nil {
			if !strings.Contains(err.Error(), ErrNothing.Error()) {
				t.Fatalf("seed %d: %v", seed, err)
			}
			continue
		}
		after, want := oracle.New(x.After().State()), 0
		for _, d := range x.Denied {
			if named++; len(d.By) == 0 {
				t.Errorf("seed %d: nothing denies %s", seed, d.Flow)
			}
		}
		seen := map[api.Flow]bool{}
		for _, f := range flows {
			isIn := func(a netip.Addr) bool {
				at := o.PodsAt(a)
				return len(at) == 1 && at[0].Namespace == s.Pods[0].Namespace
			}
			if f.SrcPort = 0; !seen[f] && f.Src != f.Dst && (isIn(f.Src) || isIn(f.Dst)) && !after.Allowed(f) {
				want++
			}
			seen[f] = true
		}
		if len(x.Denied) != want {
			t.Errorf("seed %d: %d are denied, and %d named: %v", seed, want, len(x.Denied), x.Denied)
		}
	}
	if named < 50 {
		t.Errorf("%d were named: too few to mean anything", named)
	}
}

// TestSuggestForThousandPodsWithMixedLabels compares with today, when the namespace has no
// policies, and what is said with the verdicts about random flows.
func TestSuggestForThousandPodsWithMixedLabels(t *testing.T) {
	if testing.Short() {
		t.Skip("a cluster of a thousand pods is not for -short")
	}
	s := cluster.Random(1, cluster.Large(1000, 300))
	namespace := s.Pods[0].Namespace
	s.Policies = slices.DeleteFunc(s.Policies, func(np *networkingv1.NetworkPolicy) bool { return np.Namespace == namespace })
	m, r := described.Of(s), cluster.NewRand(1)
	o := oracle.New(m.State())
	isIn := func(f api.Flow) bool {
		at := append(o.PodsAt(f.Src), o.PodsAt(f.Dst)...)
		return slices.ContainsFunc(at, func(id api.PodID) bool { return id.Namespace == namespace })
	}
	space := cluster.FlowSpace(m.State())
	var verdicts []view.PacketVerdict
	for _, f := range space.Random(r, 20000) {
		if isIn(f) && f.Protocol.HasPorts() && f.DstPort > 0 && f.Src != f.Dst && o.Allowed(f) {
			verdicts = append(verdicts, permitted(o, f, true))
		}
	}
	x, err := Suggest(m, verdictsOf(t, verdicts...), Options{Namespace: namespace})
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := x.Compare(context.Background(), m); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d flows, %d policies, %d denied, %d of %d pairs closed, compared in %s", x.Flows, len(x.Policies), len(x.Denied), x.Change.Closed, x.Change.Pairs, time.Since(begun))
	if len(x.Denied) > 0 || len(x.Policies) < 10 || x.Change.Closed < 100 {
		t.Errorf("%v", x.Denied)
	}
	after, changes, groups := oracle.New(x.After().State()), map[[2]string][]string{}, map[api.PodID]string{}
	for _, c := range x.Change.Changes {
		changes[[2]string{c.From, c.To}] = append(changes[[2]string{c.From, c.To}], c.Change)
	}
	for _, p := range m.Pods {
		groups[explain.PodID(p)] = explain.GroupName(p)
	}
	group := func(a netip.Addr) string {
		if at := o.PodsAt(a); len(at) == 1 {
			return groups[at[0]]
		}
		return "outside"
	}
	compared := 0
	for _, f := range space.Random(r, 20000) {
		if !isIn(f) {
			continue
		}
		was, is := o.Allowed(f), after.Allowed(f)
		pair := [2]string{group(f.Src), group(f.Dst)}
		switch said := changes[pair]; {
		case was && !is && !slices.Contains(said, "closed") && !slices.Contains(said, "narrowed"),
			is && !was && !slices.Contains(said, "opened"), is && slices.Contains(said, "closed"):
			t.Errorf("%s, %v: allowed %t, then %t, and %v is said", f, pair, was, is, said)
		case was != is:
			compared++
		}
	}
	if compared < 200 {
		t.Errorf("%d flows differ: too few to mean anything", compared)
	}
}

// TestVerdictsRefuseWhatIsNone with the line, on which it is, and no long text.
func TestVerdictsRefuseWhatIsNone(t *testing.T) {
	good := `{"direction":"egress","action":"permit","flow":{"src":"10.0.0.1","dst":"10.0.0.2","protocol":"tcp","srcPort":4000,"dstPort":80}}` + "\n"
	for name, tc := range map[string]struct{ text, want string }{
		"garbage":         {good + strings.Repeat("\x00\xff{[\x1b", 200_000), "line 2: "},
		"a long line":     {good + strings.Repeat("x", 3<<20), "line 2: it has more than 1048576 bytes"},
		"no flow":         {"\n" + good + "{}", "line 3: flow: want the addresses src and dst"},
		"two families":    {`{"flow":{"src":"10.0.0.1","dst":"fd00::1"}}`, "line 1: flow: src and dst are addresses of two families"},
		"a zone":          {`{"flow":{"src":"fe80::1%x","dst":"fd00::1"}}`, "a zone"},
		"a direction":     {`{"direction":"up"}`, "is not a direction"},
		"a list":          {"[" + good + "]", "line 1: want a verdict"},
		"the agent's end": {`{"error":"the kernel has no more"}`, "line 1: the agent ended the verdicts: the kernel has no more"},
		"many brackets":   {strings.Repeat("[", 900_000), "line 1: want a verdict"},
	} {
		var v Verdicts
		err := v.Read(strings.NewReader(tc.text), "flows")
		if err == nil || !strings.Contains(err.Error(), tc.want) || len(err.Error()) > 500 {
			t.Errorf("%s: %.600v, want %s", name, err, tc.want)
		}
	}
}

const shop = "../../../docs/examples/shop"

// passed is a verdict about a flow between two addresses that passed.
func passed(src, dst string, port uint16) view.PacketVerdict {
	return view.PacketVerdict{Time: noon, Action: api.Permit, Flow: api.Flow{
		Src: netip.MustParseAddr(src), Dst: netip.MustParseAddr(dst), Protocol: api.TCP, SrcPort: 40000, DstPort: port,
	}}
}

const web, cart = "10.10.1.10", "10.10.1.30"

// TestSuggestSaysWhatItLeavesOut: every flow that is not permitted is named, and why.
func TestSuggestSaysWhatItLeavesOut(t *testing.T) {
	denied, late := passed(web, cart, 1), passed(web, cart, 1)
	denied.Action, denied.Reason = api.Deny, "policy"
	late.Time = noon.Add(time.Minute)
	malformed := passed(web, cart, 2)
	malformed.Action, malformed.Reason = api.Deny, "malformed"
	gone := passed("10.10.1.200", cart, 3)
	gone.Src.Pod = api.PodID{Namespace: "shop", Name: "web-7"}
	lost := passed("10.10.1.201", cart, 4)
	lost.Src.Pod = api.PodID{Namespace: "shop", Name: "\x1b[2Jevil\n---"}
	ping := passed(web, cart, 0)
	ping.Flow.Protocol = api.ICMP
	reply := passed(cart, web, 40000)
	reply.Flow.SrcPort = 8082
	counted := view.PacketVerdict{Packets: 7}
	always := passed(web, cart, 8082)
	for name, tc := range map[string]struct {
		verdicts []view.PacketVerdict
		options  Options
		want     string
		ports    string // of the cart's rule
	}{
		"denied":           {[]view.PacketVerdict{denied}, Options{}, "note: denied when they were seen last", "8082"},
		"denied, wanted":   {[]view.PacketVerdict{denied}, Options{Denied: true}, "", "1 8082"},
		"denied before":    {[]view.PacketVerdict{denied, late}, Options{}, "", "1 8082"},
		"denied later":     {[]view.PacketVerdict{late, denied}, Options{}, "", "1 8082"}, // the times count
		"malformed":        {[]view.PacketVerdict{malformed}, Options{Denied: true}, "note: dropped for another reason than a policy (malformed)", "8082"},
		"a pod is gone":    {[]view.PacketVerdict{gone}, Options{}, "note: pods that are gone are taken for pods of the workload with their name: shop/web-7 of shop/web", "3 8082"},
		"a pod is unknown": {[]view.PacketVerdict{lost}, Options{}, `WARNING: not permitted, because a pod is gone, and not one workload has its name: shop/\x1b[2Jevil\n---`, "8082"},
		"no ports":         {[]view.PacketVerdict{ping}, Options{}, "WARNING: not permitted, because a NetworkPolicy can permit them only with every port", "8082"},
		"every port":       {[]view.PacketVerdict{ping}, Options{Portless: true}, "", ""},
		"a reply":          {[]view.PacketVerdict{reply}, Options{}, "note: 1 verdict about answers left out", "8082"},
		"counts":           {[]view.PacketVerdict{counted}, Options{}, "note: 7 packets were counted without their ends", "8082"},
		"to itself":        {[]view.PacketVerdict{passed(cart, cart, 9)}, Options{}, "", "8082"},
		"the own node":     {[]view.PacketVerdict{passed("192.168.50.11", cart, 9)}, Options{}, "1 flow with the own node, which needs no rule", "8082"},
		"port 0":           {[]view.PacketVerdict{passed(web, cart, 0)}, Options{}, "WARNING: not permitted, because no policy can name port 0", "8082"},
	} {
		tc.options.Namespace = "shop"
		x, err := Suggest(described.Read(t, shop), verdictsOf(t, append([]view.PacketVerdict{always}, tc.verdicts...)...), tc.options)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := written(&x)
		if !strings.Contains(text, tc.want) || strings.Contains(text, "\x1b") || tc.want == "" && strings.Contains(text, "WARNING") {
			t.Errorf("%s: want %s\n%s", name, tc.want, text)
		}
		var ports []string
		for _, p := range x.Policies[0].Spec.Ingress[0].Ports {
			ports = append(ports, p.Port.String())
		}
		if x.Policies[0].Name != "observed-cart" || strings.Join(ports, " ") != tc.ports {
			t.Errorf("%s: %s has the ports %v, want %s", name, x.Policies[0].Name, ports, tc.ports)
		}
	}
}
