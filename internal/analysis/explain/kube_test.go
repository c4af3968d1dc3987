package explain

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/convert"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// reflected sends objects through the store's form and back. Policies that the
// conversion refuses are missing from the second state only.
func reflected(t testing.TB, s oracle.State) oracle.State {
	t.Helper()
	var c Cluster
	for _, o := range cluster.Objects(s) {
		switch m := stored(t, o.Object).(type) {
		case *model.Node:
			c.Nodes = append(c.Nodes, m)
		case *model.Namespace:
			c.Namespaces = append(c.Namespaces, m)
		case *model.Pod:
			c.Pods = append(c.Pods, m)
		case *model.NetworkPolicy:
			c.Policies = append(c.Policies, m)
		case *model.ClusterPolicy:
			c.ClusterPolicies = append(c.ClusterPolicies, m)
		}
	}
	return c.State()
}

// stored converts, encodes and decodes an object; nil when it is refused.
func stored(t testing.TB, obj any) proto.Message {
	t.Helper()
	m, _ := convert.ToModel(obj)
	if m == nil {
		return nil
	}
	id, err := model.IDOf(m)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := model.Encode(m)
	if err != nil {
		t.Fatal(err)
	}
	back, err := model.Decode(id, raw)
	if err != nil {
		t.Fatal(err)
	}
	return back
}

// withoutRefused leaves out the policies that never reach the store.
func withoutRefused(s oracle.State) oracle.State {
	var refused []cluster.Edit
	for _, o := range cluster.Objects(s) {
		if m, _ := convert.ToModel(o.Object); m == nil {
			o.Object = nil
			refused = append(refused, o)
		}
	}
	return cluster.Edited(s, refused)
}

func TestStateHasVerdictsOfItsObjects(t *testing.T) {
	cfg := cluster.SmallWithSharedAddresses()
	rapid.Check(t, func(rt *rapid.T) {
		s := withoutRefused(cluster.Gen(cfg).Draw(rt, "state"))
		before, after := oracle.New(s), oracle.New(reflected(t, s))
		space := cluster.FlowSpace(s)
		flows := space.Random(cluster.NewRand(rapid.Uint64().Draw(rt, "flows")), 400)
		for _, f := range flows {
			if want, got := before.Allowed(f), after.Allowed(f); got != want {
				rt.Fatalf("%s: allowed is %t for the objects and %t for what was reflected:\n%s\n%s",
					f, want, got, reason.Of(before.Verdict(f)), reason.Of(after.Verdict(f)))
			}
		}
	})
}

// TestStateGeneratorCoversBothVerdicts keeps the property above from holding only
// because everything is open, or closed.
func TestStateGeneratorCoversBothVerdicts(t *testing.T) {
	var allowed, asked int
	for seed := range uint64(20) {
		s := withoutRefused(cluster.Random(seed, cluster.Small()))
		o := oracle.New(reflected(t, s))
		for _, f := range cluster.FlowSpace(s).Random(cluster.NewRand(seed), 100) {
			asked++
			if o.Allowed(f) {
				allowed++
			}
		}
	}
	if allowed < asked/10 || allowed > asked*9/10 {
		t.Errorf("%d of %d flows are allowed: the generator does not test much", allowed, asked)
	}
}

func TestStateReflectedTwiceIsUnchanged(t *testing.T) {
	cfg := cluster.Small()
	cfg.Odd = false // what is invalid is written down in a shorter way than it came
	rapid.Check(t, func(rt *rapid.T) {
		once := reflected(t, cluster.Gen(cfg).Draw(rt, "state"))
		if diff := cmp.Diff(once, reflected(t, once)); diff != "" {
			rt.Fatalf("the second time differs (-once +twice):\n%s", diff)
		}
	})
}

// Messages that ksr never writes, as another version or another program could.

var (
	webAddr = netip.MustParseAddr("10.0.0.1")
	dbAddr  = netip.MustParseAddr("10.0.0.2")
)

