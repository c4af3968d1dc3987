package reflector

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"google.golang.org/protobuf/proto"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/nodestatus"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/kube"
)

// The conditions of a ClusterNetworkPolicy, and their reasons.
const (
	conditionAccepted = "Accepted"
	conditionEnforced = "Enforced"

	reasonValid       = "Valid"
	reasonPartlyValid = "PartlyValid" // an invalid part permits nothing
	reasonInvalid     = "Invalid"     // as a whole: what it may select is closed

	reasonAllNodes    = "AllNodes"
	reasonSomeNodes   = "SomeNodes"
	reasonNotAccepted = "NotAccepted"
	reasonAudit       = "Audit"      // it denies nothing
	reasonReflecting  = "Reflecting" // its newest generation is not in the store yet
	reasonNoNodes     = "NoNodes"
)

const (
	// reportEvery is the interval at which the leader compares what nodes report with what policies say.
	reportEvery = time.Second
	// lookEvery is the interval at which it does so although nothing was written: what a node does not
	// report any more is only gone.
	lookEvery = 30 * time.Second
	// countsEvery is the interval at which the numbers of nodes of one policy are written anew, while its
	// conditions stay what they are.
	countsEvery = 10 * time.Second
	// reportsPerSecond bounds how many conditions are written in the long run, and reportBurst at once.
	reportsPerSecond = 0.4
	reportBurst      = 50
	// untrue conditions say that a policy is enforced, and it is not: they have a budget of their own.
	untruePerSecond = 0.4
	untrueBurst     = 1000
	// refusedFor is how long the conditions of a policy are not written after the API server has refused
	// them, for want of rights or because a webhook does not permit them.
	refusedFor = time.Minute
	// longestReason bounds what a message says of a node or a field.
	longestReason = 256
)

// reporter writes conditions of policies while this replica leads.
type reporter struct {
	*Reflector
	api     policyAPI
	limit   *rate.Limiter
	untrue  *rate.Limiter
	seen    seenState
	looked  time.Time
	pending bool                         // something could not be written
	written map[types.UID]*writtenPolicy // as the API server has them
	listed  time.Time                    // when it was asked for all
	failed  bool                         // the last pass
	now     func() time.Time
}

// policyAPI is what the reporter needs of the API server: kube.Source.
type policyAPI interface {
	ClusterPolicies() ([]kube.ClusterPolicy, int)
	Conditions(ctx context.Context) (map[types.UID][]metav1.Condition, error)
	SetConditions(ctx context.Context, p kube.ClusterPolicy, conditions []metav1.Condition) error
}

// seenState tells whether anything changed.
type seenState struct {
	policies               int
	status, nodes, objects int64
}

// writtenPolicy is what the API server has of a policy.
type writtenPolicy struct {
	conditions []metav1.Condition
	at         time.Time // when it was written last
	refused    time.Time // until when it is not written
}

func newReporter(r *Reflector, api policyAPI) *reporter {
	return &reporter{
		Reflector: r, api: api, now: time.Now, written: map[types.UID]*writtenPolicy{},
		limit: rate.NewLimiter(reportsPerSecond, reportBurst), untrue: rate.NewLimiter(untruePerSecond, untrueBurst),
	}
}

