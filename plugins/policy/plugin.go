package policy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/plugins/policy/cache"
	"github.com/sluice-net/sluice/plugins/policy/configurator"
	"github.com/sluice-net/sluice/plugins/policy/processor"
)

// Errors of the life cycle.
var (
	// ErrNotRunning says that the event loop was not started or has stopped.
	ErrNotRunning = errors.New("the policy plugin is not running")
	// ErrStuck says that Close did not wait any longer for the event loop.
	ErrStuck = errors.New("the event loop of the policy plugin did not stop in time")
	// ErrHasSource says that changes come from a Source, not by Apply.
	ErrHasSource = errors.New("the policy plugin has a source, so changes cannot be applied to it")
)

// closeTimeout bounds Close; renderers that ignore the end of their context are
// left behind.
const closeTimeout = 4 * time.Second

// Plugin enforces policy for the pods of one node. Init, AfterInit and Close are
// called in this order by one goroutine; the other methods are for everybody,
// between Init and Close. A Plugin lives once: to start again, make another one.
// Nothing is shared between Plugins, so a process may have any number of them.
type Plugin struct {
	Deps

	// What follows belongs to the event loop.
	cache        *cache.Cache
	processor    *processor.Processor
	configurator *configurator.Configurator
	resynced     bool      // renderers were told to resync
	told         bool      // the processor was flushed before
	retryAt      time.Time // zero: nothing to retry
	backoff      time.Duration
	attempts     []attempt // since renderers defer something
	unblocked    string    // why interfaces could not be blocked before the first state, as it was logged
	sourceErr    error
	ledger       ledger
	draft        Status
	state        uint64 // counts what snapshots can differ in

	// What follows is for everybody.
	feed      *feed // when there is no Source
	status    atomic.Pointer[published]
	snapshot  atomic.Pointer[Snapshot]
	wanted    atomic.Bool                        // somebody waits for a snapshot
	asked     chan struct{}                      // holds a token when somebody may; nil for a Handler
	prompted  atomic.Bool                        // Prompt was called
	atWork    atomic.Pointer[time.Time]          // since when the loop has not waited; nil while it does
	interrupt atomic.Pointer[context.CancelFunc] // ends the loop's waiting
	cancel    context.CancelFunc                 // stops the loop; nil before AfterInit
	done      chan struct{}                      // closed when the loop has stopped
}

// New returns a Plugin; nothing happens before Init. Fields of Deps that are set after
// New and before Init count as well: agents that fill in the dependencies of their
// plugins do so.
func New(d Deps) *Plugin { return &Plugin{Deps: d} }

// String returns the name of the plugin.
func (p *Plugin) String() string { return cmp.Or(p.Name, defaultName) }

// Init checks the dependencies and wires the layers. It waits for nothing and starts
// nothing, so a Plugin that was only initialised needs no Close.
func (p *Plugin) Init() error {
	if p.done != nil {
		return fmt.Errorf("plugin %s is initialised already", p)
	}
	if err := p.wire(); err != nil {
		return err
	}
	if p.Source == nil {
		p.feed = newFeed()
		p.Source = p.feed
	}
	p.done, p.asked = make(chan struct{}), make(chan struct{}, 1)
	return nil
}

// wire makes the layers, and the values of Deps that were left out.
func (p *Plugin) wire() error {
	names := map[string]bool{}
	for _, r := range p.Renderers {
		if names[r.Name()] {
			return fmt.Errorf("plugin %s: two renderers have the name %q", p, r.Name())
		}
		names[r.Name()] = true
	}
	if p.Log == nil {
		p.Log = slog.New(slog.DiscardHandler)
	}
	p.MinBackoff = cmp.Or(p.MinBackoff, defaultMinBackoff)
	p.MaxBackoff = max(p.MinBackoff, cmp.Or(p.MaxBackoff, defaultMaxBackoff))
	p.CommitTimeout = cmp.Or(p.CommitTimeout, defaultCommitTimeout)
	p.cache = cache.New()
	p.processor = processor.New(p.cache, processor.Options{Node: p.Node})
	p.configurator = configurator.New(configurator.Options{DenyNode: p.DenyNode, Renderers: p.Renderers, Sets: p.processor})
	p.ledger = newLedger()
	p.draft.Renderers = rendererStatus(nil, p.configurator.Renderers(), time.Now())
	p.publish()
	return nil
}

// AfterInit starts the event loop and does not wait for anything.
func (p *Plugin) AfterInit() error {
	if p.done == nil || p.cancel != nil {
		return fmt.Errorf("plugin %s must be initialised once before it is started, and started once", p)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	go p.run(ctx)
	return nil
}

// Close stops the event loop and waits for it, for less than 5 s. What renderers
// have installed stays installed. It may be called at any time and more than once.
func (p *Plugin) Close() error {
	if p.cancel == nil {
		return nil
	}
	p.cancel()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-p.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("close plugin %s: %w", p, ErrStuck)
	}
}

// Prompt asks the event loop to let every renderer commit, although no state has
// changed: something in a stack did. It never blocks, and may be called at any time;
// before AfterInit it takes effect then.
func (p *Plugin) Prompt() {
	p.prompted.Store(true)
	if interrupt := p.interrupt.Load(); interrupt != nil {
		(*interrupt)()
	}
}
