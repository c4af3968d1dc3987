package debugapi

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/policy"
	"github.com/sluice-net/sluice/renderer"
)

// limits lists what policies and dataplanes may take, and what they take. It reads what was published.
func (l *Lists) limits(ctx context.Context, f Filter) ([]view.Limit, error) {
	s, err := l.Node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	out := []view.Limit{}
	add := func(v view.Limit) {
		of := func(c view.ClosedPolicy) bool { return c.Policy.Namespace == f.namespace }
		if (f.namespace == "" || v.Namespace == f.namespace || slices.ContainsFunc(v.Closed, of)) && strings.Contains(v.Limit, f.name) {
			out = append(out, v)
		}
	}
	for _, t := range s.Tenants {
		add(quotaOf(t, s.Policies))
	}
	for _, r := range l.Node.States() {
		for _, c := range r.Capacity {
			for _, v := range capacityOf(r.Renderer, c) {
				add(v)
			}
		}
		if len(r.Closed) > 0 {
			add(closedOf(r))
		}
	}
	for _, v := range objectLimits {
		add(v)
	}
	return out, nil
}

// quotaOf returns the quota of a namespace.
func quotaOf(t policy.Tenant, policies []policy.Policy) view.Limit {
	v := view.Limit{Limit: "quota/" + t.Namespace, Of: "policies", What: "units of the namespace", Namespace: t.Namespace, Used: &t.Units, Most: t.Quota}
	if t.Namespace == "" {
		v.Limit, v.What = "quota-of-admin-policies", "units of admin policies, which are never refused"
	}
	v.State = stateOf(t.Units, t.Quota)
	refused := make(map[api.PolicyID]bool, len(t.Refused))
	for _, id := range t.Refused {
		refused[id] = true
	}
	for _, p := range policies {
		if !refused[p.ID] {
			continue
		}
		c := view.ClosedPolicy{Policy: p.ID, Reason: "it does not fit into the quota"}
		for _, problem := range p.Problems {
			if problem.Class == api.ClassLimit {
				c.Reason = problem.Reason
			}
		}
		v.Closed, v.State = append(v.Closed, c), view.LimitExceeded
	}
	return v
}

func stateOf(used, most int) string {
	switch {
	case most > 0 && used > most:
		return view.LimitExceeded
	case most > 0 && used >= most/2:
		return view.LimitHalf
	}
	return view.LimitOK
}

// capacityOf returns the limits of a resource of a dataplane.
func capacityOf(name string, c renderer.Capacity) (out []view.Limit) {
	of := c.Of
	if of != "" {
		c.Of = "namespace " + c.Of + ", which takes most"
	}
	for _, x := range []struct {
		scope, what string
		share       renderer.Share
		counted     bool
	}{
		{"list", "of the list that takes most", c.List, true},
		{"namespace", "of " + cmp.Or(c.Of, "a namespace"), c.Namespace, c.Of != ""},
		{"total", "of all lists", c.Total, true},
	} {
		if x.share.Most == 0 {
			continue
		}
		v := view.Limit{
			Limit: name + "/" + strings.ReplaceAll(c.Resource, " ", "-") + "/" + x.scope, Of: "renderer " + name,
			What: c.Resource + " " + x.what, Most: x.share.Most, State: stateOf(x.share.Used, x.share.Most),
		}
		if x.counted {
			v.Used = &x.share.Used
		}
		if x.scope == "namespace" {
			v.Namespace = of
		}
		out = append(out, v)
	}
	return out
}

// closedOf returns what a dataplane has no room for.
func closedOf(s *renderer.State) view.Limit {
	v := view.Limit{Limit: s.Renderer + "/closed", Of: "renderer " + s.Renderer, What: "policies that are closed", State: view.LimitExceeded}
	policies := map[api.PolicyID]bool{}
	for _, c := range s.Closed {
		policies[c.Policy] = true
		v.Closed = append(v.Closed, view.ClosedPolicy(c))
	}
	n := len(policies)
	v.Used = &n
	return v
}

// objectLimits are the limits of one object, which sluice-ksr and the agent check.
var objectLimits = []view.Limit{
	objectLimit("bytes", "bytes of an object in the store", model.MaxValue),
	objectLimit("rules", "rules of a policy", model.MaxRules),
	objectLimit("named-ports", "pairs of a peer and a port name in egress rules of a policy", model.MaxFamilies),
	objectLimit("addresses", "addresses of a pod that are used", model.MaxAddresses),
}

func objectLimit(name, what string, most int) view.Limit {
	return view.Limit{Limit: "object/" + name, Of: "every object", What: what, Most: most, State: view.LimitOK}
}
