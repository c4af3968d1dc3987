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

// Renderer enforces rules in a Dataplane. It implements renderer.Renderer and the optional
// interfaces of package renderer; the methods of these do not wait for a running Apply. One Apply
// runs at a time.
type Renderer struct {
	options  Options
	log      *slog.Logger
	view     atomic.Pointer[view]
	counters *ruleCounters
	desired  desired

	mu          sync.Mutex // held during an Apply
	policy      *policy
	attachments *attachments
	learning    learning
	closed      closedLists
	audits      audits
	pending     []renderer.Pending
	refused     func() []renderer.Unenforced // see closedLists.report
	acked       endpoints                    // as last installed, whatever problems remained
	ended       bool                         // by Close
}

var (
	_ renderer.Renderer  = (*Renderer)(nil)
	_ renderer.Explainer = (*Renderer)(nil)
	_ renderer.Reporter  = (*Renderer)(nil)
	_ renderer.Inspector = (*Renderer)(nil)
	_ renderer.Counter   = (*Renderer)(nil)
)

// New returns a renderer. It changes nothing in the dataplane before the first Apply.
func New(o Options) (*Renderer, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "xdp"
	}
	if o.MaxLines == 0 {
		o.MaxLines = DefaultMaxLines
	}
	switch {
	case o.Dataplane == nil:
		return nil, errors.New("xdp: Options.Dataplane is required")
	case o.Interfaces == nil:
		return nil, errors.New("xdp: Options.Interfaces is required")
	case o.MaxLines > DefaultMaxLines:
		return nil, fmt.Errorf("xdp: invalid Options.MaxLines: %d, want at most %d", o.MaxLines, DefaultMaxLines)
	}
	infra, err := o.Infra.Check()
	if err != nil {
		return nil, fmt.Errorf("xdp: %w", err)
	}
	o.Infra = infra
	r := &Renderer{
		options: o, log: o.Log, counters: newRuleCounters(o.Dataplane), desired: newDesired(o.Dataplane.Secret()),
		learning: learning{period: o.Learn, until: map[uint32]time.Time{}, onChange: o.OnChange},
		audits:   audits{last: time.Now(), drift: attach.Drift{}},
		refused:  func() []renderer.Unenforced { return nil },
	}
	if e, ok := o.Dataplane.(elder); ok {
		r.learning.older = e.older
	}
	r.policy = newPolicy(o, r.counters, &r.desired)
	r.attachments = newAttachments(o, r.audits.drift)
	_ = r.publish(nil)
	return r, nil
}

// Name returns the name of Options, which is "xdp" by default.
func (r *Renderer) Name() string { return r.options.Name }

// Close stops the goroutines and timers of the renderer. What it installed stays in force.
func (r *Renderer) Close() error {
	r.mu.Lock()
	r.learning.stop()
	r.ended = true
	r.mu.Unlock()
	r.policy.reclaimer.close()
	return nil
}

// Apply applies the changes to the desired state and installs the difference.
func (r *Renderer) Apply(ctx context.Context, c renderer.Changes) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.desired.apply(c, r.policy.image.Update)
	return r.publish(r.reconcile(ctx))
}

