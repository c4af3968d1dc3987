package observed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/analysis/preview"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/manifests"
)

// Suggestion is the policies that permit what was observed in a namespace.
type Suggestion struct {
	Namespace string   `json:"namespace"`
	Policies  []Policy `json:"policies"`
	// Flows is how many flows of the namespace were observed and are to be permitted. Denied is
	// those of them that would be denied all the same, with the policies that do it.
	Flows  int      `json:"flows"`
	Denied []Denied `json:"denied,omitempty"`
	// Updated are the policies of the namespace that would be others than they are, and Replaced
	// those that would be gone.
	Updated  []string `json:"updated,omitempty"`
	Replaced []string `json:"replaced,omitempty"`
	// Left are flows that were observed and are not permitted, and Notes other remarks.
	Left  []string `json:"left,omitempty"`
	Notes []string `json:"notes,omitempty"`
	// Change is what becomes of the flows of the namespace; nil where it was not compared.
	Change *Change `json:"change,omitempty"`

	after explain.Manifests
}

// Denied is an observed flow that would be denied.
type Denied struct {
	Flow string       `json:"flow"`
	By   []api.Origin `json:"by"`
}

// Change counts the pairs of workloads that may talk before and after: those of which some flow is
// permitted. One end is in the namespace; what is outside of the cluster is a workload, too.
type Change struct {
	Pairs    int `json:"pairs"`    // before
	Closed   int `json:"closed"`   // that may not talk any more
	Narrowed int `json:"narrowed"` // that may, but less
	Opened   int `json:"opened"`   // that may talk more than before
	// Changes are the pairs with what becomes of them.
	Changes []PairChange `json:"changes,omitempty"`
}

// PairChange is what becomes of a pair of workloads: closed, narrowed or opened.
type PairChange struct {
	From   string `json:"from"`
	To     string `json:"to"`
	Change string `json:"change"`
}

// Suggest returns the policies for a namespace of a cluster. It fails when nothing of the namespace
// was observed.
func Suggest(m explain.Manifests, v *Verdicts, o Options) (Suggestion, error) {
	p := &proposal{Options: o, inventory: newInventory(m), drafts: map[*workload]*draft{}, left: notes{}, notes: notes{}}
	out := Suggestion{Namespace: o.Namespace, Policies: []Policy{}}
	if !slices.ContainsFunc(m.Pods, func(x *model.Pod) bool { return x.GetNamespace() == o.Namespace }) {
		return out, fmt.Errorf("namespace %q has no pods", o.Namespace)
	}
	for _, f := range v.sorted() {
		p.addFlow(f)
	}
	left, notes := p.left.texts(), p.notes.texts()
	out.Flows = len(p.wanted)
	taken, inside := map[string]bool{}, p.inside()
	for _, d := range slices.SortedFunc(maps.Values(p.drafts), func(a, b *draft) int {
		return peerKey{workload: a.workload}.compare(peerKey{workload: b.workload})
	}) {
		out.Policies = append(out.Policies, p.policy(d, nameOf(d.workload, taken), inside))
	}
	if len(out.Policies) == 0 {
		return out, nothing(v, o, append(left, notes...))
	}
	out.Left, out.Notes = left, append(notes, p.remarks(v)...)
	return out, out.check(m, p)
}

// ErrNothing is the error where nothing was observed.
var ErrNothing = errors.New("nothing was observed that a policy has to permit")

// nothing says why there is no proposal.
func nothing(v *Verdicts, o Options, left []string) error {
	err := fmt.Errorf("namespace %s, %s: %w", o.Namespace, term.Count(v.read, "verdict"), ErrNothing)
	if len(left) > 0 {
		err = fmt.Errorf("%w; %s", err, strings.Join(left, "; "))
	}
	return err
}

// remarks are about what the verdicts may not have shown.
func (p *proposal) remarks(v *Verdicts) (out []string) {
	var silent []string
	elsewhere := 0
	for _, w := range p.namespaces[p.Namespace] {
		if p.drafts[w] == nil {
			silent = append(silent, w.name)
		}
	}
	for _, x := range p.pods {
		if x.GetNamespace() == p.Namespace && explain.IsLive(x) && len(v.nodes) > 0 && !v.nodes[x.GetNodeName()] && !v.nodes[""] {
			elsewhere++
		}
	}
	if slices.Sort(silent); len(silent) > 0 {
		out = append(out, "no policy for workloads of which nothing was observed: "+few(slices.Compact(silent), 10))
	}
	if elsewhere > 0 {
		out = append(out, fmt.Sprintf("%s on nodes of which there are no verdicts: give those of their agents, too (-f)", term.Count(elsewhere, "pod")))
	}
	if v.counts > 0 {
		out = append(out, fmt.Sprintf("%d packets were counted without their ends, and are not taken into account", v.counts))
	}
	if v.replies > 0 {
		out = append(out, term.Count(v.replies, "verdict")+" about answers left out")
	}
	return out
}