// reportConditions writes conditions until ctx ends.
func (r *Reflector) reportConditions(ctx context.Context) error {
	p := newReporter(r, r.source)
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	for {
		if err := p.report(ctx); err != nil && ctx.Err() == nil && !p.failed {
			r.log.Warn("conditions of policies cannot be written", "error", err)
			p.failed = true
		} else if err == nil {
			p.failed = false
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// report writes what has changed.
func (p *reporter) report(ctx context.Context) error {
	policies, changes := p.api.ClusterPolicies()
	if len(policies) == 0 {
		return nil
	}
	now := seenState{policies: changes}
	for prefix, revision := range map[string]*int64{
		model.StatusRoot(p.cfg.EtcdPrefix):                               &now.status,
		model.KindRoot(p.cfg.EtcdPrefix, model.KindNode):                 &now.nodes,
		model.KindRoot(p.cfg.EtcdPrefix, model.KindClusterNetworkPolicy): &now.objects,
	} {
		var err error
		if *revision, err = p.store.Newest(ctx, prefix); err != nil {
			return fmt.Errorf("read the status of nodes: %w", err)
		}
	}
	if now == p.seen && !p.pending && p.now().Sub(p.looked) < lookEvery {
		return nil
	}
	if err := p.list(ctx); err != nil {
		return err
	}
	nodes, objects, err := p.read(ctx)
	if err != nil {
		return err
	}
	p.pending, p.looked = false, p.now()
	var due []duePolicy
	for _, policy := range policies {
		if d, is := p.due(policy, conditionsOf(policy, objects[policy.Name], nodes)); is {
			due = append(due, d)
		}
	}
	slices.SortStableFunc(due, func(a, b duePolicy) int { return cmp.Or(int(a.how)-int(b.how), a.had.at.Compare(b.had.at)) })
	p.seen = now
	return p.write(ctx, due)
}

// list asks the API server what it has, now and then: another replica may have written last.
func (p *reporter) list(ctx context.Context) error {
	if !p.listed.IsZero() && p.now().Sub(p.listed) < lookEvery {
		return nil
	}
	all, err := p.api.Conditions(ctx)
	if err != nil {
		return err
	}
	written := map[types.UID]*writtenPolicy{}
	for uid, conditions := range all {
		had := p.written[uid]
		if had == nil {
			had = &writtenPolicy{}
		}
		had.conditions, written[uid] = conditions, had
	}
	p.written, p.listed = written, p.now()
	return nil
}

// duePolicy is a policy whose conditions are to be written.
type duePolicy struct {
	kube.ClusterPolicy
	conditions []metav1.Condition
	had        *writtenPolicy
	how        urgency
}

// urgency orders what is to be written.
type urgency int

const (
	isUntrue urgency = iota // what the API server has says too much
	isOther                 // it says something else
	isCount                 // another number of nodes, or another reason
)

// due returns what is to be written of a policy, with the times of transitions.
func (p *reporter) due(policy kube.ClusterPolicy, want []metav1.Condition) (d duePolicy, is bool) {
	had := p.written[policy.UID]
	if had == nil { // it is new
		had = &writtenPolicy{}
		p.written[policy.UID] = had
	}
	d = duePolicy{policy, want, had, isCount}
	for i, c := range want {
		d.conditions[i].LastTransitionTime = metav1.NewTime(p.now().Truncate(time.Second))
		old := metav1.Condition{}
		if at := slices.IndexFunc(had.conditions, func(old metav1.Condition) bool { return old.Type == c.Type }); at >= 0 {
			old = had.conditions[at]
		}
		if old.Status == c.Status {
			d.conditions[i].LastTransitionTime = old.LastTransitionTime
		}
		is = is || old.Status != c.Status || old.Reason != c.Reason || old.ObservedGeneration != c.ObservedGeneration || old.Message != c.Message
		switch {
		case old.Status == metav1.ConditionTrue && c.Status != metav1.ConditionTrue:
			d.how = isUntrue
		case old.Status != c.Status || old.Reason != c.Reason || old.ObservedGeneration != c.ObservedGeneration:
			d.how = min(d.how, isOther)
		}
	}
	return d, is
}

// write writes conditions as far as the budgets allow. One that the API server refuses keeps none of the
// others back.
func (p *reporter) write(ctx context.Context, due []duePolicy) (err error) {
	for _, d := range due {
		budget := p.limit
		if d.how == isUntrue {
			budget = p.untrue
		}
		if d.how == isCount && p.now().Sub(d.had.at) < countsEvery || p.now().Before(d.had.refused) || !budget.AllowN(p.now(), 1) {
			p.pending = true
			continue
		}
		failed := p.api.SetConditions(ctx, d.ClusterPolicy, d.conditions)
		var status apierrors.APIStatus
		answered := errors.As(failed, &status)
		switch {
		case failed == nil:
			d.had.conditions, d.had.at = d.conditions, p.now()
			continue
		case apierrors.IsNotFound(failed), apierrors.IsConflict(failed): // it was deleted, or is another one now
			continue
		case !answered:
			p.pending = true
			return failed
		case apierrors.IsForbidden(failed):
			failed = fmt.Errorf("%w: the ClusterRole sluice-ksr of deploy/ksr has the right; --report-status=false ends this", failed)
		}
		p.pending, d.had.refused, err = true, p.now().Add(refusedFor), failed
	}
	return err
}

// read returns what nodes report, and the policies in the store by their names.
func (p *reporter) read(ctx context.Context) (nodes []nodeReport, objects map[string]model.Entry, err error) {
	prefix, root := p.cfg.EtcdPrefix, model.StatusRoot(p.cfg.EtcdPrefix)
	reports, revision, err := p.store.List(ctx, root)
	if err != nil {
		return nil, nil, fmt.Errorf("read the status of nodes: %w", err)
	}
	reported := map[string]bool{}
	for _, e := range reports {
		n := nodeReport{node: strings.TrimPrefix(e.Key, root)}
		n.status, n.err = nodestatus.Reported(n.node, e.Value, revision, p.now())
		nodes, reported[n.node] = append(nodes, n), true
	}
	existing, _, err := p.store.List(ctx, model.KindRoot(prefix, model.KindNode))
	if err != nil {
		return nil, nil, fmt.Errorf("read the nodes of the cluster: %w", err)
	}
	for _, e := range existing {
		if id, err := model.ParseKey(prefix, e.Key); err == nil && !reported[id.Name] {
			nodes = append(nodes, nodeReport{node: id.Name, err: errors.New("no agent reports on it")})
		}
	}
	entries, _, err := p.store.List(ctx, model.KindRoot(prefix, model.KindClusterNetworkPolicy))
	if err != nil {
		return nil, nil, fmt.Errorf("read policies: %w", err)
	}
	objects = map[string]model.Entry{}
	for _, e := range entries {
		if id, err := model.ParseKey(prefix, e.Key); err == nil {
			objects[id.Name] = e
		}
	}
	return nodes, objects, nil
}

// nodeReport is what a node reports, or why that is not known.
type nodeReport struct {
	node   string
	status view.NodeStatus
	err    error
}

// conditionsOf returns what is true of a policy, without times. stored is its entry in the store, as long
// as it has one.
func conditionsOf(policy kube.ClusterPolicy, stored model.Entry, nodes []nodeReport) []metav1.Condition {
	accepted := metav1.Condition{Type: conditionAccepted, Status: metav1.ConditionTrue, Reason: reasonValid, ObservedGeneration: policy.Generation}
	if len(policy.Problems) > 0 {
		first := policy.Problems[0]
		first.Object = ""
		accepted.Reason, accepted.Message = reasonPartlyValid, shortened(first.Error())
		if n := len(policy.Problems) - 1; n > 0 {
			accepted.Message += fmt.Sprintf(" (and %d more)", n)
		}
	}
	if policy.Refused {
		accepted.Status, accepted.Reason = metav1.ConditionFalse, reasonInvalid
	}
	enforced := metav1.Condition{Type: conditionEnforced, Status: metav1.ConditionFalse, ObservedGeneration: policy.Generation}
	value, err := model.Encode(policy.Value)
	switch {
	case policy.Refused:
		enforced.Reason, enforced.Message = reasonNotAccepted, "what the policy may select is closed, or an older version of it is enforced"
	case err != nil || !bytes.Equal(value, stored.Value):
		enforced.Status, enforced.Reason = metav1.ConditionUnknown, reasonReflecting
	case audits(policy.Value):
		enforced.Reason, enforced.Message = reasonAudit, "the policy is in audit mode: it denies nothing"
	case len(nodes) == 0:
		enforced.Status, enforced.Reason = metav1.ConditionUnknown, reasonNoNodes
	default:
		done, worst := 0, worstNode{}
		for _, n := range nodes {
			how, why := n.enforces(policy.Name, stored.Revision)
			if how == view.EnforcedFully {
				done++
			}
			worst.add(n.node, how, why)
		}
		enforced.Reason, enforced.Message = reasonSomeNodes, fmt.Sprintf("%d/%d nodes", done, len(nodes))
		if done == len(nodes) {
			enforced.Status, enforced.Reason = metav1.ConditionTrue, reasonAllNodes
		} else {
			enforced.Message += "; " + worst.String()
		}
	}
	return []metav1.Condition{accepted, enforced}
}

// audits reports whether a policy is in audit mode.
func audits(value proto.Message) bool {
	p, ok := value.(*model.ClusterPolicy)
	return ok && p.GetAudit()
}

// enforces reports how far a node enforces a policy that was written at a revision.
func (n nodeReport) enforces(policy string, revision int64) (view.Enforcement, string) {
	if n.err != nil {
		return view.EnforcedUnknown, n.err.Error()
	}
	return nodestatus.Enforces(n.status, revision, nodestatus.Policy{Name: policy, Kind: api.ClusterNetworkPolicy})
}

// worstNode is the node that is furthest from enforcing a policy: the first one by name.
type worstNode struct {
	node string
	how  view.Enforcement
	why  string
}

// badness orders how far nodes are from enforcing.
var badness = []view.Enforcement{view.EnforcedFully, view.EnforcedPending, view.EnforcedPartly, view.EnforcedUnknown}

func (w *worstNode) add(node string, how view.Enforcement, why string) {
	is, was := slices.Index(badness, how), slices.Index(badness, w.how)
	if w.node == "" || is > was || is == was && node < w.node {
		*w = worstNode{node, how, why}
	}
}

func (w *worstNode) String() string {
	return shortened(strings.TrimSuffix(fmt.Sprintf("%s: %s: %s", w.node, w.how, w.why), ": "))
}

// shortened bounds a text, of which a policy or a node may be the author.
func shortened(text string) string {
	text = model.Printable(text)
	if r := []rune(text); len(r) > longestReason {
		return string(r[:longestReason-1]) + "…"
	}
	return text
}
