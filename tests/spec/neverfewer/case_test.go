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

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/tests/lab/cluster"
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
	Restart bool // of the agent: the step is what the new one finds
	// Stop makes the renderer stand still after the call of this number, 0 for none, while Meanwhile
	// further steps come. They fail nothing and restart nothing. It is for cases with an event loop.
	Stop, Meanwhile int
	Seed            uint64 // of the order of changes
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
	if s.Stop > 0 {
		fmt.Fprintf(&b, "; the renderer stands still after call %d while %d further steps come", s.Stop, s.Meanwhile)
	}
	if s.Leave {
		b.WriteString("; the rest is left to the next step")
	}
	return b.String()
}

// Case is steps from nothing on.
type Case struct {
	Steps []Step
	Loop  bool // the engine has an event loop, as in an agent: slow renderers work beside it
	Flows []api.Flow
}

// String prints the case for readers: each step with the manifests of what is different then.
func (c Case) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d steps, with an event loop: %t\n", len(c.Steps), c.Loop)
	var s cluster.State
	for i, step := range c.Steps {
		fmt.Fprintf(&b, "\nstep %d: %s\n", i, step)
		for _, e := range step.Edits {
			b.WriteString(e.Manifest(s))
		}
		s = cluster.Edited(s, step.Edits)
	}
	return b.String()
}

// run plays the case on a kind and returns the first violation.
func (c Case) run(ctx context.Context, k kind) (n counts, v *violation, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var l *law
	s, err := k.make(func(call string, always bool) {
		if l != nil {
			l.called(call, always)
		}
	})
	if err != nil {
		return n, nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	l = newLaw(s, slices.DeleteFunc(slices.Clone(c.Flows), func(f api.Flow) bool { return s.sees != nil && !s.sees(f) }))
	p := &player{law: l, subject: s, make: func() (engine, error) {
		var known renderer.Renderer = l
		if k.between != nil {
			known = k.between(l)
		}
		d := policy.Deps{Node: node, Renderers: []renderer.Renderer{known}, MinBackoff: time.Hour}
		if c.Loop {
			return newLoop(d)
		}
		return newHandler(d)
	}}
	defer func() {
		err = errors.Join(err, p.end())
		n, v = l.counts, l.broken // nothing runs any more
	}()
	for i, step := range c.Steps {
		var broken bool
		l.locked(func() { l.step, broken = i, l.broken != nil })
		if broken {
			break
		}
		if err := p.play(ctx, step); err != nil {
			return n, v, err
		}
	}
	return n, v, p.goOn(ctx)
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
