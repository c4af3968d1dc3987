// Package verdicts distributes the verdicts about packets that dataplanes report to the subscribers
// of the debug API, and keeps the last ones.
//
// # Invariants
//
//   - What is kept, and what waits for a client, is bounded. A client that does not read misses
//     verdicts, is notified of how many, and delays no other client.
//   - Filters are applied before verdicts are queued, so that a client is sent what it asks for.
package verdicts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
)

// Config of a Hub.
type Config struct {
	Node     string   // name of the agent's node
	Sources  []Source // none: no dataplane reports verdicts
	Snapshot Snapshot
	// Keep selects which verdicts are kept for later questions, and Places how many. While nothing
	// is kept and no client watches, sources report nothing, and packets cost nothing more.
	Keep   Wanted
	Places int
	Log    *slog.Logger
}

// Hub distributes verdicts of packets to its subscribers, and keeps the last ones.
type Hub struct {
	config Config
	names  *names

	mu      sync.Mutex
	all     map[*subscriber]struct{}
	history *history
	keeping bool               // since Begin
	stop    context.CancelFunc // of the readers, nil while there are none
	ended   chan struct{}      // closed when the newest readers have ended, or there were none
	once    sync.Once          // closes closed
	closed  chan struct{}
}

// subscriber is a client that watches. Verdicts that arrive while its queue is full are counted.
type subscriber struct {
	filter filter
	queue  chan *record // closed after the last verdict
	broke  error        // the error that ended it; set before the queue is closed
	missed atomic.Uint64
}

// queued is how many verdicts may wait for a subscriber, and maxSubscribers how many there may be.
const (
	queued         = 1024
	maxSubscribers = 256
)

// retryInterval is the pause before sources are read again after an error, to keep verdicts.
const retryInterval = 10 * time.Second

var (
	errNoReporter     = errors.New("no dataplane of this agent reports verdicts of packets: the kernel (unless --xdp-events is 0), VPP and the embedded dataplane do")
	errEnded          = errors.New("the agent ends")
	errBroken         = errors.New("verdicts of packets cannot be read any more; policy is still enforced. Watch again, and restart the agent if it happens again")
	errTooManyClients = fmt.Errorf("too many clients watch: the limit is %d", maxSubscribers)
	errNotKept        = errors.New("this agent keeps no verdicts: it runs with --verdict-history none")
	errOnlyDenied     = errors.New("this agent keeps the verdicts of denied packets only: it runs with --verdict-history deny")
)

// New returns a hub. It keeps nothing before Begin.
func New(c Config) *Hub {
	s := &Hub{
		config: c, names: &names{snapshot: c.Snapshot}, all: map[*subscriber]struct{}{}, history: newHistory(c.Places),
		ended: make(chan struct{}), closed: make(chan struct{}),
	}
	close(s.ended)
	return s
}

// Begin begins to keep verdicts, if the hub is to.
func (s *Hub) Begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeps(Denied) == nil && len(s.config.Sources) > 0 && !s.isClosed() {
		s.keeping = true
		if err := s.update(); err != nil {
			s.config.Log.Warn("verdicts of packets are not kept", "error", err)
		}
	}
}

// keeps returns an error unless the hub keeps the verdicts that are wanted.
func (s *Hub) keeps(w Wanted) error {
	switch {
	case s.config.Keep == Nothing || s.config.Places == 0:
		return errNotKept
	case w > s.config.Keep:
		return errOnlyDenied
	}
	return nil
}

// join adds a subscriber, and leave removes it. kept are the verdicts before those of its queue.
func (s *Hub) join(f filter) (l *subscriber, kept []*record, leave func(), err error) {
	if len(s.config.Sources) == 0 {
		return nil, nil, nil, errNoReporter
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return nil, nil, nil, errEnded
	}
	if len(s.all) == maxSubscribers {
		return nil, nil, nil, errTooManyClients
	}
	l = &subscriber{filter: f, queue: make(chan *record, queued)}
	s.all[l] = struct{}{}
	if err := s.update(); err != nil {
		delete(s.all, l)
		return nil, nil, nil, err
	}
	if f.Since > 0 {
		kept = s.history.since(time.Now().Add(-f.Since), l.filter.passes)
	}
	return l, kept, func() { s.leave(l) }, nil
}

