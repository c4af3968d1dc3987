package nodestatus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/datasync"
)

// Store is the store in which nodes report.
type Store interface {
	List(ctx context.Context, prefix string) ([]model.Entry, int64, error)
	// Newest returns the revision of the newest key below a prefix, and Revision that of a key; 0
	// when there is none.
	Newest(ctx context.Context, prefix string) (int64, error)
	Revision(ctx context.Context, key string) (int64, error)
}

// Policy names a policy; without a Name it stands for all, and without a Kind for those of all kinds that
// have no namespace.
type Policy struct {
	Namespace, Name string
	Kind            api.PolicyKind
}

// Nodes knows what all nodes report.
type Nodes struct {
	Store  Store
	Prefix string
	// Watcher is asked for the newest change that was seen.
	Watcher interface{ Status() datasync.Status }
	// Unwritten returns why the state in the store may be stale; "" while a reflector writes it.
	Unwritten func() string
}

// List says of every node whether it enforces a policy, or the whole state when none
// is named: of those that report, and of all that the cluster has.
func (n *Nodes) List(ctx context.Context, of Policy) ([]view.NodeEnforcement, error) {
	wanted, err := n.wanted(ctx, of)
	if err != nil {
		return nil, err
	}
	entries, revision, err := n.Store.List(ctx, model.StatusRoot(n.Prefix))
	if err != nil {
		return nil, fmt.Errorf("read the status of nodes: %w", err)
	}
	out := []view.NodeEnforcement{}
	for _, e := range entries {
		v := view.NodeEnforcement{Wanted: wanted}
		node := strings.TrimPrefix(e.Key, model.StatusRoot(n.Prefix))
		if v.NodeStatus, err = Reported(node, e.Value, revision, time.Now()); err != nil {
			v.Enforced, v.Why = view.EnforcedUnknown, "its report is invalid: "+err.Error()
		} else {
			v.Enforced, v.Why = Enforces(v.NodeStatus, wanted, of)
		}
		// A node enforces what is in the store; what changed since then is not there.
		if why := n.Unwritten(); why != "" && v.Enforced == view.EnforcedFully {
			v.Enforced, v.Why = view.EnforcedUnknown, why
		}
		out = append(out, v)
	}
	missing, err := n.missing(ctx, out)
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

// Reported reads what a node reports. Whose report it is the key decides, which the store lets only
// that node write. Of a report that cannot be true nothing is believed.
func Reported(node string, value []byte, revision int64, now time.Time) (view.NodeStatus, error) {
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
func (n *Nodes) missing(ctx context.Context, reporting []view.NodeEnforcement) ([]string, error) {
	known := map[string]bool{}
	for _, n := range reporting {
		known[n.Node] = true
	}
	objects, _, err := n.Store.List(ctx, model.KindRoot(n.Prefix, model.KindNode))
	if err != nil {
		return nil, fmt.Errorf("read the nodes of the cluster: %w", err)
	}
	var out []string
	for _, e := range objects {
		if id, err := model.ParseKey(n.Prefix, e.Key); err == nil && !known[id.Name] {
			out = append(out, id.Name)
		}
	}
	return out, nil
}

// wanted returns the revision at which a policy, or any object, changed last. The completeness
// marker is no object: agents have nothing to enforce when it is written alone.
func (n *Nodes) wanted(ctx context.Context, of Policy) (int64, error) {
	if of.Name == "" {
		wanted := n.Watcher.Status().Changed // knows what was deleted, which is nowhere in the store
		for _, kind := range model.Kinds {
			newest, err := n.Store.Newest(ctx, model.KindRoot(n.Prefix, kind))
			if err != nil {
				return 0, err
			}
			wanted = max(wanted, newest)
		}
		return wanted, nil
	}
	kinds := []model.Kind{model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy}
	if of.Namespace != "" {
		kinds = []model.Kind{model.KindNetworkPolicy}
	}
	for _, kind := range kinds {
		revision, err := n.Store.Revision(ctx, model.Key(n.Prefix, model.ID{Kind: kind, Namespace: of.Namespace, Name: of.Name}))
		if err != nil || revision > 0 {
			return revision, err
		}
	}
	return 0, fmt.Errorf("there is no policy %s", strings.TrimPrefix(of.Namespace+"/"+of.Name, "/"))
}

// Enforces reports whether a node enforces a policy, or everything, that changed at a revision, and why
// not.
func Enforces(n view.NodeStatus, wanted int64, of Policy) (view.Enforcement, string) {
	at := slices.IndexFunc(n.Policies, func(p view.UnenforcedPolicy) bool {
		return of.Name == "" || p.Policy.Namespace == of.Namespace && p.Policy.Name == of.Name && (of.Kind == 0 || p.Policy.Kind == of.Kind)
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
		return view.EnforcedPartly, fmt.Sprintf("%d more policies than the node names are partially enforced", n.More)
	}
	return view.EnforcedFully, ""
}
