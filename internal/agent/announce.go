package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/version"
	"github.com/sluice-net/sluice/internal/view"
)

// maxNamed bounds how many policies a node names to the others.
const maxNamed = 100

// announce publishes for the others how far this node is, for as long as it runs.
func (a *Agent) announce(ctx context.Context) error {
	interval := a.cfg.StatusInterval
	b := a.store.LeasedKey(model.StatusRoot(a.cfg.EtcdPrefix)+a.cfg.Node, max(announceLife*interval, 10*time.Second))
	defer func() { _ = b.Revoke(ctx) }() // it vanishes by itself
	out := announcer{interval: interval, log: a.log, status: a.nodeStatus, publish: b.Put, watch: func() (<-chan struct{}, bool) {
		s, changed := a.node.Plugin.Watch()
		return changed, s.Transactions > 0
	}}
	return out.run(ctx)
}

// nodeStatus is what the others get to know.
func (a *Agent) nodeStatus(ctx context.Context) (view.NodeStatus, error) {
	s := a.pluginStatus()
	v := view.NodeStatus{
		Node: a.cfg.Node, Version: version.Get().Version, Revision: s.Revision, Seen: s.Seen,
		Following: a.watcher.Status().Following, Time: time.Now().UTC(),
	}
	for _, r := range s.Renderers {
		v.Renderers = append(v.Renderers, view.NodeRenderer{Name: r.Name, InSync: r.InSync, Error: r.Error})
	}
	if s.Unenforced == 0 && s.InSync() {
		return v, nil // spares the look at every policy
	}
	policies, err := a.policies(ctx, filter{})
	if err != nil {
		return v, err
	}
	for _, p := range policies {
		if p.Enforced == view.EnforcedFully {
			continue
		}
		if len(v.Policies) == maxNamed {
			v.More++
			continue
		}
		why := p.Pending
		if len(p.Problems) > 0 {
			why = p.Problems[0].Field + ": " + p.Problems[0].Reason
		}
		v.Policies = append(v.Policies, view.UnenforcedPolicy{Policy: p.Policy, Enforced: p.Enforced, Why: why})
	}
	return v, nil
}

// nodes says of every node whether it enforces a policy, or the whole state when none
// is named: of those that report, and of all that the cluster has. The filter's name is
// that of a policy, and its namespace.
func (a *Agent) nodes(ctx context.Context, f filter) ([]view.NodeEnforcement, error) {
	wanted, err := a.wanted(ctx, f)
	if err != nil {
		return nil, err
	}
	entries, revision, err := a.store.List(ctx, model.StatusRoot(a.cfg.EtcdPrefix))
	if err != nil {
		return nil, fmt.Errorf("read the status of nodes: %w", err)
	}
	out := []view.NodeEnforcement{}
	for _, e := range entries {
		v := view.NodeEnforcement{Wanted: wanted}
		node := strings.TrimPrefix(e.Key, model.StatusRoot(a.cfg.EtcdPrefix))
		if v.NodeStatus, err = reported(node, e.Value, revision, time.Now()); err != nil {
			v.Enforced, v.Why = view.EnforcedUnknown, "its report is invalid: "+err.Error()
		} else {
			v.Enforced, v.Why = enforcedThere(v.NodeStatus, wanted, f)
		}
		out = append(out, v)
	}
	missing, err := a.missing(ctx, out)
	if err != nil {
		return nil, err
	}
	for _, name := range missing {
		v := view.NodeEnforcement{Wanted: wanted, Enforced: view.EnforcedUnknown, Why: "no agent reports on it"}
		v.Node = name
		out = append(out, v)
	}
	slices.SortFunc(out, func(a, b view.NodeEnforcement) int { return strings.Compare(a.Node, b.Node) })
	return out, nil
}

// clockSkew is how far the clock of a node may be ahead.
const clockSkew = time.Minute

// reported reads what a node reports. Whose report it is the key decides, which the store lets only
// that node write. Of a report that cannot be true nothing is believed.
func reported(node string, value []byte, revision int64, now time.Time) (view.NodeStatus, error) {
	var s view.NodeStatus
	err := json.Unmarshal(value, &s)
	switch {
	case err != nil:
	case len(validation.IsDNS1123Subdomain(node)) > 0:
		err = errors.New("no node can have this name")
	case s.Node != node:
		err = fmt.Errorf("it names node %s", model.Quoted(s.Node))
	case s.Revision < 0 || s.Revision > revision:
		err = fmt.Errorf("it is at revision %d, and etcd at %d", s.Revision, revision)
	case s.Time.After(now.Add(clockSkew)):
		err = fmt.Errorf("it is of %s, and it is %s", s.Time.Format(time.RFC3339), now.UTC().Format(time.RFC3339))
	case s.More < 0:
		err = fmt.Errorf("it has %d further policies", s.More)
	default:
		return s, nil
	}
	return view.NodeStatus{Node: node}, err
}

// missing returns the nodes of the cluster that are none of those that report.
func (a *Agent) missing(ctx context.Context, reporting []view.NodeEnforcement) ([]string, error) {
	known := map[string]bool{}
	for _, n := range reporting {
		known[n.Node] = true
	}
	objects, _, err := a.store.List(ctx, model.KindRoot(a.cfg.EtcdPrefix, model.KindNode))
	if err != nil {
		return nil, fmt.Errorf("read the nodes of the cluster: %w", err)
	}
	var out []string
	for _, e := range objects {
		if id, err := model.ParseKey(a.cfg.EtcdPrefix, e.Key); err == nil && !known[id.Name] {
			out = append(out, id.Name)
		}
	}
	return out, nil
}

// wanted returns the revision at which a policy, or anything, changed last. What was
// deleted is nowhere in the store: this agent's watch knows it.
func (a *Agent) wanted(ctx context.Context, f filter) (int64, error) {
	if f.name == "" {
		newest, err := a.store.Newest(ctx, model.Root(a.cfg.EtcdPrefix))
		return max(newest, a.watcher.Status().Changed), err
	}
	kinds := []model.Kind{model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy}
	if f.namespace != "" {
		kinds = []model.Kind{model.KindNetworkPolicy}
	}
	for _, kind := range kinds {
		revision, err := a.store.Revision(ctx, model.Key(a.cfg.EtcdPrefix, model.ID{Kind: kind, Namespace: f.namespace, Name: f.name}))
		if err != nil || revision > 0 {
			return revision, err
		}
	}
	return 0, fmt.Errorf("there is no policy %s", strings.TrimPrefix(f.namespace+"/"+f.name, "/"))
}

// enforcedThere says whether a node enforces what changed at a revision.
func enforcedThere(n view.NodeStatus, wanted int64, f filter) (view.Enforcement, string) {
	at := slices.IndexFunc(n.Policies, func(p view.UnenforcedPolicy) bool {
		return f.name == "" || p.Policy.Namespace == f.namespace && p.Policy.Name == f.name
	})
	switch {
	case n.Revision < wanted:
		for _, r := range n.Renderers {
			if r.Error != "" {
				return view.EnforcedPending, r.Name + ": " + r.Error
			}
		}
		why := fmt.Sprintf("is at revision %d", n.Revision)
		if !n.Following {
			why += ", and does not follow the store"
		}
		return view.EnforcedPending, why
	case at >= 0:
		return n.Policies[at].Enforced, n.Policies[at].Why
	case n.More > 0:
		return view.EnforcedPartly, fmt.Sprintf("%d more policies than the node names are not enforced in full", n.More)
	}
	return view.EnforcedFully, ""
}
