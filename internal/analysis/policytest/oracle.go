package policytest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain/reason"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// Oracle is the specification as a Subject: it works on the Kubernetes objects
// themselves.
type Oracle struct {
	options []oracle.Option
	objects map[model.ID]kinds.Object
	oracle  *oracle.Oracle
}

var _ Subject = (*Oracle)(nil)

// NewOracle returns an oracle that knows of no object.
func NewOracle(options ...oracle.Option) *Oracle {
	return &Oracle{options: options, objects: map[model.ID]kinds.Object{}, oracle: oracle.New(oracle.State{}, options...)}
}

// Name returns "oracle".
func (o *Oracle) Name() string { return "oracle" }

// Apply changes the state.
func (o *Oracle) Apply(_ context.Context, upserts []kinds.Object, deletes []model.ID) error {
	for _, id := range deletes {
		delete(o.objects, id)
	}
	for _, obj := range upserts {
		o.objects[obj.ID()] = obj
	}
	var state oracle.State
	for _, obj := range o.objects { // the order means nothing to the oracle
		if !state.Add(obj.Object) {
			return fmt.Errorf("the oracle does not know a %T", obj.Object)
		}
	}
	o.oracle = oracle.New(state, o.options...)
	return nil
}

// Ask returns the verdict of the specification.
func (o *Oracle) Ask(_ context.Context, q Question) (Answer, error) {
	if !q.Explain {
		return Answer{Allowed: o.oracle.Allowed(q.Flow)}, nil
	}
	v := reason.Of(o.oracle.Verdict(q.Flow)).Verdict
	return Answer{Allowed: v.Allowed, Why: why(v, q)}, nil
}

// Close does nothing.
func (o *Oracle) Close() error { return nil }

// why sums a verdict up in one line: what denies, or what both ends say.
func why(v oracle.Verdict, q Question) string {
	var parts []string
	for _, d := range []struct {
		oracle.DirectionVerdict
		name string
	}{{v.Egress, q.Src.Name}, {v.Ingress, q.Dst.Name}} {
		if d.Allowed != v.Allowed || !d.Applies {
			continue
		}
		var rules []string
		for _, origin := range d.Deciding {
			if d.Allowed && origin.Rule >= 0 {
				rules = append(rules, fmt.Sprintf("%s rule %d", origin.Policy.Short(), origin.Rule))
			}
		}
		switch {
		case rules != nil:
			parts = append(parts, fmt.Sprintf("%s of %s: allowed by %s", d.Direction, d.name, strings.Join(rules, ", ")))
		case d.Allowed, slices.ContainsFunc(d.Deciding, func(g api.Origin) bool { return g.Rule >= 0 }): // a rule denies, see the reason
			parts = append(parts, fmt.Sprintf("%s of %s: %s", d.Direction, d.name, d.Reason))
		default:
			parts = append(parts, fmt.Sprintf("%s of %s: %s, and no rule matches", d.Direction, d.name, d.Reason))
		}
	}
	return strings.Join(append(parts, v.Notes...), "; ")
}
