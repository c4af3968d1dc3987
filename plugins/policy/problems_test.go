package policy

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// listener records what a plugin reports to users.
type listener struct {
	log           bytes.Buffer
	begun, solved []api.Problem
}

func (l *listener) deps() Deps {
	return Deps{Log: slog.New(slog.NewTextHandler(&l.log, nil)), Observer: Observer{
		Problem: func(p api.Problem) { l.begun = append(l.begun, p) },
		Solved:  func(p api.Problem) { l.solved = append(l.solved, p) },
	}}
}

// lines counts the lines of the log that contain all the parts.
func (l *listener) lines(parts ...string) (n int) {
	for line := range strings.Lines(l.log.String()) {
		has := true
		for _, part := range parts {
			has = has && strings.Contains(line, part)
		}
		if has {
			n++
		}
	}
	return n
}

// edit returns a changed copy.
func edit[M proto.Message](m M, f func(M)) M {
	c := proto.CloneOf(m)
	f(c)
	return c
}

// named gives a pod named TCP ports.
func named(p *model.Pod, names ...string) *model.Pod {
	for i, name := range names {
		p.NamedPorts = append(p.NamedPorts, &model.Pod_NamedPort{Name: name, Protocol: model.Protocol_PROTOCOL_TCP, Port: uint32(8000 + i)})
	}
	return p
}

// allowNamed is allow for app web, with the port http.
func allowNamed(policy, from string) *model.NetworkPolicy {
	p := allow(policy, from, "web", 80)
	p.Ingress[0].Ports[0].Port = &model.NetworkPolicy_Port_Name{Name: "http"}
	return p
}

// outwards reverses a policy: its ingress peers become egress peers.
func outwards(p *model.NetworkPolicy) *model.NetworkPolicy {
	p.IsolatesIngress, p.IsolatesEgress, p.Ingress, p.Egress = false, true, nil, p.Ingress
	return p
}

// describe lists problems as "field class reason".
func describe(problems []api.Problem) (out []string) {
	for _, p := range problems {
		out = append(out, fmt.Sprintf("%s %s %s", p.Field, p.Class, p.Reason))
	}
	return out
}

func policyOf(t *testing.T, s *Snapshot, name string) Policy {
	t.Helper()
	i := slices.IndexFunc(s.Policies, func(p Policy) bool { return p.ID.Name == name })
	if i < 0 {
		t.Fatalf("there is no policy %s", name)
	}
	return s.Policies[i]
}

func TestProblemNamesUnenforceablePolicy(t *testing.T) {
	base := allow("p", "front", "web", 80)
	peer := func(p *model.NetworkPolicy_Peer) *model.NetworkPolicy {
		return edit(base, func(np *model.NetworkPolicy) { np.Ingress[0].Peers = append(np.Ingress[0].Peers, p) })
	}
	port := func(p *model.NetworkPolicy_Port) *model.NetworkPolicy {
		return edit(base, func(np *model.NetworkPolicy) { np.Ingress[0].Ports = append(np.Ingress[0].Ports, p) })
	}
	tcp := model.Protocol_PROTOCOL_TCP
	for name, tt := range map[string]struct {
		policy *model.NetworkPolicy
		want   string // "field class", and a part of the reason
		reason string
	}{
		"a peer without a field": {peer(&model.NetworkPolicy_Peer{}), "spec.ingress[0].from[1] object", "the peer matches nothing"},
		"a block and a selector": {peer(&model.NetworkPolicy_Peer{IpBlock: ipBlock("10.0.0.0/8"), PodSelector: &model.LabelSelector{}}), "spec.ingress[0].from[1] object", "excludes selectors"},
		"an unparsable block":    {peer(&model.NetworkPolicy_Peer{IpBlock: ipBlock("nonsense")}), "spec.ingress[0].from[1].ipBlock.cidr object", "the block matches nothing"},
		"a hole outside":         {peer(&model.NetworkPolicy_Peer{IpBlock: ipBlock("10.0.0.0/8", "nonsense")}), "spec.ingress[0].from[1].ipBlock.except[0] object", "the block matches nothing"},
		"an unknown operator":    {peer(&model.NetworkPolicy_Peer{PodSelector: &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "k"}}}}), "spec.ingress[0].from[1].podSelector object", "unknown operator"},
		"an own selector that is unknown": {edit(base, func(np *model.NetworkPolicy) {
			np.PodSelector = &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "k", Operator: 9}}}
		}), " object", `the policy permits nothing, because it cannot be read: spec.podSelector: the requirement of "k" has no known operator: 9`},
		"a policy that the reflector refused": {base.Refuse("has 100001 rules"), " object", "the policy permits nothing, because it cannot be read: has 100001 rules"},
		"an inverted range":                   {port(&model.NetworkPolicy_Port{Protocol: tcp, Port: &model.NetworkPolicy_Port_Number{Number: 90}, EndPort: 80}), "spec.ingress[0].ports[1] object", "90 to 80"},
		"a port that was invalid":             {port(&model.NetworkPolicy_Port{Protocol: tcp, Invalid: true}), "spec.ingress[0].ports[1] object", "want a port name, or 1 to 65535"},
		"an unknown protocol":                 {port(&model.NetworkPolicy_Port{Protocol: 17}), "spec.ingress[0].ports[1] object", "unknown protocol"},
		"a name of no subject":                {allowNamed("p", "front"), "spec.ingress[0].ports named-port", `no local pod that the policy selects has a tcp port named "http": the port matches nothing (1 pod, for example shop/pod-0)`},
		"a name of no peer":                   {outwards(allowNamed("p", "front")), "spec.egress[0].ports named-port", `no pod that the rule names has a tcp port named "http": the port matches nothing (1 pod, for example shop/pod-1)`},
		"a name and a block": {edit(outwards(allowNamed("p", "front")), func(np *model.NetworkPolicy) {
			np.Egress[0].Peers = []*model.NetworkPolicy_Peer{{IpBlock: ipBlock("203.0.113.0/24")}}
		}), "spec.egress[0].ports named-port", "no pod that the rule names"},
	} {
		t.Run(name, func(t *testing.T) {
			var l listener
			p, _ := startRecorded(t, l.deps(), "one")
			mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), pod(1, "front", false), tt.policy))
			got := policyOf(t, snapshot(t, p), "p").Problems
			if len(got) != 1 || !strings.HasPrefix(describe(got)[0], tt.want+" ") || !strings.Contains(got[0].Reason, tt.reason) {
				t.Fatalf("problems %q, want %s %s", describe(got), tt.want, tt.reason)
			}
			if s := p.Status(); s.Unenforced != 1 || len(s.Problems) != 1 || s.Problems[0] != (ProblemCount{got[0].Class, 1}) {
				t.Errorf("status %+v", s)
			}
			mustApply(t, p, changes(t, false, base))
			if got := snapshot(t, p).Problems; len(got) > 0 || p.Status().Unenforced > 0 || len(p.Status().Problems) > 0 {
				t.Errorf("left over: %v, status %+v", got, p.Status())
			}
			if err := p.Close(); err != nil { // so that the listener is not written to
				t.Fatal(err)
			}
			if len(l.begun) != 1 || !cmp.Equal(l.begun, l.solved) || l.lines("WARN", "shop/p") != 1 || l.lines("INFO", "solved", "shop/p") != 1 {
				t.Errorf("begun %v, solved %v, log:\n%s", l.begun, l.solved, &l.log)
			}
		})
	}
}

