package xdp

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
	"github.com/sluice-net/sluice/renderer/xdp/internal/attach"
	"github.com/sluice-net/sluice/renderer/xdp/internal/events"
)

// Renderer enforces rules in a Plane. It implements renderer.Renderer, and every ability that
// readers find by type assertion; these wait for no Commit. Transactions are committed one after
// the other.
type Renderer struct {
	options  Options
	log      *slog.Logger
	view     atomic.Pointer[view]
	counters *ruleCounters
	desired  desired

	mu          sync.Mutex // held for a Commit
	policy      *policy
	attachments *attachments
	learning    learning
	closed      closedLists
	audits      audits
	pending     []renderer.Pending
	refused     []renderer.Unenforced
	acked       endpoints // what a Commit without an error has installed last
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
	_ renderer.Counter   = (*Renderer)(nil)
)

// New returns a renderer. Nothing is changed before the first Commit.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.MaxLines == 0 {
		o.MaxLines = DefaultMaxLines
	}
	switch {
	case o.Dataplane == nil:
		return nil, errors.New("xdp: a plane is needed to enforce in")
	case o.Interfaces == nil:
		return nil, errors.New("xdp: a function is needed that says which interfaces a pod has")
	case o.MaxLines > DefaultMaxLines:
		return nil, fmt.Errorf("xdp: a memory of up to %d lines: want %d at most", o.MaxLines, DefaultMaxLines)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	o.Infra = infra
	r := &Renderer{
		options: o, log: o.Log, counters: newRuleCounters(), desired: newDesired(),
		learning: learning{period: o.Learn, until: map[uint32]time.Time{}, wake: o.OnChange},
		audits:   audits{last: time.Now(), drift: attach.Drift{}},
	}
	r.policy = newPolicy(o, r.counters, &r.desired)
	r.attachments = newAttachments(o, r.audits.drift)
	_ = r.publish(nil)
	return r, nil
}

// Name returns "xdp".
func (r *Renderer) Name() string { return "xdp" }

// Close ends what the renderer started. What it installed stays in force.
func (r *Renderer) Close() error {
	r.mu.Lock()
	r.learning.stop()
	r.mu.Unlock()
	r.policy.reclaimer.close()
	return nil
}

// txn implements renderer.Txn. It keeps what is told, and is applied by Commit.
type txn struct {
	changes
	r *Renderer
}

// NewTxn starts a transaction.
func (r *Renderer) NewTxn(resync bool) renderer.Txn {
	return &txn{changes{resync: resync, pods: map[api.PodID]*renderer.PodConfig{}, sets: map[api.SetID]setChange{}}, r}
}

// Commit installs the difference.
func (t *txn) Commit(ctx context.Context) error {
	r := t.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.desired.apply(t.changes, r.policy.image.Update)
	return r.publish(r.commit(ctx))
}

// commit brings the plane from what it enforces to what is desired.
func (r *Renderer) commit(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.policy.release()
	r.closed.reconsider(r.policy.image)
	want, problems := r.claims()
	problems = append(problems, r.policy.arrange(want)...)
	since := events.SinceBoot()
	if err := r.audit(); err != nil {
		problems = append(problems, err)
	}
	mark := markOf(r.desired.mark, r.policy.ends.lists, r.options.Infra)
	if !r.policy.current() && r.options.Dataplane.StateDigest() == mark {
		same, err := r.attachments.match(r.policy.ends.lists)
		if err != nil {
			return err
		}
		if same {
			r.policy.adopt()
		}
	}
	lost, err := r.attachments.missing(r.policy.ends.lists)
	if err != nil {
		return err
	}
	if lost || r.policy.state != policyAdopted || r.options.Dataplane.StateDigest() != mark {
		gone, err := r.install(mark)
		if err != nil {
			r.policy.on(policyFailed)
			return errors.Join(append(problems, err)...)
		}
		r.policy.on(policyFinished)
		problems = append(problems, gone...)
	}
	r.acknowledge(since, problems)
	return errors.Join(problems...)
}

// acknowledge notes that what is desired is enforced, but for some problems, from a time on.
func (r *Renderer) acknowledge(since time.Duration, problems []error) {
	enforced := r.closed.update(r.policy.image, r.policy.ends.lists)
	r.refused = r.closed.report(r.policy.ends) // none also when what is desired is again what was in force all the time
	r.policy.note(since)
	pods := make(map[api.PodID]bool, len(r.desired.pods))
	for pod := range r.desired.pods {
		pods[pod] = true
	}
	enforces, plugged := r.attachments.enforces(r.policy.ends.owner), map[api.PodID]bool{}
	for _, pod := range enforces {
		plugged[pod] = true
	}
	r.attachments.ending.Plugged(plugged, func(pod api.PodID) bool { return pods[pod] })
	r.desired.acknowledge(func() {
		r.acked = endpoints{enforced, r.policy.ends.owner}
		_ = r.publish(errors.Join(problems...)) // so that readers see these members with these lists
	})
	if r.options.Enforced != nil {
		r.options.Enforced(pods, enforces)
	}
}

