package policytest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/renderer"
)

// fabricReason is the known reason for a dataplane's verdict about a flow.
type fabricReason struct {
	q          Question
	allowed    bool
	decisions  []renderer.Decision   // of the installed tables
	unenforced []renderer.Unenforced // everywhere
	walk       node.Walk             // of the packet, as the dataplane describes it
}

// String names, in one line, the rules that decided, in the direction of the pod, and the limits
// of the dataplane where they decided.
func (r fabricReason) String() string {
	denied := slices.IndexFunc(r.decisions, func(d renderer.Decision) bool { return d.Action == api.Deny })
	switch {
	case r.allowed && denied >= 0:
		return "allowed although the tables deny it, " + r.sides(r.decisions[denied:denied+1], "denied") + ": " + r.walk.String()
	case r.allowed:
		return cmp.Or(r.sides(r.decisions, "allowed"), "no rule restricts it")
	case denied >= 0:
		return cmp.Or(r.sides(r.decisions[denied:denied+1], "denied"), r.walk.String())
	}
	if limits := r.limits(); len(limits) > 0 {
		return "denied: " + strings.Join(limits, "; ")
	}
	return "denied although the tables permit it, " + cmp.Or(r.sides(r.decisions, "allowed"), "no rule restricts it") + ": " + r.walk.String()
}

// sides says of each end what rules did, for example "ingress of shop/db-0 denied: ingress
// isolation by shop/db, and no rule permits it". It is empty where no policy did anything.
func (r fabricReason) sides(decisions []renderer.Decision, did string) string {
	var parts []string
	for _, end := range []struct {
		direction api.Direction
		name      string
	}{{api.Egress, r.q.Src.Name}, {api.Ingress, r.q.Dst.Name}} {
		var origins []api.Origin
		for _, d := range decisions {
			for _, o := range d.Origins {
				if o.Direction == end.direction && !slices.Contains(origins, o) {
					origins = append(origins, o)
				}
			}
		}
		if len(origins) == 0 {
			continue
		}
		part := fmt.Sprintf("%s of %s %s: %s", end.direction, end.name, did, api.OriginTexts(origins))
		if did == "denied" && !slices.ContainsFunc(origins, func(o api.Origin) bool { return o.Rule >= 0 }) {
			part += ", and no rule permits it"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "; ")
}

// limits returns what the dataplane cannot enforce of the rules that permit the flow, and of
// those that deny more than they should.
func (r fabricReason) limits() (out []string) {
	for _, u := range r.unenforced {
		permits := slices.ContainsFunc(r.decisions, func(d renderer.Decision) bool { return slices.Contains(d.Origins, u.Origin) })
		if permits || u.Effect == renderer.EffectWider {
			text := fmt.Sprintf("%s is not enforced: %s; %s", api.OriginTexts([]api.Origin{u.Origin}), u.Reason, u.Effect)
			if !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	return out
}
