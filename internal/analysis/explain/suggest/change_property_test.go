package suggest_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/explain/suggest"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/cluster"
)

// allKinds are the kinds of change.
var allKinds = []suggest.Kind{
	suggest.LabelPod, suggest.RemoveExcept, suggest.AddPort, suggest.AddPeer, suggest.LabelNamespace, suggest.OpenPorts, suggest.AddRule,
	suggest.AddRuleBefore, suggest.AddPolicy, suggest.RemovePorts, suggest.RemovePeers, suggest.AddExcept, suggest.RemoveRules, suggest.Isolate, suggest.Together,
}

// TestChangesHaveTheirEffect makes each change that an explanation offers, by
// other code than the oracle's own, and asks again: about addresses, which several
// pods may share, and about pods, which may wait for an address.
func TestChangesHaveTheirEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state")
		for _, q := range drawQuestions(t, s, 20) {
			keepsPromises(t, s, q, map[suggest.Kind]bool{})
		}
	})
}

// TestChangesOfEveryKindAreOffered keeps the property above from holding only because
// little is offered. It asks clusters until it has seen every kind.
func TestChangesOfEveryKindAreOffered(t *testing.T) {
	seen := map[suggest.Kind]bool{}
	for seed := uint64(0); seed < 1000 && len(seen) < len(allKinds); seed++ {
		s := cluster.Random(seed, cluster.SmallWithSharedAddresses())
		for i, f := range cluster.FlowSpace(s).Random(cluster.NewRand(seed), 12) {
			if i%3 == 0 {
				f.Protocol, f.SrcPort, f.DstPort = api.ICMP, 0, 0
			}
			keepsPromises(t, s, byAddress(f), seen)
		}
	}
	for _, kind := range allKinds {
		if !seen[kind] {
			t.Errorf("no change of kind %s is offered", kind)
		}
	}
}

// asked is what an explanation is asked about.
type asked struct {
	src, dst oracle.Endpoint
	protocol api.Protocol
	port     uint16
}

func byAddress(f api.Flow) asked {
	return asked{oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst), f.Protocol, f.DstPort}
}

// drawQuestions draws questions by address, and one of three with pods at both ends.
func drawQuestions(t *rapid.T, s cluster.State, n int) []asked {
	var out []asked
	for i, f := range cluster.DrawFlows(t, s, n) {
		q := byAddress(f)
		if i%3 == 0 && len(s.Pods) > 0 {
			pick := func(what string) oracle.Endpoint {
				p := s.Pods[rapid.IntRange(0, len(s.Pods)-1).Draw(t, what)]
				return oracle.PodEndpoint(p.Namespace, p.Name)
			}
			q.src, q.dst = pick("source"), pick("destination")
		}
		out = append(out, q)
	}
	return out
}

func (q asked) of(s cluster.State) oracle.Verdict {
	return oracle.New(s).VerdictPods(q.src, q.dst, q.protocol, q.port)
}

func keepsPromises(t failing, s cluster.State, q asked, seen map[suggest.Kind]bool) {
	v := reason.Explain(oracle.New(s), q.src, q.dst, q.protocol, q.port)
	keepsWithout(t, s, q, v)
	for i, c := range v.Changes {
		after := q.of(apply(t, s, c))
		if flipped := after.Allowed != v.Allowed; c.Flips != flipped {
			t.Fatalf("%s: flips=%t, but not so\nbefore\n%safter\n%s", c.Text, c.Flips, v, reason.Of(after))
		}
		if !c.Flips && (v.Direction(c.Direction).Allowed || !after.Direction(c.Direction).Allowed) {
			t.Fatalf("%s: does not open %s\nbefore\n%safter\n%s", c.Text, c.Direction, v, reason.Of(after))
		}
		if c.Flips && i > 0 && !v.Changes[i-1].Flips {
			t.Fatalf("%s: comes after what does not flip\n%s", c.Text, v)
		}
		for i, part := range c.Parts {
			fewer := suggest.Change{Kind: suggest.Together, Parts: slices.Delete(slices.Clone(c.Parts), i, i+1)}
			if c.Flips && q.of(apply(t, s, fewer)).Allowed != v.Allowed {
				t.Fatalf("%s: does without %s\n%s", c.Text, part.Text, v)
			}
		}
		seen[c.Kind] = true
	}
	if len(v.Changes) == 0 && !isFixed(v) && !isNameless(s, v.Src) && !isNameless(s, v.Dst) {
		t.Fatalf("nothing is offered\n%s", v)
	}
}

