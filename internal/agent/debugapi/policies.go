package debugapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// Policies returns the policies that are in force, in their order.
func (l *Lists) Policies(ctx context.Context) ([]view.Policy, error) {
	return l.policies(ctx, Filter{})
}

func (l *Lists) policies(ctx context.Context, f Filter) ([]view.Policy, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	states := l.Node.States()
	causes, waits := l.Problems.ByObject(), newWaits(states, node.WithFindings(s.Status, states), s.Pods)
	out, order := []view.Policy{}, map[api.PolicyID]api.Place{}
	for _, p := range s.Policies {
		order[p.ID] = p.Place
		if !f.wants(p.ID.Namespace, p.ID.Name) {
			continue
		}
		v := policyView(p)
		v.Problems = l.Problems.WithCauses(causes[p.ID.String()], p.Problems)
		switch v.Pending = waits.reasonFor(p); {
		case v.Pending != "":
			v.Enforced = view.EnforcedPending
		case len(v.Problems) > 0:
			v.Enforced = view.EnforcedPartly
		}
		out = append(out, v)
	}
	slices.SortStableFunc(out, func(a, b view.Policy) int { return order[a.Policy].Compare(order[b.Policy]) })
	return out, nil
}

func policyView(p policy.Policy) view.Policy {
	v := view.Policy{
		Policy: p.ID, Selector: cmp.Or(p.Subject, "every pod"), Pods: p.Pods, Rules: p.Rules, Audit: p.Audit,
		Enforced: view.EnforcedFully, Notes: p.Notes,
	}
	if v.Tier = p.Place.Tier.String(); p.Place.Tier != api.TierNetworkPolicy {
		v.Priority = &p.Place.Priority
	}
	if p.IsolatesIngress {
		v.Isolates = append(v.Isolates, api.Ingress)
	}
	if p.IsolatesEgress {
		v.Isolates = append(v.Isolates, api.Egress)
	}
	if len(p.Pods) == 0 && p.Readable {
		field := "spec.podSelector"
		if p.Place.Tier != api.TierNetworkPolicy {
			field = "spec.subject"
		}
		v.Notes = append(slices.Clone(v.Notes), api.Problem{Object: p.ID.String(), Field: field,
			Class: api.ClassSelector, Reason: "selects no pod of this node now"})
	}
	return v
}

// waits is what enforcement waits for.
type waits struct {
	pods   map[api.PodID]bool // that have no interface
	rules  map[api.PodID]bool // whose rules are not made yet
	uplink string             // what is missing beside them
	all    string             // what every policy waits for
}

// newWaits reads who has no interface. A renderer that fails because of that, or has no place for
// new sessions, enforces everything else.
func newWaits(states []*renderer.State, status policy.Status, pods []policy.Pod) waits {
	w := waits{pods: map[api.PodID]bool{}, rules: map[api.PodID]bool{}}
	for _, p := range pods {
		if p.Waiting {
			w.rules[p.ID] = true
		}
	}
	enforces := map[string]bool{}
	for _, s := range states {
		enforces[s.Renderer] = errors.Is(s.Err, renderer.ErrNoInterface) || errors.Is(s.Err, renderer.ErrSessionsFull) || errors.Is(s.Err, renderer.ErrConnectionsFull)
		for _, p := range s.Pending {
			switch {
			case p.Ends: // nothing passes there that could be judged
			case p.Pod == (api.PodID{}):
				w.uplink = p.Reason
			default:
				w.pods[p.Pod] = true
			}
		}
	}
	for _, r := range status.Renderers {
		switch {
		case enforces[r.Name], w.all != "":
		case r.Error != "":
			w.all = r.Error
		case !r.InSync:
			w.all = "renderer " + r.Name + " has enforced nothing yet"
		}
	}
	return w
}

// reasonFor returns what a policy that applies to local pods waits for.
func (w waits) reasonFor(p policy.Policy) string {
	missing, unmade := 0, 0
	for _, pod := range p.Pods {
		if w.pods[pod] {
			missing++
		}
		if w.rules[pod] {
			unmade++
		}
	}
	switch {
	case len(p.Pods) == 0:
		return ""
	case w.all != "":
		return w.all
	case missing > 0:
		return fmt.Sprintf("%d of %s without an interface in the vswitch", missing, term.Count(len(p.Pods), "local pod"))
	case unmade > 0:
		return fmt.Sprintf("%d of %s wait for their rules, which take long to make", unmade, term.Count(len(p.Pods), "local pod"))
	case w.uplink != "" && p.IsolatesEgress:
		return w.uplink
	}
	return ""
}

// unenforced counts the policies that one of the problems is about.
func unenforced(policies []policy.Policy, problems []api.Problem) (n int) {
	objects := map[string]bool{}
	for _, p := range problems {
		objects[p.Object] = true
	}
	for _, p := range policies {
		if objects[p.ID.String()] {
			n++
		}
	}
	return n
}