// markOf identifies everything that is desired, as far as it is enforced: the members of sets,
// endpoints, and what passes whatever policy says.
func markOf(members StateDigest, ends map[uint32]compile.Endpoint, infra renderer.Infra) StateDigest {
	m := members
	for id, e := range ends {
		var b bytes.Buffer
		fmt.Fprintf(&b, "e%d %v %s %t %s %t %d", id, e.IPs, e.ToPod.Digest(), e.ToPod == nil, e.FromPod.Digest(), e.FromPod == nil, e.Flags&compile.FlagKeep)
		m.toggle(b.Bytes())
	}
	m.toggle(fmt.Append(nil, "i", infra))
	return m
}

// claims returns the endpoints that there must be, and what is wrong about them.
func (r *Renderer) claims() (want endpoints, problems []error) {
	want = newEndpoints()
	r.pending = nil
	for _, pod := range slices.SortedFunc(maps.Keys(r.desired.pods), api.PodID.Compare) {
		cfg := r.desired.pods[pod]
		ids := r.options.Interfaces(pod, cfg.IPs)
		if len(ids) == 0 && (cfg.Ingress != nil || cfg.Egress != nil) {
			r.pending = append(r.pending, r.attachments.pending(pod))
		}
		for _, id := range ids {
			e := compile.Endpoint{ID: id, IPs: cfg.IPs, FromPod: cfg.Ingress, ToPod: cfg.Egress, Flags: r.flags(id), Owner: pod.Namespace}
			if _, claimed := want.lists[id]; claimed {
				problems = append(problems, fmt.Errorf("interface %d: %w, by pods %s and %s", id, ErrSharedInterface, want.owner[id], pod))
				e.IPs, e.FromPod, e.ToPod = nil, compile.Closed, compile.Closed
			}
			want.lists[id], want.owner[id] = e, pod
		}
	}
	if err := renderer.Missing(r.pending); err != nil {
		problems = append(problems, err)
	}
	return want, problems
}

// flags returns the flags of an endpoint.
func (r *Renderer) flags(id uint32) (flags uint32) {
	if r.options.Keep {
		flags |= compile.FlagKeep
	}
	if r.learning.learns(id) {
		flags |= compile.FlagLearn
	}
	return flags
}

// audit reads back what is in the kernel when that was not done for a time, and repairs it. It
// returns what only people can repair.
func (r *Renderer) audit() error {
	a, ok := r.options.Dataplane.(auditor)
	if !ok || len(r.attachments.states) == 0 {
		r.audits.foreign = nil
		return nil
	}
	if !r.audits.due() {
		return nil
	}
	r.audits.last = time.Now()
	f, err := a.audit()
	r.audits.add(f.drift, r.log)
	if f.policyMap {
		r.policy.on(policyChanged)
		err = errors.Join(err, r.options.Dataplane.SetStateDigest(StateDigest{}))
	}
	return errors.Join(err, r.audits.judge(f.aliens, r.policy.ends.owner))
}

// install carries out what the image has that the plane has not. It returns which interfaces were
// gone.
func (r *Renderer) install(mark StateDigest) (gone []error, err error) {
	plan, anew, err := r.policy.plan()
	if err != nil {
		r.refused = notInstalled(r.desired.pods)
		_, errAttach := r.attachments.attach(r.policy.ends) // closed, because they are not known
		return nil, cmp.Or(errAttach, err)
	}
	if !anew && plan.Empty() && r.attachments.settled(r.policy.ends.lists) {
		r.policy.done()
		return nil, r.setMark(mark)
	}
	if err := r.setMark(StateDigest{}); err != nil {
		return nil, err
	}
	steps := []func(compile.Plan) error{r.policy.write, r.detach, r.policy.lead}
	if anew {
		steps = []func(compile.Plan) error{r.replace, r.detach}
	}
	for _, step := range steps {
		if err := step(plan); err != nil {
			return nil, err
		}
	}
	if gone, err = r.attachments.attach(r.policy.ends); err != nil {
		return nil, err
	}
	r.policy.on(policyFinished)
	r.policy.done()
	return gone, r.setMark(mark)
}

// replace puts a new policy map in force.
func (r *Renderer) replace(plan compile.Plan) error {
	if err := r.policy.prepare(plan); err != nil {
		return err
	}
	r.attachments.renamed()
	if err := r.policy.swap(); err != nil {
		return err
	}
	ids, err := r.attachments.observe()
	r.attachments.seen(ids)
	return err
}

// detach lets go of endpoints that are no more.
func (r *Renderer) detach(compile.Plan) error {
	for _, id := range r.attachments.leaving(r.policy.ends.lists) {
		if err := r.attachments.detach(id, r.options.Dataplane.Flip); err != nil {
			return err
		}
		r.learning.forget(id)
	}
	return nil
}

func (r *Renderer) setMark(m StateDigest) error {
	if r.options.Dataplane.StateDigest() == m {
		return nil
	}
	if err := r.options.Dataplane.SetStateDigest(m); err != nil {
		return fmt.Errorf("note what is enforced: %w", err)
	}
	return nil
}

// publish makes the outcome of a Commit visible, and returns its error with what was tried.
func (r *Renderer) publish(err error) error {
	if err != nil {
		err = fmt.Errorf("install in the kernel: %w", err)
	}
	r.view.Store(&view{err: err, pending: r.pending, unenforced: r.refused, lines: r.policy.image.Use().Lines, drift: maps.Clone(r.audits.drift), foreign: r.audits.foreign, endpoints: r.acked})
	return err
}