// reconcile brings the dataplane to the desired state.
func (r *Renderer) reconcile(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.options.Begin != nil {
		if err := r.options.Begin(ctx); err != nil {
			return err
		}
	}
	r.policy.release()
	want, problems := r.claims()
	problems = append(problems, r.policy.arrange(want)...)
	since := events.SinceBoot()
	if err := r.audit(); err != nil {
		problems = append(problems, err)
	}
	digest := r.desired.digestOf(r.policy.endpoints.lists, r.options.Infra, r.policy.options.Limits)
	if !r.policy.current() && r.options.Dataplane.StateDigest() == digest {
		same, err := r.attachments.match(r.policy.endpoints.lists)
		if err != nil {
			return err
		}
		if same {
			r.policy.adopt()
		}
	}
	lost, err := r.attachments.missing(r.policy.endpoints.lists)
	if err != nil {
		return err
	}
	if lost || r.policy.state != policyAdopted || r.options.Dataplane.StateDigest() != digest {
		gone, err := r.install(digest)
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

// acknowledge records that the desired state is enforced since a time, except for some problems.
func (r *Renderer) acknowledge(since time.Duration, problems []error) {
	enforced := r.closed.update(r.policy.image, r.policy.endpoints.lists)
	r.refused = r.closed.report(r.policy.endpoints) // also if the desired state went back to what is in force, and nothing was installed
	r.policy.recordOwners(since)
	pods := make(map[api.PodID]bool, len(r.desired.pods))
	for pod := range r.desired.pods {
		pods[pod] = true
	}
	enforces, plugged := r.attachments.enforces(r.policy.endpoints.owner), map[api.PodID]bool{}
	for _, pod := range enforces {
		plugged[pod] = true
	}
	r.attachments.unplugged.Plugged(plugged, func(pod api.PodID) bool { return pods[pod] })
	r.desired.acknowledge(func() {
		r.acked = endpoints{enforced, r.policy.endpoints.owner}
		_ = r.publish(errors.Join(problems...)) // inside, so that readers see the members of sets that belong to these lists
	})
	if r.options.Enforced != nil {
		r.options.Enforced(pods, enforces)
	}
}

// digestOf returns the digest of the desired state as far as it is enforced: the members of sets,
// the endpoints, the exempt traffic, and the limits that close lists.
func (d *desired) digestOf(eps map[uint32]compile.Endpoint, infra renderer.Infra, limits compile.Limits) StateDigest {
	m := d.digest
	for id, e := range eps {
		var b bytes.Buffer
		fmt.Fprintf(&b, "e%d %v %s %t %s %t %d", id, e.IPs, e.ToPod.Digest(), e.ToPod == nil, e.FromPod.Digest(), e.FromPod == nil, e.Flags&(compile.FlagKeep|compile.FlagLearn))
		m.toggle(d.digester.text(b.Bytes()))
	}
	m.toggle(d.digester.text(fmt.Append(nil, "i", infra, limits)))
	return m
}

// claims returns the desired endpoints, and the problems with them.
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

// audit reads back the state of the kernel if an audit is due, and repairs it. It returns an error
// for what it cannot repair.
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
	if r.audits.failed = err != nil; !r.audits.failed {
		r.audits.seen = ""
	}
	r.audits.add(f.drift, r.log)
	if f.policyMap {
		r.policy.on(policyChanged)
		err = errors.Join(err, r.options.Dataplane.SetStateDigest(StateDigest{}))
	}
	return errors.Join(err, r.audits.setForeign(f.foreign, r.policy.endpoints.owner))
}

// install brings the dataplane to the image. It returns an error in gone for each interface that
// did not exist any more.
func (r *Renderer) install(digest StateDigest) (gone []error, err error) {
	plan, anew, err := r.policy.plan()
	if err != nil {
		r.refused = notInstalled(r.desired.pods)
		_, errAttach := r.attachments.attach(r.policy.endpoints) // their packets are dropped, because the program does not know them
		return nil, cmp.Or(errAttach, err)
	}
	if !anew && plan.Empty() && r.attachments.settled(r.policy.endpoints.lists) {
		r.policy.done()
		return nil, r.setDigest(digest)
	}
	if err := r.setDigest(StateDigest{}); err != nil {
		return nil, err
	}
	steps := []func(compile.Plan) error{r.policy.write, r.detach, r.policy.publish}
	if anew {
		steps = []func(compile.Plan) error{r.replace, r.detach}
	}
	for _, step := range steps {
		if err := step(plan); err != nil {
			return nil, err
		}
	}
	if gone, err = r.attachments.attach(r.policy.endpoints); err != nil {
		return nil, err
	}
	r.policy.on(policyFinished)
	r.policy.done()
	return gone, r.setDigest(digest)
}

// replace writes everything to a new policy map and puts it in force.
func (r *Renderer) replace(plan compile.Plan) error {
	if err := r.policy.prepare(plan); err != nil {
		return err
	}
	r.attachments.forgetAddresses()
	if err := r.policy.swap(); err != nil {
		return err
	}
	ids, err := r.attachments.observe()
	r.attachments.seen(ids)
	return err
}

// detach detaches from endpoints that are not desired any more.
func (r *Renderer) detach(compile.Plan) error {
	for _, id := range r.attachments.leaving(r.policy.endpoints.lists) {
		if err := r.attachments.detach(id, r.options.Dataplane.Flip); err != nil {
			return err
		}
		r.learning.forget(id)
	}
	return nil
}

func (r *Renderer) setDigest(m StateDigest) error {
	if r.options.Dataplane.StateDigest() == m {
		return nil
	}
	if err := r.options.Dataplane.SetStateDigest(m); err != nil {
		return fmt.Errorf("store the state digest: %w", err)
	}
	return nil
}

// publish makes the outcome of an Apply visible to readers, and returns its error with context.
func (r *Renderer) publish(err error) error {
	if err != nil {
		err = fmt.Errorf("install in the dataplane: %w", err)
	}
	rows, addresses := r.policy.image.Usage()
	r.view.Store(&view{rows: rows, addresses: addresses, err: err, pending: r.pending, unenforced: r.refused, lines: r.policy.image.Use().Lines, drift: maps.Clone(r.audits.drift), foreign: r.audits.foreign, endpoints: r.acked})
	return err
}
