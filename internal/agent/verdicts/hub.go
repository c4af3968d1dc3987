// Package verdicts distributes the verdicts about packets that the kernel reports to the
// subscribers of the debug API, with the rules in words.
package verdicts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// Source reports packets while it is asked to.
type Source interface {
	SetEventFilter(t xdp.EventFilter) error
	Events(ctx context.Context, f func(xdp.Event)) error
	// Explained returns the pod whose interface a packet was at, and what decided about it.
	Explained(e xdp.Event) (api.PodID, renderer.Decision)
}

// Explain describes an event.
type Explain func(ctx context.Context, e xdp.Event, pod api.PodID, d renderer.Decision) view.PacketVerdict

// Hub distributes verdicts of packets to its subscribers. While there are none, the kernel reports
// nothing, and packets cost nothing more.
type Hub struct {
	kernel  Source // nil without a dataplane that reports verdicts
	most    xdp.EventFilter
	explain Explain
	log     *slog.Logger

	mu     sync.Mutex
	all    map[*subscriber]struct{}
	stop   context.CancelFunc // of the reader, nil while there is none
	ended  chan struct{}      // closed when the newest reader has ended, or there was none
	once   sync.Once          // closes closed
	closed chan struct{}
}

// subscriber is a client that watches. Verdicts that arrive while its queue is full are counted.
type subscriber struct {
	permitted bool
	queue     chan view.PacketVerdict // closed after the last verdict
	broke     error                   // the error that ended it; set before the queue is closed
	missed    atomic.Uint64
}

// queued is how many verdicts may wait for a subscriber.
const queued = 1024

var (
	errNobodyTells = errors.New("verdicts of packets are reported by the kernel dataplane only: by agents with --renderers xdp, unless --xdp-events is 0; see get rules for counters")
	errEnded       = errors.New("the agent ends")
	errBroken      = errors.New("verdicts of packets cannot be read any more, policy is enforced as before; watch again, and restart the agent if this comes again")
)

// New returns a hub for the events of a source, described by explain. most limits which events and
// how many are reported. The source is nil if no dataplane reports verdicts.
func New(kernel Source, most xdp.EventFilter, explain Explain, log *slog.Logger) *Hub {
	s := &Hub{kernel: kernel, most: most, explain: explain, log: log, all: map[*subscriber]struct{}{}, ended: make(chan struct{}), closed: make(chan struct{})}
	close(s.ended)
	return s
}

// join adds a subscriber, and leave removes it.
func (s *Hub) join(permitted bool) (l *subscriber, leave func(), err error) {
	if s.kernel == nil || s.most.PerSecond == 0 {
		return nil, nil, errNobodyTells
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isClosed() {
		return nil, nil, errEnded
	}
	l = &subscriber{permitted: permitted, queue: make(chan view.PacketVerdict, queued)}
	s.all[l] = struct{}{}
	if err := s.setFilter(); err != nil {
		delete(s.all, l)
		return nil, nil, err
	}
	if s.stop == nil {
		s.startReader()
	}
	return l, func() { s.leave(l) }, nil
}

// leave removes a subscriber. After the last one it waits until the reader has ended.
func (s *Hub) leave(l *subscriber) {
	if ended := s.drop(l); ended != nil {
		<-ended
	}
}

// drop removes a subscriber. After the last one it stops the reader, and returns a channel that is
// closed when the reader has ended; nil if there is nothing to wait for.
func (s *Hub) drop(l *subscriber) (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.all[l]; !ok || s.isClosed() {
		return nil // it is removed already
	}
	delete(s.all, l)
	if err := s.setFilter(); err != nil {
		s.log.Warn("the kernel still reports packets although no client watches", "error", err)
	}
	if len(s.all) > 0 {
		return nil
	}
	return s.stopReader()
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

// setFilter requests the events that any subscriber wants.
func (s *Hub) setFilter() error {
	want := s.most
	want.Permitted = false
	for l := range s.all {
		want.Permitted = want.Permitted || l.permitted
	}
	if len(s.all) == 0 {
		want = xdp.EventFilter{}
	}
	return s.kernel.SetEventFilter(want)
}

// startReader starts to read events once the previous reader has ended.
func (s *Hub) startReader() {
	ctx, cancel := context.WithCancel(context.Background())
	before, ended := s.ended, make(chan struct{})
	s.stop, s.ended = cancel, ended
	go func() {
		defer close(ended)
		<-before
		s.read(ctx)
	}()
}

// stopReader stops the reader, if there is one. The returned channel is closed when the reader has
// ended. The reader needs the lock for that, so the caller must release it before it waits.
func (s *Hub) stopReader() (ended <-chan struct{}) {
	if s.stop != nil {
		s.stop()
		s.stop = nil
	}
	return s.ended
}

// read passes events to the subscribers until the context ends.
func (s *Hub) read(ctx context.Context) {
	err := s.kernel.Events(ctx, func(e xdp.Event) { s.report(ctx, e) })
	if ctx.Err() == nil {
		s.log.Warn("verdicts of packets cannot be read", "error", err)
		s.broke(ctx, fmt.Errorf("%w: %w", errBroken, err))
	}
}

// broke ends all subscriptions with an error: silence would look like a node that drops nothing.
// The next join tries to read again.
func (s *Hub) broke(ctx context.Context, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return // this reader was stopped meanwhile; present subscribers have another one
	}
	s.stop()
	s.stop = nil
	left := s.all
	s.all = map[*subscriber]struct{}{}
	if err := s.setFilter(); err != nil {
		s.log.Warn("the kernel still reports packets although they cannot be read", "error", err)
	}
	for l := range left {
		l.broke = err
		close(l.queue)
	}
}

// report describes an event and passes it to the subscribers.
func (s *Hub) report(ctx context.Context, e xdp.Event) {
	pod, d := s.kernel.Explained(e)
	s.hand(s.explain(ctx, e, pod, d), e.Reason == "")
}

func (s *Hub) hand(v view.PacketVerdict, permitted bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for l := range s.all {
		if permitted && !l.permitted {
			continue
		}
		select {
		case l.queue <- v:
		default:
			l.missed.Add(1)
		}
	}
}

// End stops the reader and waits for it. Call it before the source is closed. It may be called any
// number of times.
func (s *Hub) End() { <-s.finish() }

// finish ends all watching. The returned channel is closed when the reader has ended.
func (s *Hub) finish() (ended <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.once.Do(func() { close(s.closed) })
	if s.stop != nil {
		if err := s.kernel.SetEventFilter(xdp.EventFilter{}); err != nil {
			s.log.Warn("the kernel still reports packets although no client watches", "error", err)
		}
	}
	return s.stopReader()
}