// past returns the verdicts that are kept and pass.
func (s *Hub) past(f *filter) ([]*record, error) {
	if len(s.config.Sources) == 0 {
		return nil, errNoReporter
	}
	if err := s.keeps(f.needs()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	from := time.Time{}
	if f.Since > 0 {
		from = time.Now().Add(-f.Since)
	}
	return s.history.since(from, f.passes), nil
}

// leave removes a subscriber. If it was the last one, and nothing is kept, leave waits until the
// readers have ended.
func (s *Hub) leave(l *subscriber) {
	if ended := s.drop(l); ended != nil {
		<-ended
	}
}

// drop removes a subscriber. It returns a channel that is closed when the readers have ended; nil
// if there is nothing to wait for.
func (s *Hub) drop(l *subscriber) (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[l]; !ok || s.isClosed() {
		return nil // it is removed already
	}
	delete(s.all, l)
	if err := s.update(); err != nil {
		s.config.Log.Warn("a dataplane still reports packets although no client watches", "error", err)
	}
	if s.stop != nil {
		return nil
	}
	return s.ended
}

// isClosed reports whether the agent ends.
func (s *Hub) isClosed() bool {
	select {
	case <-s.closed:
		return true
	default:
		return false
	}
}

// wanted returns what any subscriber wants, or is kept.
func (s *Hub) wanted() (w Wanted) {
	if s.keeping {
		w = s.config.Keep
	}
	for l := range s.all {
		w = max(w, l.filter.needs())
	}
	return w
}

// update requests from the sources what is wanted, and starts or stops the readers.
func (s *Hub) update() error {
	w := s.wanted()
	if err := s.report(w); err != nil {
		return err
	}
	switch {
	case w != Nothing && s.stop == nil:
		s.startReaders()
	case w == Nothing:
		s.stopReaders()
	}
	return nil
}

func (s *Hub) report(w Wanted) (err error) {
	for _, source := range s.config.Sources {
		err = errors.Join(err, source.Report(w))
	}
	return err
}

// startReaders starts to read events once the previous readers have ended.
func (s *Hub) startReaders() {
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := s.ended, make(chan struct{})
	s.stop, s.ended = cancel, ended
	go func() {
		defer close(ended)
		<-before
		var readers sync.WaitGroup
		for _, source := range s.config.Sources {
			readers.Go(func() { s.read(ctx, source) })
		}
		readers.Wait()
	}()
}

// stopReaders stops the readers, if there are any. The returned channel is closed when they have
// ended. They need the lock for that, so the caller must release it before it waits.
func (s *Hub) stopReaders() (ended <-chan struct{}) {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	return s.ended
}

// read passes events to the subscribers until the context ends.
func (s *Hub) read(ctx context.Context, source Source) {
	err := source.Events(ctx, func(e Event) { s.hand(s.names.tell(ctx, e)) })
	if ctx.Err() == nil {
		s.config.Log.Warn("verdicts of packets cannot be read", "error", err)
		s.broke(ctx, fmt.Errorf("%w: %w", errBroken, err))
	}
}

// broke ends all subscriptions with an error: silence would look like a node that drops nothing.
// The next join tries to read again, and so does the hub itself if it keeps verdicts.
func (s *Hub) broke(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return // these readers were stopped meanwhile; present subscribers have others
	}
	s.stopReaders()
	left := s.all
	s.all = map[*subscriber]struct{}{}
	if err := s.report(Nothing); err != nil {
		s.config.Log.Warn("a dataplane still reports packets although they cannot be read", "error", err)
	}
	for l := range left {
		l.broke = err
		close(l.queue)
	}
	if s.keeping {
		s.keeping = false
		time.AfterFunc(retryInterval, s.Begin)
	}
}

// hand passes a verdict to the subscribers that it passes the filters of.
func (s *Hub) hand(t *record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.config.Keep == All || s.config.Keep == Denied && t.Action == api.Deny {
		s.history.add(t)
	}
	for l := range s.all {
		if !l.filter.passes(t) {
			continue
		}
		select {
		case l.queue <- t:
		default:
			l.missed.Add(t.count() + t.Missed)
		}
	}
}

// End stops the readers and waits for them. Call it before the sources are closed. It may be called
// any number of times.
func (s *Hub) End() { <-s.finish() }

// finish ends all watching. The returned channel is closed when the readers have ended.
func (s *Hub) finish() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once.Do(func() { close(s.closed) })
	if s.stop != nil {
		if err := s.report(Nothing); err != nil {
			s.config.Log.Warn("a dataplane still reports packets although no client watches", "error", err)
		}
	}
	return s.stopReaders()
}

// Check returns an error that names what is invalid in a question.
func Check(q view.Watch) error {
	_, err := newFilter(q)
	return err
}