// keepsWithout removes every admin rule that decides, and evaluates the flow again.
func keepsWithout(t failing, s cluster.State, q asked, v reason.Verdict) {
	for _, d := range []api.Direction{api.Egress, api.Ingress} {
		for i, r := range v.Direction(d).Subjects {
			if (r.Rule == nil) != (r.Without == nil) {
				t.Fatalf("%s of %s does not say what would be without the rule that decides\n%s", d, r.Pod, v)
			}
			if r.Rule == nil {
				continue
			}
			after := q.of(apply(t, s, suggest.Change{Kind: suggest.RemoveRules, Direction: d, Origins: []api.Origin{*r.Rule}}))
			if got := after.Direction(d).Subjects[i]; got.Allowed != r.Without.Allowed || got.DecidedBy != r.Without.DecidedBy {
				t.Fatalf("without %s %s of %s is %+v, not %+v\n%s", r.Rule, d, r.Pod, got, r.Without, v)
			}
		}
	}
}

// isFixed reports whether nothing small turns a verdict around: no end is a pod that
// policies see, the ends that are isolated are exempt, or more pods share an
// address than are combined.
func isFixed(v reason.Verdict) bool {
	subjects := slices.Concat(v.Egress.Subjects, v.Ingress.Subjects)
	if len(subjects) == 0 {
		return true // or no flow at all
	}
	if !v.Allowed {
		denied := 0
		for _, r := range subjects {
			if !r.Allowed {
				denied++
			}
		}
		return denied > 4
	}
	return !slices.ContainsFunc(subjects, func(r oracle.SubjectResult) bool { return r.Exempt == oracle.NotExempt })
}

// isNameless reports whether no peer of another namespace can match an end: it has no
// address, and its namespace is not known.
func isNameless(s cluster.State, e oracle.Endpoint) bool {
	return !e.Addr.IsValid() && !slices.ContainsFunc(s.Namespaces, func(ns *corev1.Namespace) bool { return ns.Name == e.Pod.Namespace })
}

// TestChangesBeginWithSmallest compares the order with its definition: by how much must be
// written or deleted, counted here from the objects that change. Labels that evade admin policies
// come last, those of namespaces after those of pods; before that, those that take from pods what
// they have.
func TestChangesBeginWithSmallest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := cluster.Gen(cluster.SmallWithSharedAddresses()).Draw(t, "state")
		o := oracle.New(s)
		for _, f := range cluster.DrawFlows(t, s, 20) {
			v := reason.Explain(o, oracle.AddrEndpoint(f.Src), oracle.AddrEndpoint(f.Dst), f.Protocol, f.DstPort)
			last, lastRound := 0, 0
			for _, c := range v.Changes {
				n, round := written(c), 2*around(c)+relabels(s, c)
				if c.Flips && (round < lastRound || round == lastRound && n < last) {
					t.Fatalf("%s has the size %d (%d) and comes after one of size %d (%d)\n%s", c.Text, n, round, last, lastRound, v)
				}
				last, lastRound = n, round
			}
		}
	})
}

// relabels is 1 for a change that takes a label from a pod, or gives it another value.
func relabels(s cluster.State, c suggest.Change) int {
	for _, part := range append(slices.Clone(c.Parts), c) {
		for _, p := range s.Pods {
			if part.Kind != suggest.LabelPod || part.Pod != (api.PodID{Namespace: p.Namespace, Name: p.Name}) {
				continue
			}
			for key := range part.Set {
				if _, has := p.Labels[key]; has {
					return 1
				}
			}
			if len(part.Unset) > 0 {
				return 1
			}
		}
	}
	return 0
}

// around is how a change evades admin policies: 0 not at all, 1 by labels of pods, 2 by labels of
// namespaces.
func around(c suggest.Change) int {
	var kinds []suggest.Kind
	admin, podOfAdmin := false, false
	for _, p := range append(slices.Clone(c.Parts), c) {
		kinds = append(kinds, p.Kind)
		for _, g := range p.Origins {
			if g.Policy.Kind != api.NetworkPolicy {
				admin = true
				podOfAdmin = podOfAdmin || p.Kind == suggest.LabelPod
			}
		}
	}
	switch {
	case admin && slices.Contains(kinds, suggest.LabelNamespace):
		return 2
	case podOfAdmin:
		return 1
	}
	return 0
}

// written counts what docs/guide/explain.md calls the size of a change.
func written(c suggest.Change) int {
	n := 0
	for _, p := range c.Parts {
		n += written(p)
	}
	switch c.Kind {
	case suggest.LabelPod, suggest.LabelNamespace:
		n += len(c.Set) + len(c.Unset)
	case suggest.AddPort, suggest.AddPeer:
		n++
	case suggest.RemoveExcept:
		n += len(c.Except)
	case suggest.OpenPorts, suggest.RemovePorts, suggest.RemovePeers, suggest.AddExcept:
		n += len(c.Terms)
	case suggest.AddRule, suggest.AddRuleBefore:
		n += 2
	case suggest.RemoveRules:
		n += 2 * len(c.Origins)
	case suggest.Isolate:
		n += 4
	case suggest.AddPolicy:
		n += 6
	case suggest.Together:
	}
	return n
}