// Pods that come and go change how many lack a name. That is not reported while the name stays
// unresolved, or stays resolved.
func TestProblemOfNamedPortEndsWithPod(t *testing.T) {
	var l listener
	p, _ := startRecorded(t, l.deps(), "one")
	mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), pod(1, "front", false), allowNamed("p", "front")))
	mustApply(t, p, changes(t, false, pod(2, "web", true), pod(3, "web", true), pod(4, "web", true)))
	if got := policyOf(t, snapshot(t, p), "p"); len(got.Problems) != 1 || !strings.Contains(got.Problems[0].Reason, "(4 pods, for example shop/pod-0, shop/pod-2, shop/pod-3)") {
		t.Errorf("problems %q", describe(got.Problems))
	}
	mustApply(t, p, changes(t, false, named(pod(2, "web", true), "http"))) // some have it: a note
	if got := policyOf(t, snapshot(t, p), "p"); len(got.Problems) > 0 || len(got.Notes) != 1 || !strings.Contains(got.Notes[0].Reason, `3 of 4 pods have no tcp port named "http"`) {
		t.Errorf("problems %q, notes %q", describe(got.Problems), describe(got.Notes))
	}
	for _, n := range []int{0, 3, 4} {
		mustApply(t, p, changes(t, false, named(pod(n, "web", true), "http")))
	}
	if got := policyOf(t, snapshot(t, p), "p"); len(got.Problems)+len(got.Notes) > 0 {
		t.Errorf("problems %q, notes %q", describe(got.Problems), describe(got.Notes))
	}
	for n := range 5 { // a policy that selects no pod has no problem
		mustApply(t, p, deletion(model.KindPod, podID(n).Name))
	}
	if got := policyOf(t, snapshot(t, p), "p"); len(got.Problems) > 0 || p.Status().Unenforced > 0 {
		t.Errorf("problems %q", describe(got.Problems))
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(l.begun) != 1 || len(l.solved) != 1 || l.lines("WARN") != 1 {
		t.Errorf("begun %v, solved %v, log:\n%s", l.begun, l.solved, &l.log)
	}
}