// check reads the policies as a cluster would, and asks the specification about all flows.
func (s *Suggestion) check(m explain.Manifests, p *proposal) error {
	var text bytes.Buffer
	enforced := *s
	enforced.Policies = nil
	for _, np := range s.Policies {
		np.Annotations = nil // as if they were enforced
		enforced.Policies = append(enforced.Policies, np)
	}
	w := term.NewWriter(&text)
	enforced.writePolicies(w)
	if w.Err() != nil {
		return w.Err()
	}
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, &text)
	if err != nil {
		return fmt.Errorf("read the suggested policies: %w", err)
	}
	change, problems := explain.FromManifests(load, slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		return fmt.Errorf("a suggested policy is invalid, because a label or a name of the cluster is: %w", problems[0])
	}
	if len(change.Policies) != len(s.Policies) {
		return fmt.Errorf("%d policies were read of %d that are suggested: please report this", len(change.Policies), len(s.Policies))
	}
	s.after = m.With(change, s.gone(m, p))
	spec := oracle.New(s.after.State(), oracle.AllowNodeTraffic(!m.DenyNode)).Enforced()
	for _, f := range p.wanted {
		if spec.Allowed(f.Flow) {
			continue
		}
		v := spec.Verdict(f.Flow)
		d := Denied{Flow: flowText(f.flow, f.src, f.dst)}
		for _, dv := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
			if !dv.Allowed {
				d.By = append(d.By, dv.Deciding...)
			}
		}
		s.Denied = append(s.Denied, d)
	}
	return nil
}

// gone returns the policies that would not be there any more, and notes those that would be others.
// A policy that also selects pods for which nothing is proposed stays.
func (s *Suggestion) gone(m explain.Manifests, p *proposal) (out []model.ID) {
	for _, np := range slices.SortedFunc(slices.Values(m.Policies), func(a, b *model.NetworkPolicy) int { return strings.Compare(a.GetName(), b.GetName()) }) {
		if np.GetNamespace() != s.Namespace {
			continue
		}
		id := model.ID{Kind: model.KindNetworkPolicy, Namespace: np.GetNamespace(), Name: np.GetName()}
		switch {
		case slices.ContainsFunc(s.Policies, func(p Policy) bool { return p.Name == id.Name }):
			s.Updated = append(s.Updated, id.Name)
		case !p.Replace:
		case p.silent(np) != nil:
			s.Notes = append(s.Notes, fmt.Sprintf("%s stays, because it selects %s, too, of which nothing was observed", id.Name, p.silent(np)))
		default:
			s.Replaced, out = append(s.Replaced, id.Name), append(out, id)
		}
	}
	return out
}

// silent returns a workload that a policy selects and for which nothing is proposed, nil if there
// is none.
func (p *proposal) silent(np *model.NetworkPolicy) *workload {
	selector, err := metav1.LabelSelectorAsSelector(explain.Selector(np.GetPodSelector()))
	if err != nil {
		return nil // it selects nothing
	}
	for _, w := range p.namespaces[p.Namespace] {
		if p.drafts[w] == nil && slices.ContainsFunc(w.pods, func(x *model.Pod) bool { return selector.Matches(explain.Labels(x)) }) {
			return w
		}
	}
	return nil
}

// After returns the cluster with the policies, enforced.
func (s *Suggestion) After() explain.Manifests { return s.after }

// Compare compares the flows of the namespace with those of today.
func (s *Suggestion) Compare(ctx context.Context, today explain.Manifests) error {
	pairs, err := preview.Pairs(ctx, today, s.after, s.Namespace)
	if err != nil {
		return err
	}
	c := &Change{}
	for _, p := range pairs {
		if p.Was {
			c.Pairs++
		}
		if p.Opens {
			c.Opened++
			c.Changes = append(c.Changes, PairChange{p.From, p.To, "opened"})
		}
		switch {
		case !p.Closes:
		case !p.Is:
			c.Closed++
			c.Changes = append(c.Changes, PairChange{p.From, p.To, "closed"})
		default:
			c.Narrowed++
			c.Changes = append(c.Changes, PairChange{p.From, p.To, "narrowed"})
		}
	}
	s.Change = c
	return nil
}