// twoPods returns shop/web and shop/db.
func twoPods() ([]*model.Namespace, []*model.Pod) {
	pod := func(name, ip string) *model.Pod {
		return &model.Pod{Namespace: "shop", Name: name, Labels: []*model.Label{{Key: "app", Value: name}},
			Ips: []string{ip}, Phase: model.Pod_PHASE_RUNNING,
			NamedPorts: []*model.Pod_NamedPort{{Name: "http", Protocol: model.Protocol_PROTOCOL_TCP, Port: 80}}}
	}
	return []*model.Namespace{{Name: "shop"}}, []*model.Pod{pod("web", webAddr.String()), pod("db", dbAddr.String())}
}

// allowed reports whether web reaches db on 80/TCP when the policy has this rule.
func allowed(p *model.NetworkPolicy) bool {
	namespaces, pods := twoPods()
	return oracle.New(State(namespaces, pods, []*model.NetworkPolicy{p})).Allowed(
		api.Flow{Src: webAddr, Dst: dbAddr, Protocol: api.TCP, SrcPort: 1024, DstPort: 80})
}

func isolating(rules ...*model.NetworkPolicy_Rule) *model.NetworkPolicy {
	return &model.NetworkPolicy{Namespace: "shop", Name: "p", PodSelector: &model.LabelSelector{}, IsolatesIngress: true, Ingress: rules}
}

func TestStateOfInvalidPeersMatchesNothing(t *testing.T) {
	app := func(op model.LabelSelector_Operator, values ...string) *model.LabelSelector {
		return &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app", Operator: op, Values: values}}}
	}
	block := &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8"}
	for name, tc := range map[string]struct {
		peer *model.NetworkPolicy_Peer
		want bool
	}{
		"empty pod selector":            {&model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{}}, true},
		"block":                         {&model.NetworkPolicy_Peer{IpBlock: block}, true},
		"In":                            {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_IN, "web")}, true},
		"NotIn":                         {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_NOT_IN, "db")}, true},
		"Exists":                        {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_EXISTS)}, true},
		"DoesNotExist":                  {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_DOES_NOT_EXIST)}, false},
		"no field":                      {&model.NetworkPolicy_Peer{}, false},
		"nil":                           {nil, false},
		"block and selector":            {&model.NetworkPolicy_Peer{IpBlock: block, PodSelector: &model.LabelSelector{}}, false},
		"no operator":                   {&model.NetworkPolicy_Peer{PodSelector: app(0, "web")}, false},
		"an operator of another age":    {&model.NetworkPolicy_Peer{PodSelector: app(17, "web")}, false},
		"In without values":             {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_IN)}, false},
		"Exists with values":            {&model.NetworkPolicy_Peer{PodSelector: app(model.LabelSelector_OPERATOR_EXISTS, "web")}, false},
		"a key that is none":            {&model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "-", Value: "web"}}}}, false},
		"invalid namespace selector":    {&model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{}, NamespaceSelector: app(0)}, false},
		"block that is none":            {&model.NetworkPolicy_Peer{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0"}}, false},
		"block without cidr":            {&model.NetworkPolicy_Peer{IpBlock: &model.NetworkPolicy_IPBlock{}}, false},
		"except that is none":           {&model.NetworkPolicy_Peer{IpBlock: &model.NetworkPolicy_IPBlock{Cidr: "10.0.0.0/8", Except: []string{"x"}}}, false},
		"one label with the same value": {&model.NetworkPolicy_Peer{PodSelector: both("web", "web")}, true},
		"one label with two values":     {&model.NetworkPolicy_Peer{PodSelector: both("db", "web")}, false},
		"one label with two others":     {&model.NetworkPolicy_Peer{PodSelector: both("web", "db")}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rule := &model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{tc.peer}}
			if got := allowed(isolating(rule)); got != tc.want {
				t.Errorf("the peer matches: %t, want %t", got, tc.want)
			}
		})
	}
}