func TestProblemOfEmptySelectorIsNote(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), allow("in", "nobody", "web", 80), outwards(allowNamed("out", "nobody"))))
	s := snapshot(t, p)
	for policy, want := range map[string]string{
		"in":  "spec.ingress[0].from selector pods app=nobody in shop: selects no pod now",
		"out": "spec.egress[0].to selector pods app=nobody in shop: selects no pod now",
	} {
		if got := policyOf(t, s, policy); len(got.Problems) > 0 || !slices.Equal(describe(got.Notes), []string{want}) {
			t.Errorf("policy %s: problems %q, notes %q, want %q", policy, describe(got.Problems), describe(got.Notes), want)
		}
	}
	mustApply(t, p, changes(t, false, pod(1, "nobody", false))) // who has no port http
	s = snapshot(t, p)
	if in, out := policyOf(t, s, "in"), policyOf(t, s, "out"); len(in.Notes) > 0 || len(out.Notes) > 0 || len(out.Problems) != 1 {
		t.Errorf("in %+v, out %+v", in, out)
	}
}

func TestProblemOfPodIsShownAtPod(t *testing.T) {
	p, _ := startRecorded(t, Deps{}, "one")
	bad := pod(0, "web", true)
	bad.Ips = append(bad.Ips, "10.1.1")
	mustApply(t, p, changes(t, true, ns(), bad, pod(1, "web", true)))
	s := snapshot(t, p)
	if got := s.Pods[0].Problems; len(got) != 1 || got[0].Field != "status.podIPs" || len(s.Pods[1].Problems) > 0 {
		t.Errorf("pods %+v", s.Pods)
	}
	if p.Status().Unenforced != 0 {
		t.Error("a pod counts as a policy")
	}
}

func TestProblemKnownIsNotLogged(t *testing.T) {
	var l listener
	d := l.deps()
	d.Observer.Known = func(p api.Problem) bool { return p.Field == "spec.ingress[0].from[0]" }
	p, _ := startRecorded(t, d, "one")
	broken := allow("p", "front", "web", 80)
	broken.Ingress[0].Peers = []*model.NetworkPolicy_Peer{{}, {}}
	mustApply(t, p, changes(t, true, ns(), pod(0, "web", true), broken))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(l.begun) != 2 || l.lines("WARN") != 1 || l.lines("WARN", "from[1]") != 1 {
		t.Errorf("begun %v, log:\n%s", l.begun, &l.log)
	}
}

func TestProblemOfEqualStateIsNotRepeated(t *testing.T) {
	var l listener
	p, _ := startRecorded(t, l.deps(), "one")
	broken := allowNamed("p", "front")
	broken.Ingress[0].Peers = append(broken.Ingress[0].Peers, &model.NetworkPolicy_Peer{})
	state := changes(t, true, ns(), pod(0, "web", true), broken)
	for range 3 {
		mustApply(t, p, state)
	}
	mustApply(t, p, changes(t, false, broken))
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(l.begun) != 2 || len(l.solved) > 0 || l.lines("WARN") != 2 {
		t.Errorf("begun %v, solved %v, log:\n%s", l.begun, l.solved, &l.log)
	}
}

// limited is a renderer whose dataplane cannot do everything.
type limited struct {
	*renderertest.Recorder
	says []renderer.Unenforced
}

func (l *limited) Unenforced() []renderer.Unenforced { return l.says }

func TestProblemNamesPolicyThatRendererCannotEnforce(t *testing.T) {
	var l listener
	web := api.PolicyID{Namespace: "shop", Name: "web"}
	r := &limited{Recorder: renderertest.NewRecorder("limited", t), says: []renderer.Unenforced{
		{Origin: api.Origin{Policy: web}, Class: api.ClassDataplane, Reason: "it has no such ports", Pods: 2},
		{Origin: api.Origin{Policy: web, Rule: api.IsolationRule}, Class: api.ClassLimit, Reason: "it is full", Effect: renderer.EffectPrevious},
		{Origin: api.Origin{Policy: web, Rule: api.NodeRule}, Class: api.ClassLimit, Reason: "nobody's rule"},
	}}
	d := l.deps()
	d.Renderers = []renderer.Renderer{r}
	p := start(t, d)
	mustApply(t, p, shop(t))
	want := []string{
		"spec limit renderer limited: it is full: pods keep their previous rules; a pod without previous rules is blocked",
		"spec.ingress[0] dataplane renderer limited: it has no such ports: traffic that only this rule permits stays denied (local pods: 2)",
	}
	if diff := cmp.Diff(want, describe(policyOf(t, snapshot(t, p), "web").Problems)); diff != "" {
		t.Error(diff)
	}
	if s := p.Status(); s.Unenforced != 1 || !slices.Equal(s.Problems, []ProblemCount{{api.ClassDataplane, 1}, {api.ClassLimit, 1}}) {
		t.Errorf("status %+v", s)
	}
	r.says = slices.Clone(r.says[:1])
	r.says[0].Pods = 3 // is no other problem
	mustApply(t, p, changes(t, false, pod(7, "web", true)))
	if s := p.Status(); s.Unenforced != 1 || !slices.Equal(s.Problems, []ProblemCount{{api.ClassDataplane, 1}}) {
		t.Errorf("status %+v", s)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	if len(l.begun) != 2 || len(l.solved) != 1 || l.lines("WARN") != 2 {
		t.Errorf("begun %v, solved %v, log:\n%s", l.begun, l.solved, &l.log)
	}
}
