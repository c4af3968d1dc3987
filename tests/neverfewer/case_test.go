package neverfewer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
)

// node is the one whose engine is driven.
const node = "node-0"

// patience is how long a case may take; it is over when something hangs.
const patience = 5 * time.Minute

// Step is what happens between two states that must be enforced.
type Step struct {
	What  string
	Edits []cluster.Edit // all at once
	// Fail are the calls to the dataplane that fail, one in each attempt to enforce the step: 1 is the
	// first one. The attempt after them fails nothing.
	Fail []int
	// Leave leaves what failed to the next step, which comes without a further attempt.
	Leave   bool
	Restart bool   // of the agent: the step is what the new one finds
	Seed    uint64 // of the order of changes
}

// String describes the step in a line.
func (s Step) String() string {
	var b strings.Builder
	b.WriteString(s.What)
	if s.Restart {
		b.WriteString("; the agent restarts")
	}
	for i, n := range s.Fail {
		fmt.Fprintf(&b, "; call %d of attempt %d fails", n, i+1)
	}
	if s.Leave {
		b.WriteString("; the rest is left to the next step")
	}
	return b.String()
}

// Case is steps from nothing on.
type Case struct {
	Steps []Step
	Pace  pace
	Flows []api.Flow
}

// String prints the case for readers: each step with the manifests of what is different then.
func (c Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, pace %+v\n", len(c.Steps), c.Pace)
	var s cluster.State
	for i, step := range c.Steps {
		fmt.Fprintf(&b, "\nstep %d: %s\n", i, step)
		for _, e := range step.Edits {
			b.WriteString(manifest(s, e))
		}
		s = cluster.Edited(s, step.Edits)
	}
	return b.String()
}

func manifest(before cluster.State, e cluster.Edit) string {
	verb := "is new"
	switch {
	case e.Object == nil:
		return fmt.Sprintf("--- # %s is gone\n", e)
	case e.Has(before):
		verb = "is changed"
	}
	text, err := yaml.Marshal(e.Object)
	if err != nil {
		text = []byte(err.Error())
	}
	return fmt.Sprintf("--- # %s %s\n%s", e, verb, text)
}

// run plays the case on a kind and returns the first violation.
func (c Case) run(ctx context.Context, k kind) (n counts, v *violation, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var l *law
	s, err := k.make(c.Pace, func(call string, always bool) {
		if l != nil {
			l.called(call, always)
		}
	})
	if err != nil {
		return n, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	l = newLaw(s, slices.DeleteFunc(slices.Clone(c.Flows), func(f api.Flow) bool { return s.sees != nil && !s.sees(f) }))
	p := &player{law: l, pace: c.Pace, subject: s, known: l}
	if k.between != nil {
		p.known = k.between(l)
	}
	for i, step := range c.Steps {
		l.step = i
		if err := p.play(ctx, step); err != nil {
			return l.counts, nil, err
		}
		if l.broken != nil {
			break
		}
	}
	return l.counts, l.broken, nil
}

// player is the engine of a case that is played.
type player struct {
	law     *law
	subject *subject
	known   renderer.Renderer // to the engine
	pace    pace
	handler *policy.Handler
	state   cluster.State
	objects harness.Objects
}

// begin makes an engine that knows nothing.
func (p *player) begin() error {
	p.handler = policy.NewHandler(policy.Deps{Node: node, Renderers: []renderer.Renderer{p.known}, MinBackoff: time.Hour, SelectorWork: p.pace.work})
	return p.handler.Init()
}

// play lets a step happen.
func (p *player) play(ctx context.Context, s Step) error {
	old := p.objects
	p.state = cluster.Edited(p.state, s.Edits)
	var err error
	if p.objects, err = harness.Reflect(filled(p.state)); err != nil {
		return err
	}
	p.law.states = append(p.law.states, specified(oracle.New(p.state), p.law.flows))
	changes := model.Changes{Deltas: p.objects.Since(old, s.Seed)}
	if s.Restart && p.subject.restart != nil || p.handler == nil {
		if err := p.restart(); err != nil {
			return err
		}
		changes = p.objects.Changes(true, s.Seed)
	}
	deliver := func() error {
		if changes.Resync {
			return p.handler.Resync(ctx, changes.Deltas)
		}
		return p.handler.Update(ctx, changes.Deltas)
	}
	for i, n := range s.Fail {
		p.subject.fail(n)
		err := deliver()
		p.subject.fail(0)
		if err == nil {
			return p.done() // there was no such call
		}
		p.law.counts.failures++
		p.law.look(fmt.Sprintf("attempt %d failed", i+1))
		deliver = func() error { return p.handler.Retry(ctx) }
	}
	if s.Leave && len(s.Fail) > 0 {
		return nil
	}
	for range triesToConverge {
		if err = deliver(); err == nil || ctx.Err() != nil {
			break
		}
		deliver = func() error { return p.handler.Retry(ctx) }
	}
	if err != nil {
		p.law.breaks(ofRenderer, "a retry", "it does not converge although no call fails: %v", err)
		return nil
	}
	return p.done()
}

// triesToConverge is how often what no call fails of is tried: one attempt must do, unless a
// connection has to come up again.
const triesToConverge = 5

// done checks that what is enforced is the state of now.
func (p *player) done() error {
	p.law.states = p.law.states[len(p.law.states)-1:]
	p.law.compareWithStates(p.law.received[len(p.law.received)-1], "the step")
	p.law.look("the step")
	return nil
}

// restart replaces the agent, which has forgotten everything. What it installed is still there.
func (p *player) restart() error {
	if p.handler != nil {
		p.law.counts.restarts++
		if err := errors.Join(p.handler.Close(), p.subject.restart()); err != nil {
			return err
		}
		p.law.Renderer = p.subject.renderer()
	}
	return p.begin()
}

// bulk is the annotation of a policy that has so many rules more than its manifest shows. They are
// about addresses that no flow has.
const bulk = "bulk"

// filled gives policies the rules of their bulk.
func filled(s cluster.State) cluster.State {
	s.Policies = slices.Clone(s.Policies)
	for i, np := range s.Policies {
		n, err := strconv.Atoi(np.Annotations[bulk])
		if err != nil {
			continue
		}
		np = np.DeepCopy()
		delete(np.Annotations, bulk)
		for i := range n {
			peer := networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: fmt.Sprintf("172.%d.%d.%d/32", 16+i>>16, i>>8&255, i&255)}}
			port := intstr.FromInt(20_000 + i)
			ports := []networkingv1.NetworkPolicyPort{{Port: &port}}
			if isolates(np, networkingv1.PolicyTypeIngress) {
				np.Spec.Ingress = append(np.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{peer}, Ports: ports})
			} else {
				np.Spec.Egress = append(np.Spec.Egress, networkingv1.NetworkPolicyEgressRule{To: []networkingv1.NetworkPolicyPeer{peer}, Ports: ports})
			}
		}
		s.Policies[i] = np
	}
	return s
}

// isolates reports whether a policy isolates pods in a direction.
func isolates(np *networkingv1.NetworkPolicy, t networkingv1.PolicyType) bool {
	return np.Spec.PolicyTypes == nil && t == networkingv1.PolicyTypeIngress || slices.Contains(np.Spec.PolicyTypes, t)
}