// both asks one label to have two values.
func both(a, b string) *model.LabelSelector {
	return &model.LabelSelector{MatchLabels: []*model.Label{{Key: "app", Value: a}, {Key: "app", Value: b}}}
}

func TestStateOfInvalidPortsMatchesNothing(t *testing.T) {
	number := func(n uint32) *model.NetworkPolicy_Port {
		return &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: n}}
	}
	with := func(p *model.NetworkPolicy_Port, change func(*model.NetworkPolicy_Port)) *model.NetworkPolicy_Port {
		change(p)
		return p
	}
	named := func(n string) *model.NetworkPolicy_Port {
		return &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Name{Name: n}}
	}
	for name, tc := range map[string]struct {
		port *model.NetworkPolicy_Port
		want bool
	}{
		"number":                    {number(80), true},
		"range":                     {with(number(79), func(p *model.NetworkPolicy_Port) { p.EndPort = 90 }), true},
		"name":                      {named("http"), true},
		"every port":                {&model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP}, true},
		"no protocol is TCP":        {with(number(80), func(p *model.NetworkPolicy_Port) { p.Protocol = 0 }), true},
		"nil is every port of TCP":  {nil, true},
		"another number":            {number(81), false},
		"zero":                      {number(0), false},
		"beyond 16 bits":            {number(65536 + 80), false},
		"beyond 31 bits":            {number(1<<31 + 80), false},
		"a protocol of another age": {with(number(80), func(p *model.NetworkPolicy_Port) { p.Protocol = 9 }), false},
		"inverted range":            {with(number(80), func(p *model.NetworkPolicy_Port) { p.EndPort = 79 }), false},
		"range that ends nowhere":   {with(number(80), func(p *model.NetworkPolicy_Port) { p.EndPort = 1 << 31 }), false},
		"end without a start":       {&model.NetworkPolicy_Port{EndPort: 90}, false},
		"name with an end":          {with(named("http"), func(p *model.NetworkPolicy_Port) { p.EndPort = 90 }), false},
		"empty name":                {named(""), false},
		"unknown name":              {named("https"), false},
		"invalid number":            {with(number(80), func(p *model.NetworkPolicy_Port) { p.Invalid = true }), false},
		"invalid name":              {with(named("http"), func(p *model.NetworkPolicy_Port) { p.Invalid = true }), false},
		"invalid and nothing else":  {&model.NetworkPolicy_Port{Invalid: true}, false},
	} {
		t.Run(name, func(t *testing.T) {
			rule := &model.NetworkPolicy_Rule{Ports: []*model.NetworkPolicy_Port{tc.port}}
			if got := allowed(isolating(rule)); got != tc.want {
				t.Errorf("the port matches: %t, want %t", got, tc.want)
			}
		})
	}
}

func TestStateKeepsIsolation(t *testing.T) {
	for name, tc := range map[string]struct {
		policy *model.NetworkPolicy
		want   bool
	}{
		"ingress":                             {isolating(), false},
		"ingress with an open rule":           {isolating(&model.NetworkPolicy_Rule{}), true},
		"no selector selects all":             {&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true}, false},
		"an invalid selector selects none":    {&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true, PodSelector: both("db", "web")}, true},
		"egress":                              {&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesEgress: true}, false},
		"neither":                             {&model.NetworkPolicy{Namespace: "shop", Name: "p", Ingress: []*model.NetworkPolicy_Rule{{}}}, true},
		"neither, with a rule for nobody":     {&model.NetworkPolicy{Namespace: "shop", Name: "p", Egress: []*model.NetworkPolicy_Rule{{Peers: []*model.NetworkPolicy_Peer{{}}}}}, true},
		"egress ignores the rules of ingress": {&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesEgress: true, Ingress: []*model.NetworkPolicy_Rule{{}}}, false},
		"nil":                                 {nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := allowed(tc.policy); got != tc.want {
				t.Errorf("allowed is %t, want %t", got, tc.want)
			}
		})
	}
}

func TestStateKeepsPods(t *testing.T) {
	got := Pod(&model.Pod{
		Namespace: "shop", Name: "web", Labels: []*model.Label{{Key: "app", Value: "web"}},
		Ips: []string{"10.0.0.1", "fd00::1"}, Phase: model.Pod_PHASE_FAILED, HostNetwork: true,
		NodeName: "node-1", NodeIps: []string{"192.168.0.1", "fd00:9::1"}, Deleting: true,
		NamedPorts: []*model.Pod_NamedPort{{Name: "dns", Protocol: model.Protocol_PROTOCOL_UDP, Port: 53}},
	})
	if got.DeletionTimestamp == nil {
		t.Error("the pod is not being deleted")
	}
	got.DeletionTimestamp = nil
	want := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{NodeName: "node-1", HostNetwork: true, Containers: []corev1.Container{
			{Ports: []corev1.ContainerPort{{Name: "dns", Protocol: corev1.ProtocolUDP, ContainerPort: 53}}}}},
		Status: corev1.PodStatus{Phase: corev1.PodFailed,
			PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "fd00::1"}},
			HostIP: "192.168.0.1", HostIPs: []corev1.HostIP{{IP: "192.168.0.1"}, {IP: "fd00:9::1"}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("pod (-want +got):\n%s", diff)
	}
}

func TestStateKeepsPhases(t *testing.T) {
	for _, want := range []corev1.PodPhase{"", corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		m := stored(t, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Status: corev1.PodStatus{Phase: want}})
		if got := Pod(m.(*model.Pod)).Status.Phase; got != want {
			t.Errorf("phase %q comes back as %q", want, got)
		}
	}
}

func TestStateIgnoresNilMessages(t *testing.T) {
	got := State([]*model.Namespace{nil}, []*model.Pod{nil}, []*model.NetworkPolicy{nil})
	if diff := cmp.Diff(oracle.State{}, got); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
}

// FuzzState gives the oracle whatever decodes as a message.
func FuzzState(f *testing.F) {
	seed := func(m proto.Message) []byte {
		raw, err := model.Encode(m)
		if err != nil {
			f.Fatal(err)
		}
		return raw
	}
	namespaces, pods := twoPods()
	f.Add(seed(namespaces[0]), seed(pods[0]), seed(isolating(&model.NetworkPolicy_Rule{Peers: []*model.NetworkPolicy_Peer{{}}})),
		seed(tierOf(everyKind[0], &model.ClusterPolicy_Rule{Peers: []*model.ClusterPolicy_Peer{{}, everyPod()}})))
	f.Fuzz(func(t *testing.T, namespace, pod, policy, tier []byte) {
		var cp model.ClusterPolicy
		var n model.Namespace
		var p model.Pod
		var np model.NetworkPolicy
		if proto.Unmarshal(namespace, &n) != nil || proto.Unmarshal(pod, &p) != nil || proto.Unmarshal(policy, &np) != nil || proto.Unmarshal(tier, &cp) != nil {
			return
		}
		ns, others := twoPods()
		o := oracle.New(Cluster{Namespaces: append(ns, &n), Pods: append(others, &p), Policies: []*model.NetworkPolicy{&np},
			ClusterPolicies: []*model.ClusterPolicy{&cp}}.State())
		flow := api.Flow{Src: webAddr, Dst: dbAddr, Protocol: api.TCP, DstPort: 80}
		if v := o.Verdict(flow); v.Allowed != o.Allowed(flow) {
			t.Errorf("two verdicts about one flow: %v", v)
		}
	})
}

func BenchmarkState(b *testing.B) {
	for _, pods := range []int{100, 10_000} {
		b.Run(fmt.Sprintf("pods=%d", pods), func(b *testing.B) {
			s := cluster.Random(1, cluster.Large(pods, pods/10))
			var messages []*model.Pod
			for _, o := range s.Pods {
				messages = append(messages, stored(b, o).(*model.Pod))
			}
			for b.Loop() {
				State(nil, messages, nil)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*pods), "ns/pod")
		})
	}
}
